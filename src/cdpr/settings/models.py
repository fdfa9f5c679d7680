"""Settings of the language models in ``workflow/models.yaml`` (address, prices, sampling, licence), of the calls of
models that are not trained here, and of the servers that jobs start for them."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, field_validator

from .datasets import ADDRESSES
from .section import Section, key

MODELS_FILE = "workflow/models.yaml"
# Fields of a request that `extra` must not have, because other settings decide them: a second value would bypass
# recordings, or the cap on costs.
_RESERVED = frozenset({"messages", "prompt", "model", "max_tokens", "max_completion_tokens", "max_output_tokens", "n",
                       "best_of", "stream", "seed", "temperature", "top_p", "top_k"})  # fmt: skip


@dataclass(frozen=True)
class Provider:
    """A provider of models: its address ``at``, and the environment variables ``keys`` that may hold an API key for it.

    ``limit_field`` is the name of the field in a request that limits the tokens of the answer. ``takes_seeds``: its
    requests can have a seed. A model of a ``paid`` provider is called only if its entry is enabled and a key is set.
    """

    label: str
    at: str | None
    keys: tuple[str, ...]
    paid: bool = True
    limit_field: str = "max_tokens"
    takes_seeds: bool = False


# A key is sent to its own provider alone. Newer models of OpenAI refuse `max_tokens`; Google refuses unknown fields,
# such as seeds.
PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider("OpenAI", "https://api.openai.com/v1", ("OPENAI_API_KEY",), limit_field="max_completion_tokens"),
    "anthropic": Provider("Anthropic", "anthropic", ("ANTHROPIC_API_KEY",)),
    "gemini": Provider("Google", "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY",)),
    "deepseek": Provider("DeepSeek", "https://api.deepseek.com", ("DEEPSEEK_API_KEY",)),
    "own": Provider("your own", None, ("CDPR_API_KEY",), paid=False, takes_seeds=True),
}


class Machine(Section):
    """The resources of a job that starts a model server."""

    #: GPUs over which the weights of a model are spread, or each of which holds a copy of a policy; 0: the server
    #: computes on the CPU.
    gpus: NonNegativeInt = key(1)
    cpus: PositiveInt = key(4, "Cores.")
    memory_gb: PositiveInt = key(64, "Main memory.")
    hours: PositiveInt = key(12, "Longest duration.")


class Prices(Section):
    """Prices of a model in US dollars per million tokens, without discounts (batches, cached input): an upper bound."""

    input: NonNegativeFloat = Field(description="Of a question.")
    output: NonNegativeFloat = Field(description="Of an answer, its thinking included.")
    date: str = key("", "When the price was read.")
    source: str = key("", "Where.")

    def usd(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Compute the cost in US dollars of calls with these numbers of tokens in total."""
        return (prompt_tokens * self.input + completion_tokens * self.output) / 1e6


class ModelSampling(Section):
    """Sampling parameters of a model, where they differ from those of the evaluation."""

    #: For models that must not decode greedily; `evaluation`: its own (0 where it is greedy); `null`: requests hold
    #: none, for models that refuse the field.
    temperature: NonNegativeFloat | Literal["evaluation"] | None = key("evaluation")
    top_p: float | None = key(None, "Share of probability that is drawn from.", gt=0, le=1)
    top_k: PositiveInt | None = key(None, "Tokens that are drawn from.")
    max_tokens: PositiveInt | None = key(None, "Least limit of an answer with its thinking; empty: the request's.")


