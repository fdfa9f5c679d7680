"""verl's rollout servers as a model. verl itself is not imported: the caller passes its client."""

import asyncio
import contextvars
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from ..seeding import derive_seed
from .answers import continuation_logprobs
from .spec import ModelSpec
from .tokenizer import ChatTokenizer
from .types import Completion, Model, ModelFailure, Sampling, Usage

CONVERSATION: contextvars.ContextVar[str | None] = contextvars.ContextVar("conversation", default=None)
"""The name of the conversation that requests belong to. Those of one name go to the same server, which has their
prefix in its cache."""


class RolloutServer(Model):
    """A model behind verl's ``client``, which sends each request to a free rollout server.

    Every call ends within ``timeout`` seconds. Errors of a server show only their type, since the message may quote the
    prompt. ``versions`` collects the versions of the weights that answered.
    """

    tokenizer: ChatTokenizer

    def __init__(self, spec: ModelSpec, client: Any, tokenizer: ChatTokenizer) -> None:
        self.client, self.tokenizer, self.timeout = client, tokenizer, spec.timeout
        self.rollout = spec.where.partition(":")[2]
        self.versions: set[int] = set()

    async def sample(
        self, prompt_ids: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        """Sample completions of a token prompt, one request for each. With SGLang they cannot be repeated."""
        fields: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        fields |= {"top_p": sampling.top_p, "top_k": sampling.top_k or -1, "logprobs": True}

        def seed_fields(k: int) -> dict[str, int]:
            """Make the fields of the request for sample k by which the server draws its random numbers."""
            if self.rollout == "sglang":  # takes no seed outside of its deterministic mode; samples differ anyway
                return {}
            if self.rollout == "vllm":  # takes only a seed, so every sample needs one of its own
                return {"seed": derive_seed(seed, k)}
            return {"seed": seed, "sample": k}  # the CPU rollout draws as the engine torch does, by both numbers

        return list(await asyncio.gather(*(self._complete(prompt_ids, fields | seed_fields(k)) for k in samples)))

    async def score(self, prompt_ids: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """Score given continuations of a token prompt, one request for each. Raises SettingsError with SGLang."""
        if self.rollout == "sglang":
            return await super().score(prompt_ids, continuations)
        fields = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}

        async def score_one(continuation: Sequence[int]) -> tuple[float, ...]:
            """The log-probabilities of one continuation's tokens."""
            output = await self._generate([*prompt_ids, *continuation], fields)
            ids = [row[0] for row in output.extra_fields["prompt_ids"]]
            logprobs = [row[0] for row in output.extra_fields["prompt_logprobs"]]
            return continuation_logprobs(continuation, len(prompt_ids), ids, logprobs)

        return list(await asyncio.gather(*map(score_one, continuations)))

    async def _complete(self, prompt_ids: Sequence[int], fields: dict[str, Any]) -> Completion:
        """Sample one completion. Raises ModelFailure where the server aborts it or gives no log-probabilities."""
        output = await self._generate(prompt_ids, fields)
        ids = tuple(output.token_ids)
        if not ids or output.stop_reason == "aborted":
            raise ModelFailure("a rollout server gave up a request")
        if len(output.log_probs or ()) != len(ids):  # which the importance correction of training needs
            raise ModelFailure("a rollout server did not give a log-probability of every token")
        usage, finish = Usage(len(prompt_ids), len(ids)), self.tokenizer.finish_reason(ids)
        return Completion(self.tokenizer.decode(ids), ids, tuple(output.log_probs), finish, usage)

    async def _generate(self, prompt_ids: Sequence[int], fields: dict[str, Any]) -> Any:
        """Send one request; returns verl's output, and adds the version of the weights that answered to ``versions``.
        Raises ModelFailure where the server fails or takes too long."""
        name = CONVERSATION.get() or uuid4().hex
        try:
            async with asyncio.timeout(self.timeout):
                output = await self.client.generate(name, prompt_ids=list(prompt_ids), sampling_params=fields)
        except TimeoutError:
            raise ModelFailure(f"a rollout server gave no answer within {self.timeout:g} seconds") from None
        except Exception as error:  # of another process, of any type
            raise ModelFailure(f"a rollout server failed ({type(error).__name__})") from None
        version = output.extra_fields.get("global_steps")
        if version is not None:
            self.versions.add(version)
        return output
