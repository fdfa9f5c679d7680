"""Documentation of the settings, generated from their declarations: the JSON schema, ``config/README.md``, and what
``cdpr config --explain KEY`` prints."""

import ast
import functools
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from ..files import parse_yaml, shipped_text, write_text
from .algorithms import algorithm_class, known_algorithms
from .load import unknown_key
from .schema import REGISTRIES, Settings
from .section import Section, SettingsError, is_section, walk
from .variants import value_at

_WIDTH, _OPTIONS = 110, "training.options"
_HEADS = "| key | default | what it does |\n|---|---|---|"
_TYPES = {"bool": "yes/no", "str": "text", "int": "integer", "float": "number"}


def keys() -> dict[str, FieldInfo]:
    """Every section and setting by its dotted name, in the order of the schema. Registries with a file of their own are
    left out."""
    _describe_sections()
    return {name: field for name, field in walk(Settings) if name.partition(".")[0] not in REGISTRIES}


def files(root: Path) -> dict[Path, str]:
    """Every generated file below ``root``, and its text."""
    config = parse_yaml((root / "config.yaml").read_text(encoding="utf-8")) or {}
    return {root / "workflow/schemas/config.schema.json": _schema(), root / "config/README.md": _reference(config)}


def write(root: Path) -> list[str]:
    """Write all generated files below ``root``; returns their paths."""
    return [str(write_text(path, text).relative_to(root)) for path, text in files(root).items()]


def check(root: Path) -> list[str]:
    """Paths of generated files that are missing or out of date."""
    odd = (p for p, text in files(root).items() if not p.exists() or p.read_text(encoding="utf-8") != text)
    return [str(path.relative_to(root)) for path in odd]


def explain(name: str, settings: Settings) -> str:
    """What a key does, its value in ``settings``, its default and its source; of a section, of all its keys.

    Raises SettingsError for a name that no setting has.
    """
    matches = {key: field for key, field in keys().items() if key == name or key.startswith(f"{name}.")}
    if not matches:
        raise SettingsError(unknown_key(name.split(".")))
    parts = [_explain(key, field, settings) for key, field in matches.items()]
    if _OPTIONS in matches:
        parts += [
            f"{key}\n  {_description(field)}\n  default  {_yaml(field.default)}" for key, field in options().items()
        ]
    return "\n\n".join(parts)


def options() -> dict[str, FieldInfo]:
    """The options of the algorithms that come with the package: ``training.options.decay (belief_gain)``, ..."""
    classes = {algorithm: algorithm_class(algorithm).Options for algorithm in known_algorithms()}
    _describe_sections()  # gives each field its description
    return {f"{_OPTIONS}.{name} ({algorithm})": field for algorithm, own in classes.items()
            for name, field in own.model_fields.items()}  # fmt: skip


def _describe_sections() -> list[type[Section]]:
    """All groups of settings that are imported, their settings described by the docstrings below them. Only
    documentation needs these, and to read the sources at every start of a command would take a tenth of a second."""
    sections = [Section]
    for section in sections:  # which grows meanwhile
        sections += section.__subclasses__()
        for base in section.__mro__[: section.__mro__.index(Section)]:
            for name, text in _docstrings(base).items():
                section.model_fields[name].description = section.model_fields[name].description or text
    return sections


@functools.cache
def _docstrings(section: type) -> dict[str, str]:
    """The docstrings below the settings of a class; none where the class was not written in a file."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(section)))
    except OSError:
        return {}
    texts = {}
    for setting, text in itertools.pairwise(cast(ast.ClassDef, tree.body[0]).body):
        match setting, text:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(docstring))):
                texts[name] = inspect.cleandoc(docstring)
    return texts


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
    groups = schema["$defs"] | {"Settings": schema}
    for section in _describe_sections():
        for name, entry in groups.get(section.__name__, {}).get("properties", {}).items():
            entry["description"] = section.model_fields[name].description or ""
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "cdpr settings"
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return text.replace("\\n", " ")  # long descriptions have line breaks


def _reference(config: Mapping[str, Any]) -> str:
    """Text of ``config/README.md``: one table per section. ``config`` is the content of ``config.yaml``."""
    demo, parts = dict(leaves(config)), []
    for section in ("", *(name for name, field in keys().items() if is_section(field))):
        head = f"## `{section}`\n\n{_description(keys()[section])}" if section else "## Top level"
        rows = [_row(name, field, demo) for name, field in keys().items()
                if name.rpartition(".")[0] == section and not is_section(field)]  # fmt: skip
        parts.append("\n".join([head, "", _HEADS, *rows]) if rows else head)
        if section == "training":
            own = [_row(name, field, {}) for name, field in options().items()]
            parts.append("\n".join([f"## `{_OPTIONS}`\n\n{_description(keys()[_OPTIONS])}", "", _HEADS, *own]))
    return shipped_text(__package__, "reference.md").replace("{tables}", "\n\n".join(parts))


def _explain(name: str, field: FieldInfo, settings: Settings) -> str:
    """One setting as ``cdpr config --explain`` prints it."""
    lines, source = [textwrap.fill(_description(field), _WIDTH)], _source(field)
    if not is_section(field):
        default = field.get_default(call_default_factory=True)
        lines += [f"value    {_yaml(value_at(settings, name))}", f"default  {_yaml(default)}"]
        lines += [f"type     {_kind(field.annotation).replace('`', '')}"]
        lines += [f'paper    "{source["paper"].strip()}"'] if "paper" in source else []
        lines += [f"decision {source['decision']} of docs/deviations.md"] if "decision" in source else []
    return "\n".join([name, textwrap.indent("\n".join(lines), "  ")])


def _row(name: str, field: FieldInfo, demo: Mapping[str, Any]) -> str:
    """One setting as a row of ``config/README.md``; ``demo`` has the values of ``config.yaml``."""
    default, source = field.get_default(call_default_factory=True), _source(field)
    kind = _kind(field.annotation).removesuffix(" or empty")
    choices = kind.split(", ") if kind.startswith("`") else [kind] * (default in (None, [], {}))
    value = ", ".join(dict.fromkeys([f"`{_yaml(default)}`", *choices]))
    if demo.get(name, default) != default:
        value += f" (demo: `{_yaml(demo[name])}`)"
    sources = "; ".join(source[part].strip() for part in ("paper", "decision") if part in source)
    cells = (f"`{name}`", value, _description(field) + f" *{sources}*" * bool(sources))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _description(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _source(field: FieldInfo) -> Mapping[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


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
    kinds = ("empty" if option is type(None) else _kind(option) for option in options)
    return " or ".join(filter(None, kinds))
