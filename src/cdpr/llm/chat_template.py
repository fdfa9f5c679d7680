"""Renders the chat templates of Hugging Face models. A template is code of whoever made the model, so it runs in a
sandbox, and a rendering has limits of time and size."""

import functools
import json
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..settings import SettingsError
from .types import Messages

TODAY = date(2026, 1, 1)  # the date that templates see, so that prompts are the same on every day
# Limits of one rendering, which usually takes a millisecond.
_SECONDS = 5
_CHARACTERS = 1 << 20  # in addition to 16 for each character of the conversation


def compile_template(source: str, folder: Path) -> Template:
    """Compile the source text of a chat template. Raises SettingsError, naming the model's ``folder``, for a source
    that does not compile."""
    try:
        return _environment().from_string(source)
    except (TemplateError, RecursionError) as error:
        raise SettingsError(f"{folder}: the chat template cannot be compiled: {error}") from error


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
                raise TemplateError(f"it renders more than {most_characters:,} characters")
            if time.monotonic() > deadline:
                raise TemplateError(f"it takes more than {_SECONDS} seconds")
    except Exception as error:  # foreign code may raise anything
        # The message of an error of jinja2 or of the template itself is enough; that of any other gets its type before.
        kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__} "
        raise SettingsError(f"{folder}: the chat template refuses the conversation: {kind}{error}") from error
    return "".join(parts)


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
