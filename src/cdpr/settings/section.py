"""Building blocks of the settings: documented keys in closed sections."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

Share = Annotated[float, Field(ge=0, le=1)]


def key(default: Any, description: str | None = None, *, paper: str = "", decision: str = "", **bounds: Any) -> Any:
    """A setting. ``description`` (or the docstring below the setting, where it is long) says what it does; ``paper`` is
    the sentence or section that it comes from."""
    extra: JsonDict = {k: v for k, v in {"paper": paper, "decision": decision}.items() if v}
    start = {"default_factory": default.copy} if isinstance(default, (dict, list)) else {"default": default}
    return Field(**start, description=description, json_schema_extra=extra or None, **bounds)


class SettingsError(ValueError):
    """A configuration that cannot be used; the message names the key, the problem and a remedy."""


class Section(BaseModel):
    """A closed group of settings: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)
