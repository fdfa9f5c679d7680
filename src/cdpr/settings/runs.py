"""Names of runs. A run of a trained policy is named by its variant and seed (``cdpr-seed0``), any other run by its
agent (``warm_start``)."""

import re
from collections.abc import Iterable
from typing import NamedTuple, Self

from .section import SettingsError

# `*?`: as short as possible, so that the `-seed0` at the end of `cdpr-seed0` is no part of the variant's name.
NAME = r"[a-z][a-z0-9_.-]*?"
"""Names of agents, variants and sweeps, which are parts of paths."""
RUN = rf"{NAME}(?:-seed(?:0|[1-9][0-9]*))?"
"""Names of runs. What ends in ``-seedN`` is trained."""
_TRAINED_RUN = re.compile(rf"(?P<variant>{NAME})-seed(?P<seed>0|[1-9][0-9]*)")


class TrainedRun(NamedTuple):
    """A variant that is trained with one seed; ``str`` gives the name of the run, ``cdpr-seed0``."""

    variant: str
    seed: int

    @classmethod
    def parse(cls, run: str) -> Self | None:
        """Read the name of a run: ``cdpr-seed0`` is the variant ``cdpr`` with the seed 0. None for the name of an
        agent, which is not trained."""
        match = _TRAINED_RUN.fullmatch(run)
        return cls(match["variant"], int(match["seed"])) if match else None

    def __str__(self) -> str:
        """The name of the run, such as ``cdpr-seed0``."""
        return f"{self.variant}-seed{self.seed}"


def is_trained(run: str) -> bool:
    """Whether ``run`` is the name of a trained run, ``VARIANT-seedN``."""
    return TrainedRun.parse(run) is not None


def seeds_of_runs(runs: Iterable[str]) -> list[int]:
    """List the seeds of the trained runs among ``runs`` (names), in their order."""
    return [trained.seed for run in runs if (trained := TrainedRun.parse(run))]


def check_name(name: str, kind: str = "agent") -> str:
    """Return the name of an agent, variant or sweep unchanged. Raises SettingsError for a name that cannot be part of a
    path, or that would be read as that of a trained run. ``kind`` is what the message calls the named thing."""
    if not re.fullmatch(NAME, name):
        raise SettingsError(f"{kind} {name!r} is no name: use small letters of a to z, digits, '_', '.' and '-', a "
                            "letter first")  # fmt: skip
    if is_trained(name):
        raise SettingsError(f"{kind} {name!r}: a name that ends in -seed and a number is that of a trained run; choose "
                            "another")  # fmt: skip
    return name
