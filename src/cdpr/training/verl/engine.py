"""verl's FSDP engine with a check that rollout servers get all weights; verl imports it through ``model.external_lib``.

verl selects the weights to send by names that peft and FSDP make. With peft 0.21 it finds no LoRA adapter and sends
nothing, without an error: all rollouts would come from the initial model. So adapters are merged into the weights
(``model.lora.merge``), and the weights that are sent are compared with those of the model.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead


class Engine(FSDPEngineWithLMHead):
    """verl's engine of the trained model, which checks that all weights of the model are sent to the rollout
    servers."""

    def _build_module(self):
        """Build verl's model, and store the shape of each of its weights by name."""
        module = super()._build_module()
        # Without the packed experts of a mixture-of-experts model (three dimensions): verl sends each expert by itself.
        self.shapes = {name: weight.shape for name, weight in module.named_parameters() if weight.dim() < 3}
        return module

    def get_per_tensor_param(self, *args: Any, **kwargs: Any):
        """Return what verl sends to the rollout servers: the weights, which are checked while they are sent, and verl's
        description of an adapter."""
        weights, adapter = super().get_per_tensor_param(*args, **kwargs)
        return self._check_complete(weights), adapter

    def _check_complete(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the names and tensors of ``weights`` unchanged. After the last one, raise RuntimeError where a weight
        of the model was missing or had another shape."""
        missing = dict(self.shapes)
        for name, tensor in weights:
            if missing.get(name) == tensor.shape:
                del missing[name]
            yield name, tensor
        if missing:
            raise RuntimeError(
                f"{len(missing)} of the model's {len(self.shapes)} weights do not reach the rollout server, such as "
                f"{next(iter(missing))}: it would answer with old ones. Use the versions that envs/verl-gpu.txt pins"
            )


# verl looks first for an engine that is registered with the device's vendor, and its own is registered without one, so
# this one is found. For a CPU verl has no engine.
for device, vendor in (("cuda", "nvidia"), ("cpu", None)):
    EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device, vendor)(Engine)
