"""Anthropic's models, through its own API and package (``pip install anthropic``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import httpx2

from .server import ServedModel
from .spending import worst_case
from .types import Completion, Messages, Sampling, Usage

_FINISH: dict[str | None, Literal["stop", "length", "refusal"]] = {"max_tokens": "length", "refusal": "refusal"}


class AnthropicServer(ServedModel):
    """Answers messages. The API takes neither temperature nor seed (since its version of 2026-10-21): of ``sampling``
    only ``max_tokens`` counts, and answers cannot be repeated."""

    package = "anthropic"
    key_names = ("CDPR_API_KEY", "ANTHROPIC_API_KEY")

    def client(self, connection: httpx2.AsyncClient) -> Any:
        return self._sdk.AsyncAnthropic(
            api_key="unused",
            base_url=self.address,
            http_client=connection,
            max_retries=0,
            timeout=self.spec.timeout,
            open_telemetry=False,  # nobody else is told of a request
        )

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        told: dict[str, Any] = {"system": system} if system else {}
        told |= {"extra_body": self.spec.entry.extra} if self.spec.entry and self.spec.entry.extra else {}
        turns = [dict(m) for m in messages if m["role"] != "system"]
        return await self._all(
            samples,
            lambda client, k: client.messages.create(
                model=self.spec.name, messages=turns, max_tokens=sampling.max_tokens, **told
            ),
            _answer,
            (worst_case(messages), sampling.max_tokens),
        )


def _answer(answer: Any) -> Completion:
    text = "".join(block.text for block in answer.content if block.type == "text")
    told = getattr(answer, "usage", None)
    usage = Usage(told.input_tokens, told.output_tokens) if told is not None else None
    return Completion(text, (), (), _FINISH.get(answer.stop_reason, "stop"), usage, getattr(answer, "model", None))
