"""Chat tokenizer of a Hugging Face folder, without importing transformers.

A conversation is built from tokens: :meth:`ChatTokenizer.opening` gives those of the first prompt,
:meth:`ChatTokenizer.followup` those between two assistant turns. Sampled tokens are never tokenised again.
"""

import functools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from ..settings import SettingsError
from .model_folder import read_json

TODAY = date(2026, 1, 1)
_MARKER = "QZJXKVW"  # rendered as an assistant turn; the template is cut behind it

# Limits of a chat template, which is foreign code: its characters (real ones have up to 20,000); of one rendering the
# seconds (a millisecond is usual), the bytes of memory, and the characters beyond 16 for each of the conversation.
_LONGEST_TEMPLATE, _SECONDS, _BYTES, _LONGEST_FRAME = 1 << 18, 5, 1 << 31, 1 << 20
# A template of these nodes alone, without nested loops, takes time and memory in proportion to the conversation.
_PLAIN = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Compare, nodes.Operand, nodes.Getitem,
    nodes.Getattr, nodes.Name, nodes.Const, nodes.And, nodes.Or, nodes.Not, nodes.Test, nodes.Add, nodes.Concat,
)  # fmt: skip


class ChatTokenizer:
    """Tokenizer and chat template of a Hugging Face ``folder``. ``template`` has further arguments of the template,
    such as ``enable_thinking``. Templates see the date :data:`TODAY`, so that prompts are the same on every day.

    Raises :class:`SettingsError` for a folder without ``tokenizer.json`` or chat template, and for a template that
    does not show assistant turns or exceeds its limits.
    """

    def __init__(self, folder: str | Path, template: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        path = self.folder / "tokenizer.json"
        if not path.is_file():
            raise SettingsError(f"{path} is missing: a policy folder needs tokenizer.json, config.json and weights")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing closer
            raise SettingsError(f"{path}: no tokenizer ({error}); download the model again") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.largest_id: int = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        self._config = read_json(self.folder / "tokenizer_config.json")
        source = self._find_template()
        names = [f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
        stored = {name: self._config[name] for name in names if self._config.get(name) is not None}
        # A special token is stored as its text or as a dictionary with ``content``.
        specials = {name: t.get("content") if isinstance(t, dict) else t for name, t in stored.items()}
        self._given = {"tools": None, "documents": None} | specials | dict(template or {})  # as transformers does
        _try_out(source, json.dumps(self._given), self.folder)
        self._template = _compile(source)
        behind = self._behind_assistant("hello")
        ends = {token.content: i for i, token in self._tokenizer.get_added_tokens_decoder().items()}
        # One token of its own; of several that begin alike the longest.
        self._end_text = max((text for text in ends if behind.startswith(text)), key=len, default="")
        if not self._end_text:
            raise SettingsError(
                f"{self.folder}: the chat template closes an assistant turn with {behind[:20]!r}, which is no token of "
                "its own: a reply would end at its first character; use a tokenizer that has this token"
            )
        self.end_of_turn: int = ends[self._end_text]
        eos = [self.end_of_turn, self._tokenizer.token_to_id(specials.get("eos_token", ""))]
        for name in ("generation_config.json", "config.json"):
            ids = read_json(self.folder / name).get("eos_token_id")
            eos += ids if isinstance(ids, list) else [ids]
        self.eos_ids = frozenset(i for i in eos if i is not None)

    def encode(self, text: str) -> list[int]:
        """Encode a text as token ids. Control tokens that are written in it are recognised, none is added."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids to text, without special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def decode_batch(self, sequences: Iterable[Sequence[int]]) -> list[str]:
        """Decode many sequences of token ids, each as :meth:`decode` does."""
        return self._tokenizer.decode_batch([list(ids) for ids in sequences], skip_special_tokens=True)

    def finish_reason(self, ids: Sequence[int]) -> Literal["stop", "length"]:
        """Why a sampled reply ended: ``stop`` at an end token, else ``length``."""
        return "stop" if ids[-1] in self.eos_ids else "length"

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Render a conversation and the start of the next assistant turn as text. Messages have ``role`` (system, user,
        assistant) and ``content``. Raises SettingsError where the template fails or exceeds its limits."""
        return _render(self._template, messages, self._given, self.folder)

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The token ids of the first prompt: ``messages``, and the start of an assistant turn."""
        return self.encode(self.render(messages))

    def followup(self, user_text: str) -> list[int]:
        """The token ids between two assistant turns: behind the end-of-turn token of the first, the user's message
        ``user_text``, and the start of the second.

        A turn that was cut by ``max_tokens`` lacks its end-of-turn token: append :attr:`end_of_turn` first.
        """
        return self.encode(self._behind_assistant(user_text)[len(self._end_text) :])

    def _behind_assistant(self, user_text: str) -> str:
        """Render what follows the content of an assistant turn: its end, the user's message ``user_text``, and the
        start of the next assistant turn. Raises SettingsError where the template does not show assistant turns."""
        turns = (("user", "hello"), ("assistant", _MARKER), ("user", user_text))
        rendered = self.render([{"role": role, "content": content} for role, content in turns])
        _, marker, behind = rendered.partition(_MARKER)
        if not marker:
            raise SettingsError(f"{self.folder}: the chat template does not show the text of an assistant turn")
        return behind

    def _find_template(self) -> str:
        """Find the chat template of the folder; returns its source. Raises SettingsError where there is none."""
        path = self.folder / "chat_template.jinja"
        if path.is_file():
            return path.read_text(encoding="utf-8")
        template = self._config.get("chat_template")
        if isinstance(template, list):  # several named templates: the one called default
            template = {entry["name"]: entry["template"] for entry in template}.get("default")
        if not template:
            raise SettingsError(f"{self.folder} has no chat template: add chat_template.jinja or use an instruct model")
        return template


def _raise_exception(message: str) -> None:
    """Refuse a conversation with this message: the function ``raise_exception`` of chat templates."""
    raise TemplateError(message)


class _LimitError(TemplateError):
    """A rendering has too many characters or takes too long."""


class _Generation(Extension):
    """Renders ``{% generation %}`` blocks, which mark assistant turns for training, as ordinary text."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares a set)

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _render(template: Template, messages: Sequence[Mapping[str, str]], values: Mapping[str, Any], folder: Path) -> str:
    """Render a conversation by a template; ``values`` are the template's other arguments. Raises SettingsError, naming
    the folder, where the template fails or exceeds its limits."""
    turns = [dict(message) for message in messages]
    longest = _LONGEST_FRAME + 16 * sum(len(text) for turn in turns for text in turn.values())
    try:
        return "".join(_bounded(template.generate(messages=turns, add_generation_prompt=True, **values), longest))
    except Exception as error:  # foreign code may raise anything
        why = f"{type(error).__name__} " * (not isinstance(error, TemplateError)) + str(error)
        raise SettingsError(f"{folder}: the chat template refuses the conversation: {why}") from error


def _bounded(parts: Iterable[str], longest: int) -> Iterator[str]:
    """Yield the same parts. Raises _LimitError once they have more than ``longest`` characters or take too long."""
    deadline, length = time.monotonic() + _SECONDS, 0
    for part in parts:
        length += len(part)
        if length > longest:
            raise _LimitError(f"it renders more than {longest:,} characters")
        if time.monotonic() > deadline:
            raise _LimitError(f"it takes more than {_SECONDS} seconds")
        yield part


@functools.lru_cache(maxsize=8)
def _try_out(source: str, values: str, folder: Path) -> None:
    """Check a chat template, which is foreign code: one that may need much time or memory (nested loops, arithmetic)
    renders short and long conversations in a process with limits. Raises SettingsError where it is too long, does not
    compile, or exceeds the limits."""
    if len(source) > _LONGEST_TEMPLATE:
        raise SettingsError(f"{folder}: the chat template has {len(source):,} characters, over {_LONGEST_TEMPLATE:,}")
    try:
        tree = _ENVIRONMENT.parse(source)
    except (TemplateError, RecursionError) as error:
        raise SettingsError(f"{folder}: the chat template cannot be compiled: {error}") from error
    loops = list(tree.find_all(nodes.For))
    nested = any(isinstance(node, nodes.For) for loop in loops for node in loop.find_all(nodes.For))
    if not nested and all(isinstance(node, _PLAIN) for node in tree.find_all(nodes.Node)):
        return
    command = [sys.executable, "-I", "-c", f"import {__name__} as module; module.render_within_limits()"]
    template = json.dumps({"source": source, "values": json.loads(values), "folder": str(folder)})
    process = subprocess.run(command, input=template, text=True, capture_output=True, timeout=600, check=False)
    if process.returncode:
        raise SettingsError(
            f"{folder}: the chat template takes more than {_SECONDS} seconds or {_BYTES >> 30} GiB for a conversation, "
            f"or renders far more text than it is given (status {process.returncode}); use another model, or put a "
            "template that you have read into chat_template.jinja"
        )


def render_within_limits() -> None:
    """Render conversations with the template on standard input, as the process that :func:`_try_out` starts. It ends
    with status 0 only within the limits: beyond the seconds of RLIMIT_CPU the kernel ends it, beyond the bytes of
    RLIMIT_AS it gets a MemoryError."""
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    template = _compile(request["source"])  # within the limits too: it evaluates constant expressions
    for turns in (1, 3, 41):
        messages = [{"role": ("user", "assistant")[k % 2], "content": "text of a turn " * 100} for k in range(turns)]
        for opening in ([], [{"role": "system", "content": "hello"}]):
            try:
                _render(template, opening + messages, request["values"], Path(request["folder"]))
            except SettingsError as error:
                if isinstance(error.__cause__, (_LimitError, MemoryError)):
                    sys.exit(str(error))  # other errors refuse a role, or the order of turns


@functools.lru_cache(maxsize=8)
def _compile(template: str) -> Template:
    """Compile the source of a chat template."""
    return _ENVIRONMENT.from_string(template)


def _environment() -> ImmutableSandboxedEnvironment:
    """Make the sandboxed jinja2 environment with the filters and functions that chat templates use."""
    # The same switches as Hugging Face uses for chat templates; sandboxed because the template is foreign code.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = TODAY.strftime
    return environment


_ENVIRONMENT = _environment()
