"""Our sampler behind the call that verl makes to a rollout server: for runs without a GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ....llm.sampler import InProcessSampler
from ....llm.types import Sampling


@dataclass
class Reply:
    """A reply with the fields of verl's ``TokenOutput``."""

    token_ids: list[int]
    log_probs: list[float]
    stop_reason: str = "completed"
    extra_fields: dict[str, Any] = field(default_factory=dict)


class LocalServer:
    """Draws reply ``sample`` of a ``seed``, so that a run repeats the torch trainer's draws. ``version`` is that of the
    weights; ``frozen``, if set, is the server of the initial policy."""

    def __init__(self, folder: str | Path, frozen: Self | None = None):
        self.sampler = InProcessSampler.from_folder(folder)
        self.frozen, self.version = frozen, 0

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: Mapping[str, Any], **_: Any
    ) -> Reply:
        """One reply; requests that are waiting are answered together."""
        request = sampling_params
        sampling = Sampling(request["max_tokens"], request["temperature"], request["top_p"], max(0, request["top_k"]))
        [drawn] = await self.sampler.sample(prompt_ids, [request["sample"]], sampling, request["seed"])
        return Reply(list(drawn.token_ids), list(drawn.logprobs), extra_fields={"global_steps": self.version})
