"""Loading and saving of the trained model, checkpoints, and fast linear layers on a CPU."""

import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ...files import file_digest, replacing, write_text
from ...llm.transformer import ONEDNN_LINEAR, padded, read_folder
from .decoder import Decoder

_log = logging.getLogger(__name__)


def load_model(folder: Path, device: str = "cpu", tiny: bool = False) -> torch.nn.Module:
    """Load the causal language model in a Hugging Face folder, in single precision: the ``tiny`` policy by torch alone,
    others by transformers. Raises as :func:`cdpr.llm.transformer.read_folder`."""
    read_folder(folder)
    if tiny:
        return use_onednn(Decoder.load(folder).to(device))
    sys.modules.setdefault("sklearn", None)  # type: ignore[arg-type]  # seconds of importing, for assisted generation
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    if sys.modules["sklearn"] is None:
        del sys.modules["sklearn"]
    disable_progress_bar()
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    return use_onednn(model.to(torch.device(device)))


def save_policy(model, init_policy: Path, out_dir: Path) -> None:
    """Write the model, with the tokenizer files of ``init_policy``, to a Hugging Face folder."""
    model.save_pretrained(out_dir)
    copy_tokenizer(init_policy, out_dir)


def copy_tokenizer(policy: Path, folder: Path) -> None:
    """Copy the tokenizer files of a policy to another folder."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        if (policy / name).exists():
            shutil.copyfile(policy / name, folder / name)


def save_checkpoint(path: Path, state: Mapping[Any, Any]) -> None:
    """Write a checkpoint to ``path`` and keep the previous one beside it. A kill at any moment leaves one of the two
    whole; a third file has the digests of whole checkpoints, which reveal damaged files."""
    previous, digests = _sibling_files(path)
    known_digests = _read_digests(digests)
    digest_of_path = file_digest(path) if path.exists() else ""
    is_whole = digest_of_path in known_digests
    # The first known digest may be that of a checkpoint that never came to ``path``, because its saving was killed.
    kept_digests = [digest_of_path] if is_whole else known_digests
    with replacing(path) as partial:
        with partial.open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        write_text(digests, "\n".join([file_digest(partial), *kept_digests]) + "\n")
        if is_whole:  # a damaged file must not replace the previous one
            os.replace(path, previous)


def load_checkpoint(path: Path) -> dict[Any, Any] | None:
    """Load the newest whole checkpoint: ``path`` or the previous one. Returns its content; None where neither is whole.
    Logs a warning about a damaged file. A file can hold tensors and plain values alone, no code."""
    previous, digests = _sibling_files(path)
    whole_digests = _read_digests(digests)
    files = [file for file in (path, previous) if file.exists()]
    for file in files:
        if file_digest(file) in whole_digests:
            return torch.load(file, map_location="cpu", weights_only=True)
        _log.warning("%s is damaged: it is not what was written; continuing from the one before it, if any", file)
    if files:
        _log.warning("%s: no checkpoint is whole: starting again from the first step", path.parent)
    return None


@contextmanager
def restore_on_error(model: torch.nn.Module, enabled: bool = True) -> Iterator[None]:
    """A context that restores the trained parameters to their values at its start if it ends with a FloatingPointError,
    which is raised again. Without ``enabled`` it does nothing and needs no memory."""
    trained = [p for p in model.parameters() if p.requires_grad] if enabled else []
    before = [p.detach().to("cpu", copy=True) for p in trained]
    try:
        yield
    except FloatingPointError:
        for parameter, values in zip(trained, before, strict=True):
            parameter.data.copy_(values)
        raise


def _read_digests(path: Path) -> list[str]:
    """Read the digests in a file, one a line, the newest first; empty where the file is missing."""
    return path.read_text(encoding="utf-8", errors="replace").split() if path.is_file() else []


def _sibling_files(path: Path) -> tuple[Path, Path]:
    """Return the path of the previous checkpoint, and that of the digests of both."""
    return path.with_name(f"{path.name}.before"), path.with_name(f"{path.name}.sha256")


# Linear layers on a CPU


class _OneDnnProduct(torch.autograd.Function):
    """``x @ weight.T`` by oneDNN, with its gradients; ``x`` [..., in], ``weight`` [out, in]."""

    @staticmethod
    def forward(ctx, x, weight):
        """Compute the product [..., out]."""
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight)

    @staticmethod
    def backward(ctx, gradient):
        """Compute the gradients of ``x`` and ``weight`` from that of the product."""
        x, weight = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1])
        return (
            _multiply(flat, weight.t().contiguous()).view_as(x) if ctx.needs_input_grad[0] else None,
            flat.t() @ x.reshape(-1, x.shape[-1]) if ctx.needs_input_grad[1] else None,
        )


class _OneDnnLinear(torch.nn.Linear):
    """A linear layer in float32 on a CPU, computed by oneDNN."""

    def forward(self, x):
        """Apply the layer to ``x`` [..., in]."""
        return _OneDnnProduct.apply(x, self.weight)


def _multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute ``x @ weight.T`` by oneDNN."""
    return ONEDNN_LINEAR(x, weight, None, "none", [], "")


def use_onednn(model: torch.nn.Module) -> torch.nn.Module:
    """Make the linear layers without bias of a model use oneDNN, where torch has it; returns the model. Torch itself
    uses MKL, which leaves half of an AMD processor idle (see ``llm/transformer.py``)."""
    for layer in model.modules() if ONEDNN_LINEAR is not None else ():
        if type(layer) is torch.nn.Linear and layer.bias is None and layer.weight.dtype == torch.float32:
            layer.__class__ = _OneDnnLinear if layer.weight.device.type == "cpu" else torch.nn.Linear
    return model


def padded_width(model: torch.nn.Module, longest: int) -> int:
    """Return the number of tokens to which to pad a batch whose longest sequence has ``longest`` tokens. It is larger
    where the model uses oneDNN, which compiles a kernel for every width."""
    return padded(longest) if any(type(layer) is _OneDnnLinear for layer in model.modules()) else longest
