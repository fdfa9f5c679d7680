"""Chat templates of Hugging Face models: foreign code, which runs in a sandbox, with limits of time and size."""

import functools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..settings import SettingsError

Messages = Sequence[Mapping[str, str]]

TODAY = date(2026, 1, 1)  # the date that templates see, so that prompts are the same on every day
_LONGEST_TEMPLATE = 1 << 18  # characters; real ones have up to 20,000
# Limits of one rendering. It usually takes a millisecond.
_SECONDS = 5
_BYTES = 1 << 31
_CHARACTERS = 1 << 20  # of the text, beyond 16 for each character of the conversation
# A template that has only these nodes, and no loop in a loop, takes time and memory in proportion to the conversation.
_PLAIN = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Compare, nodes.Operand, nodes.Getitem,
    nodes.Getattr, nodes.Name, nodes.Const, nodes.And, nodes.Or, nodes.Not, nodes.Test, nodes.Add, nodes.Concat,
)  # fmt: skip


def compile_template(source: str, arguments: Mapping[str, Any], folder: Path) -> Template:
    """Compile the source of a chat template, which gets ``arguments`` beside the messages. Raises SettingsError, naming
    the model's ``folder``, for a source that is too long, does not compile, or exceeds the limits."""
    _check_limits(source, json.dumps(arguments), folder)
    return _environment().from_string(source)


def render(template: Template, messages: Messages, arguments: Mapping[str, Any], folder: Path) -> str:
    """Render a conversation and the start of the next assistant turn as text. Raises SettingsError, naming the folder,
    where the template fails or exceeds the limits."""
    turns = [dict(message) for message in messages]
    most = _CHARACTERS + 16 * sum(len(text) for turn in turns for text in turn.values())
    deadline, length, parts = time.monotonic() + _SECONDS, 0, []
    try:
        for part in template.generate(messages=turns, add_generation_prompt=True, **arguments):
            parts.append(part)
            length += len(part)
            if length > most:
                raise _LimitError(f"it renders more than {most:,} characters")
            if time.monotonic() > deadline:
                raise _LimitError(f"it takes more than {_SECONDS} seconds")
    except Exception as error:  # foreign code may raise anything
        kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__} "
        raise SettingsError(f"{folder}: the chat template refuses the conversation: {kind}{error}") from error
    return "".join(parts)


class _LimitError(TemplateError):
    """A rendering has too many characters or takes too long."""


class _Generation(Extension):
    """Renders ``{% generation %}`` blocks, which mark assistant turns for training, as ordinary text."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares a set)

    def parse(self, parser: Parser) -> list[Node]:
        """Parse a block after its tag; returns the nodes of its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    """Make the environment that transformers gives to chat templates, in a sandbox."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
    environment.globals |= {"raise_exception": _refuse_conversation, "strftime_now": TODAY.strftime}
    return environment


def _refuse_conversation(message: str) -> None:
    """Raise TemplateError with this message: the function ``raise_exception`` of chat templates."""
    raise TemplateError(message)


@functools.lru_cache(maxsize=8)
def _check_limits(source: str, arguments: str, folder: Path) -> None:
    """Check the source of a template; ``arguments`` are JSON. A template that may need much time or memory (a loop in a
    loop, arithmetic) renders short and long conversations in a process of its own, which the kernel ends beyond the
    limits. Raises SettingsError as :func:`compile_template`."""
    if len(source) > _LONGEST_TEMPLATE:
        raise SettingsError(f"{folder}: the chat template has {len(source):,} characters, over {_LONGEST_TEMPLATE:,}")
    try:
        tree = _environment().parse(source)
    except (TemplateError, RecursionError) as error:
        raise SettingsError(f"{folder}: the chat template cannot be compiled: {error}") from error
    nested = any(list(loop.find_all(nodes.For)) for loop in tree.find_all(nodes.For))
    if not nested and all(isinstance(node, _PLAIN) for node in tree.find_all(nodes.Node)):
        return
    command = [sys.executable, "-I", "-c", f"import {__name__} as module; module.render_within_limits()"]
    request = json.dumps({"source": source, "arguments": json.loads(arguments), "folder": str(folder)})
    process = subprocess.run(command, input=request, text=True, capture_output=True, timeout=600, check=False)
    if process.returncode:
        raise SettingsError(
            f"{folder}: the chat template takes more than {_SECONDS} seconds or {_BYTES >> 30} GiB for a conversation, "
            f"or renders far more text than it is given (status {process.returncode}); use another model, or put a "
            "template that you have read into chat_template.jinja"
        )


def render_within_limits() -> None:
    """Render conversations with the template on standard input: the process that :func:`_check_limits` starts. It ends
    with status 0 only within the limits: beyond the seconds of RLIMIT_CPU the kernel ends it, beyond the bytes of
    RLIMIT_AS it gets a MemoryError."""
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    template = _environment().from_string(request["source"])  # within the limits: it evaluates constant expressions
    for turns in (1, 3, 41):
        messages = [{"role": ("user", "assistant")[k % 2], "content": "text of a turn " * 100} for k in range(turns)]
        for opening in ([], [{"role": "system", "content": "hello"}]):
            try:
                render(template, [*opening, *messages], request["arguments"], Path(request["folder"]))
            except SettingsError as error:
                if isinstance(error.__cause__, (_LimitError, MemoryError)):
                    sys.exit(str(error))  # other errors refuse a role, or the order of turns
