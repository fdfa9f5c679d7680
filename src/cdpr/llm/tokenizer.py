"""Chat tokenizer of a Hugging Face folder, without importing transformers.

A conversation is built token-in token-out: :meth:`ChatTokenizer.opening` renders the first prompt,
:meth:`ChatTokenizer.followup` the tokens between two assistant turns; sampled tokens are never tokenised again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from .model_folder import read_json

TODAY = date(2026, 1, 1)
_MARKER = "QZJXKVW"  # rendered as an assistant turn; the template is cut behind it


class ChatTokenizer:
    """Tokenizer and chat template of ``folder``; ``template`` holds further arguments of the template, such as
    ``enable_thinking``. The date of templates is :data:`TODAY`, so that prompts are the same on every day.

    Raises :class:`FileNotFoundError` when ``tokenizer.json`` is absent and :class:`ValueError` when the folder
    has no chat template or one in which an assistant turn cannot be located.
    """

    def __init__(self, folder: str | Path, template: Mapping[str, Any] | None = None) -> None:
        self.folder, self._arguments = Path(folder), dict(template or {})
        path = self.folder / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: a policy folder needs tokenizer.json, config.json and weights")
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.largest_id: int = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        self._config = read_json(self.folder / "tokenizer_config.json")
        self._template = _compile(self._find_template(), self.folder)
        names = [f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
        stored = {name: self._config[name] for name in names if self._config.get(name) is not None}
        # A special token is stored as its text or as a dictionary with ``content``.
        self._specials = {name: t.get("content") if isinstance(t, dict) else t for name, t in stored.items()}
        behind = self._behind_assistant("hello")
        ends = {token.content: i for i, token in self._tokenizer.get_added_tokens_decoder().items()}
        # One token of its own; of several that begin alike the longest.
        self._end_text = max((text for text in ends if behind.startswith(text)), key=len, default="")
        if not self._end_text:
            raise ValueError(
                f"{self.folder}: the chat template closes an assistant turn with {behind[:20]!r}, which is no token of "
                "its own: a reply would end at its first character; use a tokenizer that has this token"
            )
        self.end_of_turn: int = ends[self._end_text]
        eos = [self.end_of_turn, self._tokenizer.token_to_id(self._specials.get("eos_token", ""))]
        for name in ("generation_config.json", "config.json"):
            stored = read_json(self.folder / name).get("eos_token_id")
            eos += stored if isinstance(stored, list) else [stored]
        self.eos_ids = frozenset(i for i in eos if i is not None)

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``; control tokens written in it are recognised, none is added."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids`` without special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def decode_batch(self, sequences: Iterable[Sequence[int]]) -> list[str]:
        """:meth:`decode` of many sequences."""
        return self._tokenizer.decode_batch([list(ids) for ids in sequences], skip_special_tokens=True)

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The conversation (``role``: system, user, assistant; ``content``) and the start of an assistant turn as text.
        Raises ValueError when the template refuses it."""
        try:
            turns = [dict(message) for message in messages]
            given = {"tools": None, "documents": None} | self._specials | self._arguments  # as transformers does
            return self._template.render(messages=turns, add_generation_prompt=True, **given)
        except TemplateError as error:
            raise ValueError(f"{self.folder}: the chat template refuses the conversation: {error}") from error

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of the first prompt: ``messages`` and the start of an assistant turn."""
        return self.encode(self.render(messages))

    def followup(self, user_text: str) -> list[int]:
        """Token ids between the end-of-turn token of an assistant turn and the start of the next one.

        A turn cut by ``max_tokens`` lacks its end-of-turn token: append :attr:`end_of_turn` first.
        """
        return self.encode(self._behind_assistant(user_text)[len(self._end_text) :])

    def _behind_assistant(self, user_text: str) -> str:
        """The rendering of ``user_text`` from the end of the assistant turn before it."""
        turns = (("user", "hello"), ("assistant", _MARKER), ("user", user_text))
        rendered = self.render([{"role": role, "content": content} for role, content in turns])
        _, marker, behind = rendered.partition(_MARKER)
        if not marker:
            raise ValueError(f"{self.folder}: the chat template does not show the text of an assistant turn")
        return behind

    def _find_template(self) -> str:
        path = self.folder / "chat_template.jinja"
        if path.is_file():
            return path.read_text(encoding="utf-8")
        template = self._config.get("chat_template")
        if isinstance(template, list):  # several named templates: the one called default
            template = {entry["name"]: entry["template"] for entry in template}.get("default")
        if not template:
            raise ValueError(f"{self.folder} has no chat template: add chat_template.jinja or use an instruct model")
        return template


def _refuse(message: str) -> None:
    raise TemplateError(message)


class _Generation(Extension):
    """``{% generation %}`` marks what an assistant says; here it is shown as it is."""

    tags = frozenset({"generation"})

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, ensure_ascii: bool = False, **form: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **form)


@lru_cache(maxsize=8)
def _compile(template: str, folder: Path):
    # The same switches as Hugging Face uses for chat templates; sandboxed because the template is foreign code.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = TODAY.strftime
    try:
        return environment.from_string(template)
    except TemplateError as error:
        raise ValueError(f"{folder}: the chat template cannot be compiled: {error}") from error
