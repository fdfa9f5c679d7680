"""verl's rollout servers as a model. verl itself is not needed: its client is handed over."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from ..seeding import derive_seed
from .spec import ModelSpec
from .tokenizer import ChatTokenizer
from .types import Completion, Model, ModelFailure, Sampling, Usage

CONVERSATION: contextvars.ContextVar[str | None] = contextvars.ContextVar("conversation", default=None)
"""Requests of one name go to one server, whose prefix cache then serves them all."""


class RolloutServer(Model):
    """A model over ``client.generate``, verl's call to whichever server is free.

    Every call ends within ``timeout`` seconds. What goes wrong in a server is a failure of the request, told by the
    kind of error alone: its message may quote the prompt. ``versions`` are those of the weights that answered.
    """

    def __init__(self, spec: ModelSpec, client: Any, tokenizer: ChatTokenizer) -> None:
        self.client, self.tokenizer, self.timeout = client, tokenizer, spec.timeout
        self.rollout = spec.where.partition(":")[2]
        self.versions: set[int] = set()

    async def sample(
        self, prompt_ids: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        asked = {
            "max_tokens": sampling.max_tokens, "temperature": sampling.temperature, "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1, "logprobs": True,
        }  # fmt: skip
        return list(await asyncio.gather(*(self._one(prompt_ids, asked | self._seeded(seed, k)) for k in samples)))

    def _seeded(self, seed: int, k: int) -> dict[str, int]:
        """How a server is told the seed of completion k of a request. SGLang takes none unless it runs in its
        deterministic mode, so there a run cannot be repeated draw by draw."""
        if self.rollout == "sglang":
            return {}
        return {"seed": derive_seed(seed, k)} if self.rollout == "vllm" else {"seed": seed, "sample": k}

    async def _one(self, prompt_ids: Sequence[int], asked: dict[str, Any]) -> Completion:
        name = CONVERSATION.get() or uuid4().hex
        try:
            async with asyncio.timeout(self.timeout):
                output = await self.client.generate(name, prompt_ids=list(prompt_ids), sampling_params=asked)
        except TimeoutError:
            raise ModelFailure(f"a rollout server gave no answer within {self.timeout:g} seconds") from None
        except Exception as error:  # another process failed, in a way of its own
            raise ModelFailure(f"a rollout server failed ({type(error).__name__})") from None
        ids = tuple(output.token_ids)
        if not ids or output.stop_reason == "aborted":
            raise ModelFailure("a rollout server gave up a request")
        version = output.extra_fields.get("global_steps")
        if version is not None:
            self.versions.add(version)
        stopped = ids[-1] in self.tokenizer.eos_ids
        return Completion(
            self.tokenizer.decode(ids), ids, tuple(output.log_probs or ()), "stop" if stopped else "length",
            Usage(len(prompt_ids), len(ids)),
        )  # fmt: skip
