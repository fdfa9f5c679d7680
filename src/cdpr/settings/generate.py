"""Documentation of the settings, generated from their declarations: the JSON schema, ``config/README.md``, and what
``cdpr config --explain KEY`` prints."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from ..files import write_text
from .load import unknown_key
from .schema import Settings
from .section import SettingsError
from .shipped import parse_yaml

CONFIG = "config.yaml"
SCHEMA = "workflow/schemas/config.schema.json"
REFERENCE = "config/README.md"
_WIDTH = 110


@dataclass(frozen=True)
class Key:
    """One setting or section, as documentation shows it."""

    path: tuple[str, ...]
    description: str
    default: Any
    kind: str
    paper: str
    decision: str
    is_section: bool

    @property
    def name(self) -> str:
        return ".".join(self.path)


def keys(section: BaseModel | None = None, prefix: tuple[str, ...] = ()) -> Iterator[Key]:
    """Every section and setting, in the order of the schema. Registries with a file of their own are left out."""
    section = section or Settings()
    defaults = section.model_dump()
    for name, field in type(section).model_fields.items():
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if "file" in extra:
            continue
        value, path = getattr(section, name), (*prefix, name)
        is_section = isinstance(value, BaseModel)
        description = " ".join((field.description or "").split())
        yield Key(path, description, None if is_section else defaults[name], _kind(field.annotation),
                  str(extra.get("paper", "")), str(extra.get("decision", "")), is_section)  # fmt: skip
        if is_section:
            yield from keys(value, path)


def render_schema() -> str:
    """Text of the JSON schema, closed like the settings themselves."""
    schema = Settings.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "cdpr settings"
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return text.replace("\\n", " ")  # long descriptions have line breaks


def render_reference(config: Mapping[str, Any]) -> str:
    """Text of ``config/README.md``: one table per section. ``config`` is the content of ``config.yaml``."""
    table = "| key | default | values | what it does | source |\n|---|---|---|---|---|"
    every = list(keys())
    demo = dict(leaves(config))
    lines = ["## Top level\n", table]
    lines += [_row(key, demo) for key in every if len(key.path) == 1 and not key.is_section]
    for section in [key for key in every if key.is_section]:
        members = [key for key in every if key.path[:-1] == section.path and not key.is_section]
        lines.append(f"\n## `{section.name}`\n\n{section.description}")
        if members:
            lines += ["", table, *(_row(key, demo) for key in members)]
    return _template("reference.md").replace("{tables}", "\n".join(lines))


def explain(name: str, settings: Settings) -> str:
    """What a key does, its value in ``settings``, its default and its source; of a section, of all its keys.

    Raises SettingsError for a name that no setting has.
    """
    every = list(keys())
    matches = [key for key in every if key.name == name or key.name.startswith(f"{name}.")]
    if not matches:
        raise SettingsError(unknown_key(name.split(".")))
    return "\n\n".join(_explain(key, settings) for key in matches)


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of every entry of a nested dictionary."""
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def files(root: Path) -> dict[str, str]:
    """Every generated file below ``root``, and its text."""
    config = parse_yaml((root / CONFIG).read_text(encoding="utf-8")) or {}
    return {SCHEMA: render_schema(), REFERENCE: render_reference(config)}


def write(root: Path) -> list[str]:
    """Write all generated files below ``root``; returns their paths."""
    texts = files(root)
    for name, text in texts.items():
        write_text(root / name, text)
    return list(texts)


def check(root: Path) -> list[str]:
    """Paths of generated files that are missing or out of date."""
    return [
        name
        for name, text in files(root).items()
        if not (root / name).exists() or (root / name).read_text(encoding="utf-8") != text
    ]


def _template(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _explain(key: Key, settings: Settings) -> str:
    if key.is_section:
        return f"{key.name}\n{textwrap.indent(textwrap.fill(key.description, _WIDTH), '  ')}"
    value: Any = settings
    for part in key.path:
        value = getattr(value, part)
    if isinstance(value, BaseModel):
        value = value.model_dump()
    facts = [f"value    {_scalar(value)}", f"default  {_scalar(key.default)}", f"type     {key.kind.replace('`', '')}"]
    facts += [f'paper    "{key.paper.strip()}"'] if key.paper else []
    facts += [f"decision {key.decision} of docs/deviations.md"] if key.decision else []
    return "\n".join([key.name, textwrap.indent("\n".join([textwrap.fill(key.description, _WIDTH), *facts]), "  ")])


def _row(key: Key, demo: Mapping[str, Any]) -> str:
    value = f"`{_scalar(key.default)}`"
    if key.name in demo and demo[key.name] != key.default:
        value += f" (demo: `{_scalar(demo[key.name])}`)"
    source = "; ".join(part for part in (key.paper, key.decision) if part)
    cells = (f"`{key.name}`", value, key.kind, key.description, source)
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
