"""A learned critic of the gain in belief: what an examination adds on average, over the cases of a run."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

RIDGE = 1.0  # weight of the prior, which predicts no gain


class GainCritic:
    """Ridge regression of the gain of each examination on the belief before it and on the turn.

    A prediction averages over cases, so it has less noise than the gain of one case. It does not see the other results
    of the case. Gains and beliefs are probabilities, from 0 to 1.
    """

    def __init__(self) -> None:
        self._squares: dict[str, np.ndarray] = defaultdict(lambda: RIDGE * np.eye(3))  # X'X + ridge, [3, 3]
        self._products: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))  # X'y, [3]

    def predict(self, exam: str, belief: float, turn: int) -> float:
        """Predict the gain in belief by an examination, given the belief before it and the turn; 0 for an examination
        without examples."""
        return float(_features(belief, turn) @ np.linalg.solve(self._squares[exam], self._products[exam]))

    def learn(self, examples: Sequence[tuple[str, float, int, float]]) -> None:
        """Update the regression with further ``examples``: (examination, belief before it, turn, gain)."""
        for exam, belief, turn, gain in examples:
            x = _features(belief, turn)
            self._squares[exam] += np.outer(x, x)
            self._products[exam] += gain * x

    def state_dict(self) -> dict[str, Any]:
        """X'X + ridge and X'y of each examination, as lists."""
        return {exam: [self._squares[exam].tolist(), self._products[exam].tolist()] for exam in self._products}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for exam, (squares, products) in state.items():
            self._squares[exam], self._products[exam] = np.array(squares), np.array(products)


def _features(belief: float, turn: int) -> np.ndarray:
    """The inputs of the regression, shape [3]: a constant, the belief, and a tenth of the turn."""
    return np.array([1.0, belief, turn / 10])
