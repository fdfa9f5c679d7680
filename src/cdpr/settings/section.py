"""Building blocks of the settings: documented keys in closed sections."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo


def key(default: Any, description: str = "", *, paper="", decision="", place: bool = False, **bounds: Any) -> Any:
    """A setting. ``description`` (or the docstring below the setting, where it is long) says what it does; ``paper`` is
    the sentence or section that it comes from; a ``place`` is a file or folder that must be there."""
    extra: Any = {k: v for k, v in {"paper": paper, "decision": decision, "place": place}.items() if v}
    start = {"default_factory": default.copy} if isinstance(default, (dict, list)) else {"default": default}
    return Field(**start, description=description or None, json_schema_extra=extra or None, **bounds)


class SettingsError(ValueError):
    """A configuration that cannot be used; the message names the key, the problem and a remedy."""


class Section(BaseModel):
    """A closed group of settings: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)


def walk(section: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every section and setting below a section by its dotted name, in order."""
    for name, field in section.model_fields.items():
        yield above + name, field
        if is_section(field):
            yield from walk(field.annotation, f"{above}{name}.")  # type: ignore[arg-type]


def is_section(field: FieldInfo) -> bool:
    """Whether a field is a group of settings."""
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
