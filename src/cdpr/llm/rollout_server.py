"""The rollout servers of verl as a model. verl itself is not imported here: the caller passes verl's client."""

import asyncio
import contextvars
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from ..seeding import derive_seed
from .tokenizer import ChatTokenizer
from .types import Completion, Ids, Model, ModelFailure, Sampling, Usage

CONVERSATION: contextvars.ContextVar[str | None] = contextvars.ContextVar("conversation", default=None)
"""The name of the conversation that requests belong to. Those of one name go to the same server, which has their
prefix in its cache."""

_TIMEOUT = 600.0  # seconds for one reply


class RolloutServer(Model):
    """The policy in training behind verl's ``client``, which sends each request to a free rollout server.

    The servers get credentialed text: they count as this machine, because they are on the machines of the run. A call
    that takes longer than ten minutes fails. The error of a server shows only its type, since its message may quote the
    prompt. ``versions`` collects the versions of the weights (training steps) that answered.
    """

    tokenizer: ChatTokenizer

    def __init__(self, client: Any, tokenizer: ChatTokenizer, rollout: str) -> None:
        """Make the model of verl's ``client``. ``rollout`` is the kind of rollout server: ``vllm``, ``sglang`` or
        ``cpu``."""
        self.client, self.tokenizer, self.rollout = client, tokenizer, rollout
        self.versions: set[int] = set()

    async def sample(self, prompt_ids: Ids, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample one completion of the prompt ``prompt_ids`` (token ids) for each index in ``samples``, with one
        request each. The seed makes them repeatable, except with SGLang. Raises ModelFailure where a server fails."""
        fields: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        fields |= {"top_p": sampling.top_p, "top_k": sampling.top_k or -1, "logprobs": True}  # -1: no limit

        def seed_fields(sample: int) -> dict[str, int]:
            """Make the fields by which the server draws random numbers for the completion with the index ``sample``."""
            if self.rollout == "sglang":  # takes no seed outside of its deterministic mode; samples differ anyway
                return {}
            if self.rollout == "vllm":  # takes only a seed, so every sample needs one of its own
                return {"seed": derive_seed(seed, sample)}
            return {"seed": seed, "sample": sample}  # the CPU rollout draws as the engine torch does, by both numbers

        return list(await asyncio.gather(*(self._complete(prompt_ids, fields | seed_fields(k)) for k in samples)))

    async def score_tokens(self, ids: list[int]) -> tuple[Ids, Sequence[float]]:
        """Get the log-probabilities of the tokens ``ids`` but the first, as :meth:`~.types.Model.score_tokens`. Raises
        SettingsError with SGLang, which does not report them."""
        if self.rollout == "sglang":
            return await super().score_tokens(ids)
        # The server must sample a token (max_tokens), which is not used. 0 (prompt_logprobs): it adds no likelier
        # tokens to those of the prompt.
        output = await self._generate(ids, {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0})
        # Each token has a row, whose first and only entry is the token itself.
        scored, logprobs = output.extra_fields["prompt_ids"], output.extra_fields["prompt_logprobs"]
        return [row[0] for row in scored], [row[0] for row in logprobs]

    async def _complete(self, prompt_ids: Sequence[int], fields: dict[str, Any]) -> Completion:
        """Send a request for one completion, with verl's sampling parameters ``fields``. Raises ModelFailure where the
        server aborts it or does not give the log-probability of every token."""
        output = await self._generate(prompt_ids, fields)
        ids = tuple(output.token_ids)
        if not ids or output.stop_reason == "aborted":
            raise ModelFailure("a rollout server gave up a request")
        if len(output.log_probs or ()) != len(ids):  # the importance correction of training needs all of them
            raise ModelFailure("a rollout server did not give a log-probability of every token")
        usage, finish = Usage(len(prompt_ids), len(ids)), self.tokenizer.finish_reason(ids)
        return Completion(self.tokenizer.decode(ids), ids, tuple(output.log_probs), finish, usage)

    async def _generate(self, prompt_ids: Sequence[int], fields: dict[str, Any]) -> Any:
        """Send a request with verl's sampling parameters ``fields``; returns verl's output, and adds the version of the
        weights that answered to ``versions``. Raises ModelFailure where the server fails or takes too long."""
        name = CONVERSATION.get() or uuid4().hex  # a new name for a request that belongs to no conversation
        try:
            async with asyncio.timeout(_TIMEOUT):
                output = await self.client.generate(name, prompt_ids=list(prompt_ids), sampling_params=fields)
        except TimeoutError:
            raise ModelFailure(f"a rollout server gave no answer within {_TIMEOUT:g} seconds") from None
        except Exception as error:  # of another process, of any type
            raise ModelFailure(f"a rollout server failed ({type(error).__name__})") from None
        version = output.extra_fields.get("global_steps")
        if version is not None:
            self.versions.add(version)
        return output
