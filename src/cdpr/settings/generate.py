"""``config.yaml``, its JSON schema and ``config/README.md``, generated from the one typed source.

``schema.py`` says what a key is and holds the paper's values, ``demo.yaml`` what the demo sets differently.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from ..files import write_text
from .load import merge, parse_settings
from .schema import Settings

CONFIG = "config.yaml"
SCHEMA = "workflow/schemas/config.schema.json"
REFERENCE = "config/README.md"
_WIDTH = 110

_CONFIG_HEAD = f"""\
# yaml-language-server: $schema={SCHEMA}
# What a run is made of. Edit values here, or put the few that you change in a file of their own and add
# `--configfile yours.yaml`. Comments and schema are generated from src/cdpr/settings (`cdpr config --write`).
"""


@dataclass(frozen=True)
class Key:
    """One setting or section, as documentation shows it."""

    path: tuple[str, ...]
    description: str
    value: Any
    faithful: Any
    kind: str
    paper: str
    decision: str
    is_section: bool


def demo_settings() -> Settings:
    """The demo: the schema's values with ``demo.yaml`` over them."""
    return parse_settings(merge(Settings().model_dump(), yaml.safe_load(_beside("demo.yaml"))), "demo.yaml")


def _beside(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def keys() -> Iterator[Key]:
    """Every section and setting, in the order of the schema."""
    yield from _keys(demo_settings(), Settings())


def _keys(demo: BaseModel, faithful: BaseModel, at: tuple[str, ...] = ()) -> Iterator[Key]:
    written, own = demo.model_dump(), faithful.model_dump()
    for name, field in type(demo).model_fields.items():
        value = getattr(demo, name)
        section = isinstance(value, BaseModel)
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if "file" in extra:  # it has one of its own
            continue
        shown, usual = (None, None) if section else (written[name], own[name])
        yield Key((*at, name), " ".join((field.description or "").split()), shown, usual, _kind(field.annotation),
                  str(extra.get("paper", "")), str(extra.get("decision", "")), section)  # fmt: skip
        if section:
            yield from _keys(value, getattr(faithful, name), (*at, name))


def render_config() -> str:
    """Text of ``config.yaml``: every key below its comment."""
    lines = [_CONFIG_HEAD]
    for key in keys():
        indent = "  " * (len(key.path) - 1)
        if len(key.path) == 1:
            lines.append("")
        lines += [f"{indent}# {line}" for line in textwrap.wrap(_comment(key), _WIDTH - len(indent) - 2)]
        lines.append(f"{indent}{key.path[-1]}:" + ("" if key.is_section else f" {_scalar(key.value)}"))
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def render_schema() -> str:
    """Text of the JSON schema, closed like the settings themselves."""
    schema = Settings.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "cdpr settings"
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return text.replace("\\n", " ")  # where a long description goes on on the next line


def render_reference() -> str:
    """Text of ``config/README.md``: one table per section."""
    table = "| key | default | values | what it does | source |\n|---|---|---|---|---|"
    every = list(keys())
    lines = ["## Top level\n", table, *(_row(key) for key in every if len(key.path) == 1 and not key.is_section)]
    for section in [key for key in every if key.is_section]:
        inside = [key for key in every if key.path[:-1] == section.path and not key.is_section]
        lines.append(f"\n## `{'.'.join(section.path)}`\n\n{section.description}")
        if inside:
            lines += ["", table, *map(_row, inside)]
    return _beside("reference.md").replace("{tables}", "\n".join(lines))


def files() -> dict[str, str]:
    """Every generated file and its text."""
    return {CONFIG: render_config(), SCHEMA: render_schema(), REFERENCE: render_reference()}


def write(root: Path) -> list[str]:
    """Write all generated files below ``root``; returns their paths."""
    for name, text in files().items():
        write_text(root / name, text)
    return list(files())


def check(root: Path) -> list[str]:
    """Paths of generated files that are missing or differ from what the schema says."""
    return [
        name
        for name, text in files().items()
        if not (root / name).exists() or (root / name).read_text(encoding="utf-8") != text
    ]


def _comment(key: Key) -> str:
    parts = [key.description]
    if key.paper:
        parts.append(f"[paper: {key.paper}]")
    if key.decision:
        parts.append(f"[deviations: {key.decision}]")
    if key.value != key.faithful:
        parts.append(f"(demo; the faithful value is {_scalar(key.faithful)})")
    return " ".join(parts)


def _row(key: Key) -> str:
    value = f"`{_scalar(key.value)}`"
    if key.value != key.faithful:
        value += f" (`{_scalar(key.faithful)}`)"
    source = "; ".join(part for part in (key.paper, key.decision) if part)
    cells = (f"`{'.'.join(key.path)}`", value, key.kind, key.description, source)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _scalar(value: Any) -> str:
    """A value as YAML on one line, floats in a form that every YAML reader takes for a number."""
    if value is None:
        return "null"
    if isinstance(value, float):
        text = repr(value)
        mantissa, exponent, power = text.partition("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{power}" if exponent else text
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("\n...").strip()


def _kind(annotation: Any) -> str:
    """Type of a setting for readers: names for plain types, the choices of a literal."""
    if isinstance(annotation, type) and not get_args(annotation):
        return {"bool": "yes/no", "str": "text", "int": "integer", "float": "number"}.get(annotation.__name__, "")
    options = get_args(annotation)
    if options and all(isinstance(option, str) for option in options):
        return ", ".join(f"`{option}`" for option in options)
    if getattr(annotation, "__origin__", None) is list:
        return f"list of {_kind(options[0])}"
    if getattr(annotation, "__origin__", None) is dict:
        return "keys and values"
    return " or ".join("empty" if option is type(None) else _kind(option) for option in options)
