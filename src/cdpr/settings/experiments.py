"""What is trained and where it is shown: ``workflow/experiments.yaml``, typed."""

from typing import Any, Literal

from pydantic import Field, field_validator

from .agents import Look
from .section import Section, key, read_shipped

FILE = "workflow/experiments.yaml"
Figure = Literal[
    "main_table",
    "accuracy_cost",
    "learning_curves",
    "learning_path",
    "training_efficiency",
    "ablations",
    "comparators",
    "engines",
]
Value = bool | int | float | str | None


class Variant(Section):
    label: str = key("", "What tables and figures call it.", min_length=1)
    change: dict[str, Value] = key({}, "Settings that differ from the configuration, by dotted name.")
    feeds: list[Figure] = key([], "Tables and figures that show it.")
    seeds: int | None = key(None, "How many of `seeds` are trained; empty: all.", gt=0)
    paper: str = key("", "Row of the paper's Table 1 that it stands for.")
    look: Look | None = Field(default=None, description="How it looks in figures; empty: a spare look.")


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
    swept: list[str] | None = key(
        None, "Sweeps that `reproduce_paper` trains; empty: all. `sensitivity_all` trains all."
    )
    points: int | None = key(None, "Most points of these beside the configuration's own; empty: all.", ge=0)

    @field_validator("variants", "sweeps")
    @classmethod
    def _names_fit_files(cls, entries: dict[str, Any]) -> dict[str, Any]:
        for name in entries:
            if not name.isidentifier() or not name.islower():
                raise ValueError(f"{name!r} is no name: use small letters, digits and underscores, a letter first")
        return entries


def shipped_experiments() -> Experiments:
    """The experiments of the project's own file."""
    return Experiments.model_validate(read_shipped(FILE)["experiments"])
