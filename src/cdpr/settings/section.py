"""Building blocks of the settings: sections that refuse unknown keys, declarations of documented settings, and the
project's own files of settings."""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from ..files import parse_yaml

_MARK = "workflow/experiments.yaml"  # a folder that has this file is a checkout of the project


def key(default: Any, description: str = "", *, paper="", decision="", is_path: bool = False, **bounds: Any) -> Any:
    """Declare a setting: returns the pydantic field of a :class:`Section` with this ``default``.

    - ``description``, or a comment ``#: ...`` above the setting, says what the setting does.
    - ``paper`` quotes the sentence of the paper that the setting comes from.
    - ``decision`` names the entry of docs/deviations.md that the setting answers.
    - ``is_path``: the value is a file or folder of the user, which must exist.
    - ``bounds``: limits of the value, as pydantic names them (``gt``, ``le``, ``min_length``, ...).
    """
    extra: Any = {k: v for k, v in {"paper": paper, "decision": decision, "is_path": is_path}.items() if v}
    # Every section gets a dictionary or list of its own.
    start = {"default_factory": default.copy} if isinstance(default, (dict, list)) else {"default": default}
    return Field(**start, description=description or None, json_schema_extra=extra or None, **bounds)


def weight(default: float, amount: str, *, symbol: str = "", sign: int = -1, unit: str = "", paper: str = "") -> Any:
    """Declare a weight of the utility of an episode, and with it the term ``sign * weight * amount / unit``, which the
    utility adds.

    - ``amount``: the count that the weight multiplies: a field of :class:`cdpr.environment.state.Effort`, or ``tests``.
      Formulas call it ``symbol``.
    - ``unit``: the setting of the same section by which the count is divided; empty: 1.
    - ``paper``: the sentence of the paper that the weight comes from.

    A comment ``#: ...`` above the setting describes it. Unlike that of a :func:`key`, this declaration is part of the
    digest of a job's code, so that a change of it makes the job run again.
    """
    term: Any = {"symbol": symbol or amount, "amount": amount, "sign": sign, "unit": unit}
    extra = {"paper": paper, "term": term} if paper else {"term": term}
    return Field(default, json_schema_extra=extra)


class SettingsError(ValueError):
    """A configuration cannot be used. The message names the key, the problem and a remedy."""


RESTRICTED = "restricted"
"""Name of the attribute in which a restricted copy of a section (:func:`cdpr.settings.load.restrict`) keeps two texts
for error messages: the dotted name of the section with a dot behind (``training.``), and what to do about a setting
that the copy lacks. It is no pydantic field, so two copies with equal settings are equal."""


class NoProject(SettingsError):
    """There is no checkout of the project, whose files a command of the workflow has to read."""


class UndeclaredSetting(SettingsError):
    """Code of a job reads a setting that the job did not declare. Its run key, the digest that decides whether it runs
    again, would not cover this setting. This is no AttributeError, which ``getattr`` with a default would hide."""


class Section(BaseModel):
    """A group of settings; an unknown key is an error. A restricted copy (:func:`cdpr.settings.load.restrict`) lacks
    some settings: reading one of these raises UndeclaredSetting."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)

    if not TYPE_CHECKING:  # else every name would pass the type checker

        def __getattr__(self, name: str) -> Any:
            """Raise UndeclaredSetting for a setting that this restricted copy lacks: a job gets a copy of only the
            settings that it declares. Python calls this only for a missing attribute."""
            if name in type(self).model_fields:
                prefix, remedy = self.__dict__.get(RESTRICTED, ("", ""))  # texts for the message
                setting = f"{prefix}{name}"
                remedy = remedy.replace("KEY", setting)
                raise UndeclaredSetting(f"reads the setting {setting}, which is not declared: {remedy}")
            return super().__getattr__(name)


def walk(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the dotted name and the field of every section and setting in ``section``, at any depth, in the order of
    their declaration. ``prefix`` is put in front of each name."""
    for name, field in section.model_fields.items():
        yield prefix + name, field
        if is_section(field):
            yield from walk(field.annotation, f"{prefix}{name}.")  # type: ignore[arg-type]


def declaration(field: FieldInfo) -> Mapping[str, Any]:
    """What the declaration of a setting says of it beside its description, by name, as far as it does: ``paper``, a
    quotation, ``decision``, an entry of docs/deviations.md, and ``is_path`` (:func:`key`), or ``term``
    (:func:`weight`)."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def is_section(field: FieldInfo) -> bool:
    """Whether a field of the settings is a section, a group of settings, instead of a single setting."""
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def project_folder() -> Path:
    """Find the checkout of this project: the working directory if it is one, else the folder whose ``src`` has this
    code. Raises NoProject if neither is a checkout."""
    for folder in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (folder / _MARK).is_file():
            return folder
    raise NoProject(f"{_MARK} was not found; run from the root of the checkout")


def read_shipped(file: str) -> dict[str, Any]:
    """Read one of the project's own YAML files as a dictionary. ``file`` is its path below the checkout. Raises
    NoProject outside of a checkout."""
    return _read_once(project_folder() / file)


@functools.cache
def _read_once(path: Path) -> dict[str, Any]:
    """Read a YAML file as a dictionary, at most once in this process."""
    return parse_yaml(path.read_text(encoding="utf-8"))
