"""Building blocks of the settings: documented keys in closed sections, and the project's own files of settings."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from ..files import parse_yaml

_MARK = "workflow/experiments.yaml"


def key(default: Any, description: str = "", *, paper="", decision="", place: bool = False, **bounds: Any) -> Any:
    """A setting. ``description`` (or the docstring below the setting, where it is long) says what it does; ``paper`` is
    the sentence or section that it comes from; a ``place`` is a file or folder that must be there."""
    extra: Any = {k: v for k, v in {"paper": paper, "decision": decision, "place": place}.items() if v}
    start = {"default_factory": default.copy} if isinstance(default, (dict, list)) else {"default": default}
    return Field(**start, description=description or None, json_schema_extra=extra or None, **bounds)


def weight(
    default: float, amount: str, description: str, *, symbol: str = "", sign: int = -1, unit: str = "", paper: str = ""
) -> Any:
    """A weight of the utility with its term, ``sign * weight * amount``, per the setting ``unit`` of the same section
    where it has one. ``amount`` names a count of :class:`cdpr.environment.state.Effort`, or ``tests``; formulas call it
    ``symbol``. Run keys hold this declaration, unlike that of a :func:`key`."""
    term: Any = {"symbol": symbol or amount, "amount": amount, "sign": sign, "unit": unit}
    extra = {"paper": paper, "term": term} if paper else {"term": term}
    return Field(default, description=description, json_schema_extra=extra)


class SettingsError(ValueError):
    """A configuration that cannot be used; the message names the key, the problem and a remedy."""


RESTRICTED = "restricted"
"""Attribute of such a copy: its own dotted name, and what to do about a setting that it lacks. No field, so that copies
are equal where their settings are."""


class NoProject(SettingsError):
    """There is no checkout, whose files a command of the workflow reads."""


class UndeclaredSetting(SettingsError):
    """A setting that code reads and does not declare; no AttributeError, which ``getattr`` with a default hides."""


class Section(BaseModel):
    """A closed group of settings: an unknown key is an error. A copy may lack settings (:func:`cdpr.settings.load.
    restrict`): reading one raises UndeclaredSetting."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)

    if not TYPE_CHECKING:  # else every name would pass the type checker

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                above, remedy = self.__dict__.get(RESTRICTED, ("", ""))
                raise UndeclaredSetting(f"reads the setting {above}{name}, which is not declared: {remedy}".replace(
                    "KEY", f"{above}{name}"))  # fmt: skip
            return super().__getattr__(name)


def walk(section: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every section and setting below a section by its dotted name, in order."""
    for name, field in section.model_fields.items():
        yield above + name, field
        if is_section(field):
            yield from walk(field.annotation, f"{above}{name}.")  # type: ignore[arg-type]


def is_section(field: FieldInfo) -> bool:
    """Whether a field is a group of settings."""
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def project_folder() -> Path:
    """The checkout: the working directory where it is one, else the folder above this package.

    Raises NoProject where neither is.
    """
    for folder in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (folder / _MARK).is_file():
            return folder
    raise NoProject(f"{_MARK} was not found; run from the root of the checkout")


def read_shipped(file: str) -> dict[str, Any]:
    """Content of one of the project's YAML files, by its path below the checkout."""
    return _read(project_folder() / file)


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    return parse_yaml(path.read_text(encoding="utf-8"))
