"""The five dimensions of the ratings and the meaning of each score, in our words (paper, appendix "Expert Evaluation
Protocol")."""

import functools
from typing import NamedTuple

from ..files import parse_yaml, shipped_text

SCALE = (1, 2, 3, 4, 5)


class Dimension(NamedTuple):
    """A dimension on which raters score a proposal from 1 to 5, such as ``evidence_support``.

    ``title`` is its name on the form, ``asks`` the question to the rater, and ``anchors`` the meaning of each score.
    """

    name: str
    title: str
    asks: str
    anchors: dict[int, str]


@functools.cache
def rubric() -> tuple[Dimension, ...]:
    """Read the five dimensions from ``rubric.yaml``, in the paper's order."""
    return tuple(Dimension(**entry) for entry in parse_yaml(shipped_text(__package__, "rubric.yaml")))


def dimensions() -> tuple[str, ...]:
    """Return the names of the five dimensions, in the paper's order."""
    return tuple(dimension.name for dimension in rubric())
