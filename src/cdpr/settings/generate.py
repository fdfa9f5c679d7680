"""Documentation of the settings, generated from their declarations: the JSON schema, ``config/README.md``, and what
``cdpr config --explain KEY`` prints."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import yaml

from ..files import write_text
from .load import unknown_key
from .schema import REGISTRIES, Settings
from .section import SettingsError, is_section, walk
from .shipped import parse_yaml
from .variants import value_at

_WIDTH = 110
_HEADS = "| key | default | values | what it does | source |\n|---|---|---|---|---|"
_TYPES = {"bool": "yes/no", "str": "text", "int": "integer", "float": "number"}


class Key(NamedTuple):
    """One setting or section, as documentation shows it."""

    name: str
    description: str
    default: Any
    kind: str
    paper: str
    decision: str
    is_section: bool


def keys() -> Iterator[Key]:
    """Every section and setting, in the order of the schema. Registries with a file of their own are left out."""
    for name, field in walk(Settings):
        if name.partition(".")[0] not in REGISTRIES:
            extra: Any = field.json_schema_extra or {}
            yield Key(
                name,
                " ".join((field.description or "").split()),
                field.get_default(call_default_factory=True),
                _kind(field.annotation),
                extra.get("paper", ""),
                extra.get("decision", ""),
                is_section(field),
            )


def files(root: Path) -> dict[Path, str]:
    """Every generated file below ``root``, and its text."""
    config = parse_yaml((root / "config.yaml").read_text(encoding="utf-8")) or {}
    return {root / "workflow/schemas/config.schema.json": _schema(), root / "config/README.md": _reference(config)}


def write(root: Path) -> list[str]:
    """Write all generated files below ``root``; returns their paths."""
    return [str(write_text(path, text).relative_to(root)) for path, text in files(root).items()]


def check(root: Path) -> list[str]:
    """Paths of generated files that are missing or out of date."""
    return [str(path.relative_to(root)) for path, text in files(root).items()
            if not path.exists() or path.read_text(encoding="utf-8") != text]  # fmt: skip


def explain(name: str, settings: Settings) -> str:
    """What a key does, its value in ``settings``, its default and its source; of a section, of all its keys.

    Raises SettingsError for a name that no setting has.
    """
    matches = [key for key in keys() if key.name == name or key.name.startswith(f"{name}.")]
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


def _schema() -> str:
    """Text of the JSON schema, closed like the settings themselves."""
    schema = Settings.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "cdpr settings"
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return text.replace("\\n", " ")  # long descriptions have line breaks


def _reference(config: Mapping[str, Any]) -> str:
    """Text of ``config/README.md``: one table per section. ``config`` is the content of ``config.yaml``."""
    demo, every = dict(leaves(config)), list(keys())
    heads = {"": "## Top level"} | {
        key.name: f"## `{key.name}`\n\n{key.description}" for key in every if key.is_section
    }
    parts = []
    for section, head in heads.items():
        members = [key for key in every if key.name.rpartition(".")[0] == section and not key.is_section]
        table = "\n".join([_HEADS, *(_row(key, demo) for key in members)])
        parts.append(f"{head}\n\n{table}" if members else head)
    template = resources.files(__package__).joinpath("reference.md").read_text(encoding="utf-8")
    return template.replace("{tables}", "\n\n".join(parts))


def _explain(key: Key, settings: Settings) -> str:
    lines = [textwrap.fill(key.description, _WIDTH)]
    if not key.is_section:
        lines += [f"value    {_yaml(value_at(settings, key.name))}", f"default  {_yaml(key.default)}"]
        lines += [f"type     {key.kind.replace('`', '')}"]
        lines += [f'paper    "{key.paper.strip()}"'] if key.paper else []
        lines += [f"decision {key.decision} of docs/deviations.md"] if key.decision else []
    return "\n".join([key.name, textwrap.indent("\n".join(lines), "  ")])


def _row(key: Key, demo: Mapping[str, Any]) -> str:
    value = f"`{_yaml(key.default)}`"
    if demo.get(key.name, key.default) != key.default:
        value += f" (demo: `{_yaml(demo[key.name])}`)"
    source = "; ".join(part for part in (key.paper, key.decision) if part)
    cells = (f"`{key.name}`", value, key.kind, key.description, source)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _yaml(value: Any) -> str:
    """A value as YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("\n...").strip()


def _kind(annotation: Any) -> str:
    """Type of a setting for readers: names for plain types, the choices of a literal."""
    options, origin = get_args(annotation), get_origin(annotation)
    if not options:
        return _TYPES.get(getattr(annotation, "__name__", ""), "")
    if all(isinstance(option, str) for option in options):
        return ", ".join(f"`{option}`" for option in options)
    if origin in (list, dict):
        return f"list of {_kind(options[0])}" if origin is list else "keys and values"
    return " or ".join("empty" if option is type(None) else _kind(option) for option in options)