class ModelEntry(Section):
    """An entry of ``workflow/models.yaml``: a language model, where it is, and the settings of its requests."""

    label: str = key("", "Its name in tables.")
    id: str = key("", "Its name on the server; on the hub, with its publisher.")
    #: The service; `own`: a server of yours with the OpenAI protocol (vLLM, SGLang, llama.cpp), or weights in a folder.
    provider: Literal["openai", "anthropic", "gemini", "deepseek", "own"] = key("own")
    at: str | None = key(None, "Address (`http://HOST:PORT/v1`) or Hugging Face folder; empty: the provider's address.")
    keys: list[str] | None = key(None, "Environment variables of its key; empty: those of the provider.")
    enabled: bool = key(False, "Whether a provider may be called. It costs money: a key alone is no permission.")
    sampling: ModelSampling = Field(default_factory=ModelSampling, description="How answers are drawn.")
    extra: dict[str, Any] = key({}, "Further fields of a request; a folder understands `chat_template_kwargs`.")
    #: `fold`: the system message becomes the beginning of the first user turn, for templates without such a role.
    system: Literal["keep", "fold"] = key("keep")
    #: Regular expressions; the first that matches counts: the answer is the text behind its last match, or its group.
    #: Without a match: the whole text.
    answer: list[re.Pattern[str]] = key([])
    prices: Prices | None = Field(default=None, description="Prices of a provider.")
    licence: str = key("", "Licence of the weights, or terms of the service.")
    needs: str = key("", "Hardware that it needs, in words.")
    weights: str = key("", "Weights for the server of a job: folder, file or id on the hub; empty: `id`.")
    serve: list[str] = key([], "Flags with which vLLM serves it.")
    #: Resources of the job of its server; empty: `serving.gpus` GPUs, 4 cores, 64 GB, 12 hours.
    machine: Machine | None = Field(default=None)

    @field_validator("extra")
    @classmethod
    def _check_extra(cls, extra: dict[str, Any]) -> dict[str, Any]:
        """Return the further fields of a request unchanged. Raises ValueError for a field that other settings decide,
        such as ``temperature``."""
        if taken := sorted(_RESERVED & extra.keys()):
            remedy = "the limit of an answer and its sampling are in `sampling`"
            raise ValueError(f"{', '.join(taken)}: set elsewhere; {remedy}")
        return extra

    @property
    def where(self) -> str | None:
        """The address or folder of the model: ``at``, else its provider's address; None where there is neither."""
        return self.at or PROVIDERS[self.provider].at

    @property
    def folder(self) -> str | None:
        """The Hugging Face folder of a model that runs in the process of its evaluation; None for a model on a server
        or without ``at``."""
        return None if self.where is None or self.where.startswith(ADDRESSES) else self.where

    @property
    def key_names(self) -> tuple[str, ...]:
        """The environment variables that may hold the API key of the model."""
        return PROVIDERS[self.provider].keys if self.keys is None else tuple(self.keys)

    @property
    def paid(self) -> bool:
        """Whether the provider of the model charges for every answer."""
        return PROVIDERS[self.provider].paid

    def request_settings(self) -> dict[str, Any]:
        """Collect the settings of the entry that decide the model's answers, as a dictionary. They are part of the run
        key of an evaluation, so that a change makes it run again."""
        return self.model_dump(mode="json", include={"id", "provider", "sampling", "extra", "system", "answer"})


class Serving(Section):
    """Settings of model servers that jobs start and stop themselves."""

    program: Literal["none", "vllm", "sglang", "llama_cpp"] = key("none", "Server that jobs start; install it.")
    models: list[str] = key([], "Entries of `workflow/models.yaml` that jobs serve, unless they have an `at`.")
    policies: bool = key(False, "Whether policies are evaluated behind such a server too (`vllm` or `sglang`).")
    #: Command of the server; empty: the usual one. Placeholders: `{weights}`, `{name}`, `{host}`, `{port}`, `{gpus}`
    #: (of one copy) and `{serve}` (flags of the model's entry; for a policy its longest sequence and the number of
    #: copies).
    command: str | None = key(None)
    #: GPUs of the job: a model is spread over them, a policy has a copy on each; 0: CPU. A model's entry may set
    #: another `machine`.
    gpus: NonNegativeInt = key(1)

    @field_validator("command")
    @classmethod
    def _check_placeholders(cls, command: str | None) -> str | None:
        """Return the command unchanged. Raises ValueError for an unknown placeholder, and where ``{port}`` is
        missing."""
        try:  # fill it in with any values, as the job will with its own
            shlex.split((command or "").format(weights="", name="", host="", port=0, gpus=1, serve=""))
        except (LookupError, ValueError) as error:
            raise ValueError(f"only {{weights}}, {{name}}, {{host}}, {{port}}, {{gpus}} and {{serve}} are filled in "
                             f"({type(error).__name__}: {error})") from None  # fmt: skip
        if command is not None and "{port}" not in command:
            raise ValueError("name {port}, at which the job expects the server")
        return command


class Calls(Section):
    """Settings of the calls of models that are not trained here: whether answers are recorded, and what the calls may
    cost."""

    #: `record`: answers are recorded under `state`, and no question is sent twice; `replay`: only recorded answers;
    #: `live`: nothing is recorded.
    mode: Literal["record", "replay", "live"] = key("record")
    #: Most US dollars that all calls may cost, those of earlier runs in `paths.state` included (`cdpr spend`); empty:
    #: no limit. No call is sent that might exceed it.
    budget_usd: float | None = key(None, ge=0)
