"""What is trained and where it is shown: ``workflow/experiments.yaml``, typed."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from .section import Section, key

FILE = "workflow/experiments.yaml"
Shown = Literal["main_table", "learning_curves", "training_efficiency", "ablations", "comparators", "engines"]
Value = bool | int | float | str | None


class Variant(Section):
    label: str = key("", "What tables and figures call it.", min_length=1)
    change: dict[str, Value] = key({}, "Settings that differ from the configuration, by dotted name.")
    feeds: list[Shown] = key([], "Tables and figures that show it.")
    seeds: int | None = key(None, "How many of `seeds` are trained; empty: all.", gt=0)


class Sweep(Section):
    symbol: str = key("", "Sign of the setting in the paper, or a short name.", min_length=1)
    label: str = key("", "What the setting is.", min_length=1)
    setting: str = key("", "Dotted name of the setting.", min_length=1)
    values: list[Value] = key([], "Points beside the configuration's own value, which is always one.")
    feeds: Literal["sensitivity", "further_sensitivity"] = key("sensitivity", "Figure that shows it.")
    seeds: int | None = key(None, "How many of `seeds` are trained; empty: all.", gt=0)


class Experiments(Section):
    variants: dict[str, Variant] = key({}, "Variants by name.")
    sweeps: dict[str, Sweep] = key({}, "Sweeps of one setting by name.")
    points: int | None = key(None, "Most points of a sweep beside the configuration's own; empty: all.", ge=0)

    @field_validator("variants", "sweeps")
    @classmethod
    def _named_like_files(cls, named: dict[str, Any]) -> dict[str, Any]:
        for name in named:
            if not name.isidentifier() or not name.islower():
                raise ValueError(f"{name!r} is no name: use small letters, digits and underscores, a letter first")
        return named


def project_folder() -> Path:
    """The checkout: the working directory where it is one, else the folder above this package.

    Raises FileNotFoundError where neither is.
    """
    for folder in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (folder / FILE).is_file():
            return folder
    raise FileNotFoundError(f"{FILE} was not found; run from the root of the checkout")


def shipped_experiments() -> Experiments:
    """The experiments of the project's own file."""
    return _read(project_folder() / FILE)


@functools.cache
def _read(path: Path) -> Experiments:
    import yaml

    return Experiments.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))["experiments"])
