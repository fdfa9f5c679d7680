"""A model behind a server that speaks the OpenAI protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2

from ..seeding import derive_seed
from ..settings.models import PROVIDERS
from .guard import unix_socket
from .server import ServedModel
from .spending import worst_case
from .types import UNREAD, Completion, Messages, ModelFailure, Sampling, Usage


class OpenAIServer(ServedModel):
    """Answers messages; with a ``tokenizer`` also prompts of token ids, as vLLM serves them.

    For those the server is asked for token ids (``return_token_ids``, vLLM 0.10.2 and later); where it gives none, the
    text is tokenised, which may split it otherwise than it was sampled. Log-probabilities are not asked for: nobody
    trains on these replies.
    """

    package = "openai"
    key_names = ("CDPR_API_KEY", "OPENAI_API_KEY")
    takes_tokens = True

    def client(self, connection: httpx2.AsyncClient) -> Any:
        url = "http://localhost/v1" if unix_socket(self.address) else self.address
        return self._sdk.AsyncOpenAI(
            api_key="unused", base_url=url, http_client=connection, max_retries=0, timeout=None
        )

    async def sample(
        self, prompt_ids: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        if self.tokenizer is None:
            return await super().sample(prompt_ids, samples, sampling, seed)
        # Below `extra_body`, where the package sends it as it is: of `prompt` it would look at every token.
        extra = {"prompt": list(prompt_ids), "top_k": sampling.top_k or -1, "return_token_ids": True}
        drawn = await self._all(
            samples,
            lambda client, k: client.completions.create(
                model=self.spec.name, prompt="", max_tokens=sampling.max_tokens,
                temperature=sampling.temperature, top_p=sampling.top_p, seed=derive_seed(seed, k), extra_body=extra,
            ),
            self._continuation, (len(prompt_ids), sampling.max_tokens),
        )  # fmt: skip
        if UNREAD in drawn:  # no draw of the policy
            raise ModelFailure(f"{self._called}: the prompt exceeds what the server reads")
        return drawn

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        asked, seeded = self._asked(sampling)
        return await self._all(
            samples,
            lambda client, k: client.chat.completions.create(
                model=self.spec.name, messages=[dict(m) for m in messages], **asked,
                **({"seed": derive_seed(seed, k)} if seeded else {}),
            ),
            _answer, (worst_case(messages), sampling.max_tokens),
        )  # fmt: skip

    def _asked(self, sampling: Sampling) -> tuple[dict[str, Any], bool]:
        """The fields of a request beside its messages, in the provider's words, and whether it may name a seed."""
        entry, extra = self.spec.entry, {"top_k": sampling.top_k} if sampling.top_k else {}
        provider = PROVIDERS[entry.provider if entry else "own"]
        extra |= entry.extra if entry else {}
        asked = {provider.limit: sampling.max_tokens, "temperature": sampling.temperature}
        asked |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
        return asked | ({"extra_body": extra} if extra else {}), provider.seeds

    def _continuation(self, answer: Any) -> Completion:
        choice, tokenizer = answer.choices[0], self.tokenizer
        assert tokenizer is not None
        ids, stopped = getattr(choice, "token_ids", None), choice.finish_reason == "stop"
        if ids is None:
            text = _text(choice.text)
            ids = tokenizer.encode(text) + [tokenizer.end_of_turn] * stopped
        elif isinstance(ids, list) and all(isinstance(i, int) for i in ids):
            text = tokenizer.decode(ids)
        else:
            raise TypeError("token ids are no numbers")
        return Completion(text, tuple(ids), (), "stop" if stopped else "length", _usage(answer))


def _answer(answer: Any) -> Completion:
    choice = answer.choices[0]
    said, refused = choice.message.content, getattr(choice.message, "refusal", None)
    told = _usage(answer), getattr(answer, "model", None)
    if refused or choice.finish_reason == "content_filter":
        return Completion(_text(said or refused or ""), (), (), "refusal", *told)
    if said is None and choice.finish_reason in ("stop", "length"):  # thoughts that the server keeps apart were all
        said = ""
    return Completion(_text(said), (), (), "length" if choice.finish_reason == "length" else "stop", *told)


def _usage(answer: Any) -> Usage | None:
    """What was counted. Google leaves thoughts, which it charges, out of the completion's tokens, not of the sum."""
    told = getattr(answer, "usage", None)
    if told is None:
        return None
    prompt, completion = int(told.prompt_tokens), int(told.completion_tokens)
    return Usage(prompt, max(completion, int(getattr(told, "total_tokens", None) or 0) - prompt))


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError("the answer is no text")
    return found
