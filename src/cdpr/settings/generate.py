"""Documentation of the settings, generated from their declarations: the JSON schema, ``config/README.md``, and what
``cdpr config --explain KEY`` prints."""

import functools
import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from .. import settings as templates
from ..escape import environment
from ..files import parse_yaml, write_text
from .algorithms import algorithm_class, known_algorithms
from .load import flatten, known_keys, unknown_key
from .schema import REGISTRIES, Settings
from .section import Section, SettingsError, declaration, is_section
from .variants import value_at

_OPTIONS = "training.options"  # the setting with the options of one algorithm
# The comment above a setting in the source of its class, and the name of the setting.
_COMMENTED = re.compile(r"((?:^ *#: .*\n)+) *(\w+): ", re.MULTILINE)
# What ``config/README.md`` calls Python's types.
_TYPES = {"bool": "yes/no", "str": "text", "int": "integer", "float": "number"}


def documented_fields() -> dict[str, FieldInfo]:
    """Collect every section and setting by its dotted name, with its description, in the order of their declaration.
    At the end are the options of all known training algorithms, the settings that one algorithm alone reads, by names
    such as ``training.options.decay (belief_gain)``. The registries ``experiments``, ``agents`` and ``models`` are left
    out: their files document them."""
    classes = {algorithm: algorithm_class(algorithm).Options for algorithm in known_algorithms()}
    options = {f"{_OPTIONS}.{name} ({algorithm})": field for algorithm, options in classes.items()
               for name, field in options.model_fields.items()}  # fmt: skip
    _describe_sections()
    return {name: field for name, field in known_keys().items() if name.partition(".")[0] not in REGISTRIES} | options


def _generate(root: Path) -> dict[Path, str]:
    """Generate the text of the JSON schema and of ``config/README.md``, by their paths below the checkout ``root``."""
    demo = flatten(parse_yaml((root / "config.yaml").read_text(encoding="utf-8")))
    readme = root / "config/README.md"
    return {root / "workflow/schemas/config.schema.json": _write_schema(), readme: _write_reference(demo)}


def write_files(root: Path) -> list[str]:
    """Write all generated files below the checkout ``root`` (``cdpr config --write``); returns their paths below it."""
    return [str(write_text(path, text).relative_to(root)) for path, text in _generate(root).items()]


def outdated_files(root: Path) -> list[str]:
    """List the generated files that are missing or differ from the declared settings (``cdpr config --check``), as
    paths below the checkout ``root``."""
    texts = _generate(root).items()
    outdated = [path for path, text in texts if not path.exists() or path.read_text(encoding="utf-8") != text]
    return [str(path.relative_to(root)) for path in outdated]


def explain_key(name: str, settings: Settings) -> str:
    """Write what the setting ``name`` does, with its value in ``settings``, its default and its source in the paper
    (``cdpr config --explain``). For a section, write this about every setting in it. Raises SettingsError for an
    unknown name."""
    matches = {key: field for key, field in documented_fields().items() if key == name or key.startswith(f"{name}.")}
    if not matches:
        raise SettingsError(unknown_key(name.split(".")))
    return _render("explain.txt", matches, settings=settings, known=known_keys(), value_at=value_at).rstrip()


def _describe_sections() -> list[type[Section]]:
    """Give every setting a description, in all classes of settings that are imported: the comment ``#: ...`` above it,
    unless its declaration has one. Returns these classes.

    Only documentation needs the descriptions. To read the sources at every start of a command would take a tenth of a
    second.
    """
    sections = [Section]
    for section in sections:  # the list grows while it is read
        sections += section.__subclasses__()
        # A setting may be declared in the class itself or in a base class: all between it and Section are read.
        for base in section.__mro__[: section.__mro__.index(Section)]:
            texts = _read_comments(base)
            for name, field in section.model_fields.items():
                field.description = field.description or texts.get(name)
    return sections


@functools.cache
def _read_comments(section: type) -> dict[str, str]:
    """Read the comments ``#: ...`` above the settings of a class from its source, by the name of the setting. Empty for
    a class that was not written in a file."""
    try:
        source = inspect.getsource(section)
    except OSError:
        return {}
    return {name: re.sub(r"\s*#: ", " ", lines).strip() for lines, name in _COMMENTED.findall(source)}


def _write_schema() -> str:
    """Write the JSON schema of the settings as text; it allows no unknown key."""
    schema = Settings.model_json_schema()
    definitions = schema["$defs"] | {"Settings": schema}
    for section in _describe_sections():
        for name, entry in definitions.get(section.__name__, {}).get("properties", {}).items():
            entry["description"] = section.model_fields[name].description or ""
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "cdpr settings"
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return text.replace("\\n", " ")  # the descriptions of sections have line breaks


def _write_reference(demo: Mapping[str, Any]) -> str:
    """Write the text of ``config/README.md``: one table per section. ``demo`` has the values of ``config.yaml`` by
    dotted name, which the tables show where they differ from the defaults."""
    fields = documented_fields()
    sections = [name for name, field in fields.items() if is_section(field) or name == _OPTIONS]
    # "": the settings in no section
    return _render("reference.md", fields, sections=["", *sections], demo=demo)


def _render(template: str, fields: Mapping[str, FieldInfo], **values: Any) -> str:
    """Fill in a template of this package, which prints ``fields``, sections and settings by their dotted names. The
    template can use the further ``values``, and these functions that describe a field or write a value."""
    functions = {"declaration": declaration, "description": _description, "is_section": is_section,
                 "describe_type": _describe_type, "to_yaml": _to_yaml}  # fmt: skip
    return environment(templates).get_template(template).render(fields=fields, **functions, **values)


def _description(field: FieldInfo) -> str:
    """The description of a setting on one line; empty where it has none."""
    return " ".join((field.description or "").split())


def _to_yaml(value: Any) -> str:
    """Write a value as YAML on one line."""
    # Lines are broken only at the width. YAML ends a value that is no list or dictionary by a line "...".
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("\n...").strip()


def _describe_type(annotation: Any) -> str:
    """Describe the type of a setting in words, such as "integer or empty" or "list of text"; a literal by its choices,
    as "`none`, `fp8`". Empty for a type that has no words here."""
    arguments, origin = get_args(annotation), get_origin(annotation)
    if not arguments:
        return _TYPES.get(getattr(annotation, "__name__", ""), "")
    if all(isinstance(choice, str) for choice in arguments):
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin in (list, dict):
        return f"list of {_describe_type(arguments[0])}" if origin is list else "keys and values"
    kinds = ("empty" if option is type(None) else _describe_type(option) for option in arguments)
    return " or ".join(filter(None, kinds))  # without types that have no words
