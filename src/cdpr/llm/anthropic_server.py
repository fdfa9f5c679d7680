"""Anthropic's models, through its own API and package (``pip install anthropic``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2

from .server import ServedModel
from .types import Completion, Messages, Sampling


class AnthropicServer(ServedModel):
    """Answers messages. The API takes no seed: answers drawn at a temperature above 0 cannot be repeated."""

    package = "anthropic"
    key_names = ("CDPR_API_KEY", "ANTHROPIC_API_KEY")

    def client(self, connection: httpx2.AsyncClient) -> Any:
        """See :class:`~cdpr.llm.server.ServedModel`."""
        return self._sdk.AsyncAnthropic(
            api_key="unused", base_url=self.address, http_client=connection, max_retries=0, timeout=self.spec.timeout
        )

    def authorise(self, request: httpx2.Request, key: str | None) -> None:
        """As the API's own header."""
        for name in ("Authorization", "X-Api-Key"):
            request.headers.pop(name, None)
        if key:
            request.headers["X-Api-Key"] = key

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """See :class:`~cdpr.llm.types.Model`."""
        told: dict[str, Any] = {"temperature": sampling.temperature}
        told |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
        told |= {"top_k": sampling.top_k} if sampling.top_k else {}
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        told |= {"system": system} if system else {}
        turns = [dict(m) for m in messages if m["role"] != "system"]
        return await self._all(
            samples,
            lambda client, k: client.messages.create(
                model=self.spec.name, messages=turns, max_tokens=sampling.max_tokens, **told
            ),
            _answer,
        )


def _answer(answer: Any) -> Completion:
    text = "".join(block.text for block in answer.content if block.type == "text")
    return Completion(text, (), (), "length" if answer.stop_reason == "max_tokens" else "stop")
