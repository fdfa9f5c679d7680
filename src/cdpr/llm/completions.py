"""Replies to token prompts from a server: the frozen policy of continuations, wherever it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import httpx

from ..seeding import derive_seed
from .client import ServerModel
from .types import Completion, ModelFailure, Sampling

if TYPE_CHECKING:
    from ..settings.data import Governance
    from .tokenizer import ChatTokenizer


class TokenServer(ServerModel):
    """A :class:`~cdpr.llm.types.ChatModel` behind ``url``: the OpenAI protocol's ``completions`` with prompts of token
    ids and a seed, as vLLM serves it. ``credentialed`` says whether the prompts hold text under a data use agreement.

    The server is asked for token ids (``return_token_ids``, vLLM 0.10.2 and later); where it gives none, the text is
    tokenised, which may split it otherwise than it was sampled. Log-probabilities are not asked for: nobody trains on
    these replies. ``at_once`` requests are open at a time; time-outs and tries are those of :class:`ServerModel`.
    """

    def __init__(
        self, url: str, name: str, governance: Governance, tokenizer: ChatTokenizer, *, credentialed: bool,
        at_once: int = 256, timeout: float = 600.0, retries: int = 5, pause: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(url, name, governance, timeout=timeout, retries=retries, pause=pause)
        self.tokenizer, self.credentialed, self.at_once = tokenizer, credentialed, at_once
        self.may_send(credentialed)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def sample(
        self, prompt: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        """See :class:`~cdpr.llm.types.ChatModel`. Raises ModelFailure."""
        return list(await asyncio.gather(*(self._one(prompt, sampling, derive_seed(seed, k)) for k in samples)))

    async def _one(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> Completion:
        self.may_send(self.credentialed)
        body = {
            "model": self.name, "prompt": list(prompt), "max_tokens": sampling.max_tokens, "seed": seed,
            "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k or -1,
            "return_token_ids": True,
        }  # fmt: skip
        client, gate = self._open()
        async with gate:
            response = await self._post(client, "completions", body)
        text, ids = self._choice(response, "text"), self._choice(response, "token_ids")
        if not isinstance(text, str):
            raise ModelFailure(f"{self._called}: what came back is no completion")
        stopped = self._choice(response, "finish_reason") == "stop"
        if ids is None:
            ids = self.tokenizer.encode(text) + [self.tokenizer.end_of_turn] * stopped
        elif not isinstance(ids, list) or not all(isinstance(i, int) for i in ids):
            raise ModelFailure(f"{self._called}: the token ids of the completion are no numbers")
        else:
            text = self.tokenizer.decode(ids)
        return Completion(text, tuple(ids), (), "stop" if stopped else "length")

    def _open(self) -> tuple[httpx.AsyncClient, asyncio.Semaphore]:
        """One connection pool for all requests of an event loop: a pool for each would cost more than the request."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._pool = self._connection(self.credentialed), asyncio.Semaphore(self.at_once)
        return self._pool
