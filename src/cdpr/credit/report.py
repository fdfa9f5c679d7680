"""What credit assignment found, state by state: diagnostics, figures and the inspector read it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .uncertainty import ActionKey


@dataclass(frozen=True)
class CandidateValue:
    """U_hat(s, a) of one action with what it was estimated from."""

    action: ActionKey
    probability: float
    value: float
    correct: float
    tests: float
    cost_usd: float
    infeasible: float
    cached: int
    fresh: int
    in_top_m: bool


@dataclass(frozen=True)
class StateCredit:
    """One unique state: how often it was visited, why it was selected, what its actions are worth."""

    key: tuple
    visits: tuple[tuple[int, int], ...]
    entropy: float
    disagreed: bool
    probability: dict[ActionKey, float]
    candidates: tuple[CandidateValue, ...] = ()

    @property
    def baseline(self) -> float:
        """Mean utility of the candidate set A_c(s)."""
        values = [c.value for c in self.candidates if c.in_top_m]
        return sum(values) / len(values)


@dataclass
class CreditReport:
    """Credit of one group: ``process[i][t]`` is R_proc of decision t of trajectory i, None where the
    state was not selected."""

    process: list[list[float | None]]
    states: list[StateCredit] = field(default_factory=list)
    probes: int = 0
    fresh: int = 0
    cached: int = 0
    clipped: int = 0
