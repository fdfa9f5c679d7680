"""The five dimensions and their anchors (paper, appendix "Expert Evaluation Protocol"), in words of ours."""

import functools
from dataclasses import dataclass

from ..files import parse_yaml, shipped_text

SCALE = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Dimension:
    """A dimension of the ratings, ``of`` the reasoning or the action; ``anchors`` say what each score means."""

    name: str
    title: str
    of: str
    asks: str
    anchors: dict[int, str]


@functools.cache
def rubric() -> tuple[Dimension, ...]:
    """Return the dimensions in the paper's order."""
    return tuple(Dimension(**entry) for entry in parse_yaml(shipped_text(__package__, "rubric.yaml")))


def dimensions() -> tuple[str, ...]:
    """Return the names of the dimensions."""
    return tuple(dimension.name for dimension in rubric())
