"""Renders the chat templates of Hugging Face models. A template is code of whoever made the model, so it runs in a
sandbox with limits of time and size."""

import functools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..settings import SettingsError, refuse
from .types import Messages

TODAY = date(2026, 1, 1)  # the date that templates see, so that prompts are the same on every day
_LONGEST_TEMPLATE = 1 << 18  # characters; real ones have up to 20,000
# Limits of one rendering, which usually takes a millisecond.
_SECONDS = 5
_BYTES = 1 << 31  # of address space
_CHARACTERS = 1 << 20  # of the rendered text, in addition to 16 for each character of the conversation
# A template that has only these nodes, and no loop in a loop, takes time and memory in proportion to the conversation.
_PLAIN_NODES = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Compare, nodes.Operand, nodes.Getitem,
    nodes.Getattr, nodes.Name, nodes.Const, nodes.And, nodes.Or, nodes.Not, nodes.Test, nodes.Add, nodes.Concat,
)  # fmt: skip


def compile_template(source: str, arguments: Mapping[str, Any], folder: Path) -> Template:
    """Compile the source text of a chat template, which gets the messages and ``arguments`` when it is rendered. Raises
    SettingsError, naming the model's ``folder``, for a source that is too long, does not compile, or needs too much
    time or memory."""
    _check_limits(source, json.dumps(arguments), folder)
    return _environment().from_string(source)


def render(template: Template, messages: Messages, arguments: Mapping[str, Any], folder: Path) -> str:
    """Render a conversation, and the start of the assistant's reply to it, as the text of a prompt. Raises
    SettingsError, naming the model's ``folder``, where the template fails or exceeds the limits of time and size."""
    turns = [dict(message) for message in messages]
    most_characters = _CHARACTERS + 16 * sum(len(text) for turn in turns for text in turn.values())
    deadline, length, parts = time.monotonic() + _SECONDS, 0, []
    try:  # part by part, so that a limit ends the rendering
        for part in template.generate(messages=turns, add_generation_prompt=True, **arguments):
            parts.append(part)
            length += len(part)
            if length > most_characters:
                raise _LimitError(f"it renders more than {most_characters:,} characters")
            if time.monotonic() > deadline:
                raise _LimitError(f"it takes more than {_SECONDS} seconds")
    except Exception as error:  # foreign code may raise anything
        # The message of an error of jinja2 or of the template itself is enough; that of any other gets its type before.
        kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__} "
        raise SettingsError(f"{folder}: the chat template refuses the conversation: {kind}{error}") from error
    return "".join(parts)


class _LimitError(TemplateError):
    """A chat template rendered too many characters, or took too long."""


class _Generation(Extension):
    """An extension of jinja2 that renders ``{% generation %}`` blocks as ordinary text. Templates mark the assistant's
    turns with them, for training."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares a set)

    def parse(self, parser: Parser) -> list[Node]:
        """Parse a block from its opening tag to ``{% endgeneration %}``; returns the nodes of its body, without the
        tags."""
        next(parser.stream)  # skips the name of the tag
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    """Make the sandboxed jinja2 environment of chat templates, with the functions and filters that transformers gives
    them."""
    extensions = [_Generation, "jinja2.ext.loopcontrols"]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
    environment.globals |= {"raise_exception": _refuse_conversation, "strftime_now": TODAY.strftime}
    return environment


def _refuse_conversation(message: str) -> None:
    """Raise TemplateError with this message. Chat templates call it as ``raise_exception`` for a conversation that they
    do not support."""
    raise TemplateError(message)


@functools.lru_cache(maxsize=8)
def _check_limits(source: str, arguments: str, folder: Path) -> None:
    """Check that the template with this ``source`` compiles, and renders conversations within the limits of time and
    memory. ``arguments`` are its further arguments as JSON text. Raises SettingsError as :func:`compile_template`.

    A template with a loop in a loop, or with arithmetic, may need any amount of time and memory. It renders short and
    long conversations in a separate process, which the kernel ends beyond the limits. Any other template needs time and
    memory in proportion to the conversation, so it is not rendered here.
    """
    values = {"folder": folder, "length": len(source), "most": _LONGEST_TEMPLATE}
    refuse(__package__, "template_source", values)
    try:
        tree = _environment().parse(source)
    except (TemplateError, RecursionError) as error:
        raise SettingsError(f"{folder}: the chat template cannot be compiled: {error}") from error
    nested = any(list(loop.find_all(nodes.For)) for loop in tree.find_all(nodes.For))
    if not nested and all(isinstance(node, _PLAIN_NODES) for node in tree.find_all(nodes.Node)):
        return
    command = [sys.executable, "-I", "-c", f"import {__name__} as module; module.render_within_limits()"]
    request = json.dumps({"source": source, "arguments": json.loads(arguments), "folder": str(folder)})
    process = subprocess.run(command, input=request, text=True, capture_output=True, timeout=600, check=False)
    values = {"folder": folder, "status": process.returncode, "seconds": _SECONDS, "gib": _BYTES >> 30}
    refuse(__package__, "template_limits", values)


def render_within_limits() -> None:
    """Render short and long conversations with the template that standard input describes (JSON: ``source``,
    ``arguments``, ``folder``). :func:`_check_limits` runs this in a separate process.

    The process ends with status 0 if all renderings stay within the limits. Otherwise the kernel ends it (RLIMIT_CPU),
    or it exits with the reason: a MemoryError under RLIMIT_AS, too many characters, or too much time.
    """
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    # Compiled within the limits too, because this evaluates constant expressions.
    template = _environment().from_string(request["source"])
    # Odd numbers of turns end with the user. A loop in a loop takes far longer over 41 turns than over 3.
    for turns in (1, 3, 41):
        messages = [{"role": ("user", "assistant")[k % 2], "content": "text of a turn " * 100} for k in range(turns)]
        for opening in ([], [{"role": "system", "content": "hello"}]):  # without and with a system message
            try:
                render(template, [*opening, *messages], request["arguments"], Path(request["folder"]))
            except SettingsError as error:
                # Any other error means only that the template refuses this conversation, say its system message.
                if isinstance(error.__cause__, (_LimitError, MemoryError)):
                    sys.exit(str(error))
