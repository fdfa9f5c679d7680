"""Our sampler behind the call that verl makes to a rollout server, in this process: for tests and benchmarks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from cdpr_verl_cpu.reply import answer_request

from cdpr.llm.sampler import InProcessSampler


class LocalServer:
    """``version`` is that of the weights; ``frozen``, if set, is the server of the initial policy."""

    def __init__(self, folder: str | Path, frozen: Self | None = None):
        self.sampler = InProcessSampler.from_folder(folder)
        self.frozen, self.version = frozen, 0

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: Mapping[str, Any], **_: Any
    ) -> SimpleNamespace:
        """One reply, with the fields of verl's ``TokenOutput``."""
        return SimpleNamespace(**await answer_request(self.sampler, prompt_ids, sampling_params, self.version))
