"""Our sampler behind the call that verl makes to a rollout server, in this process: for tests and benchmarks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.types import Sampling


class LocalServer:
    """Draws reply ``sample`` of a ``seed``, so that a run repeats the torch trainer's draws. ``version`` is that of the
    weights; ``frozen``, if set, is the server of the initial policy."""

    def __init__(self, folder: str | Path, frozen: Self | None = None):
        self.sampler = InProcessSampler.from_folder(folder)
        self.frozen, self.version = frozen, 0

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: Mapping[str, Any], **_: Any
    ) -> SimpleNamespace:
        """One reply, with the fields of verl's ``TokenOutput``; requests that are waiting are answered together."""
        request = sampling_params
        if "prompt_logprobs" in request:  # of the tokens behind the first
            [scored] = await self.sampler.score(prompt_ids[:1], [prompt_ids[1:]])
            fields = {"global_steps": self.version, "prompt_logprobs": [[x] for x in scored]}
            end = [self.sampler.tokenizer.end_of_turn]
            return SimpleNamespace(token_ids=end, log_probs=[0.0], stop_reason="completed", extra_fields=fields)
        sampling = Sampling(request["max_tokens"], request["temperature"], request["top_p"], max(0, request["top_k"]))
        [drawn] = await self.sampler.sample(prompt_ids, [request["sample"]], sampling, request["seed"])
        ids, logprobs, extra = list(drawn.token_ids), list(drawn.logprobs), {"global_steps": self.version}
        return SimpleNamespace(token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields=extra)
