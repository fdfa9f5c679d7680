"""The exact posterior over diseases given what was read from a record."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from ..cases import PHYSICAL_SUFFIX, examinations
from ..settings.datasets import IN_DOMAIN
from .interpret import Interpreter
from .model import Examination, Hospital, load_hospital
from .sample import AGES, age_table


class Diagnostician:
    """Bayes' rule under the hospital's model of one data set (disease mix and availability included).

    All distributions are arrays over ``diseases`` (canonical names), shape [D].
    """

    def __init__(self, hospital: Hospital | None = None, dataset: str = IN_DOMAIN):
        self.hospital = hospital or load_hospital()
        self.site = self.hospital.site(dataset)
        self.diseases = [d.name for d in self.hospital.diseases]
        self.exams = list(self.hospital.examinations)
        self.availability = dict(zip(self.exams, self.site.availability.tolist(), strict=True))
        self.interpreter = Interpreter(self.hospital, self.site)
        self._ages = age_table(self.hospital)
        self._women = np.array([d.female for d in self.hospital.diseases])

    def prior(self, case_summary: str) -> np.ndarray:
        """P(disease | presentation)."""
        return self.posterior(*self.interpreter.presentation(case_summary))

    def posterior(self, age: int | None, female: bool | None, told: dict[str, int]) -> np.ndarray:
        """P(disease | age, sex, states of the presentation findings)."""
        p = self.site.weights.copy()
        if age is not None:
            p = p * self._ages[:, min(max(age, AGES[0]), AGES[-1]) - AGES[0]]
        if female is not None:
            p = p * (self._women if female else 1 - self._women)
        for finding in self.hospital.presentation:
            if finding.name in told:
                p = p * finding.table[:, told[finding.name]]
        return p / p.sum()

    def update(self, p: np.ndarray, exam_key: str, result_text: str) -> np.ndarray:
        """The posterior after one result; ``p`` itself where nothing could be read."""
        exam = self.examination(exam_key)
        return p if exam is None else self.condition(p, exam, self.interpreter.examination(exam, result_text))

    def condition(self, p: np.ndarray, exam: Examination, found: dict[str, int]) -> np.ndarray:
        """The posterior after these states of an examination's findings; unchanged if they are impossible."""
        if not found:
            return p
        q = p
        for finding in exam.findings:
            if finding.name in found:
                q = q * finding.table[:, found[finding.name]]
        total = q.sum()
        return q / total if total > 0 else p

    def examination(self, exam_key: str) -> Examination | None:
        """The model's examination behind a record's key, whatever the record calls it."""
        name = canonical_name(exam_key)
        return self.hospital.examinations.get(name) if name else None

    def key(self, exam: str) -> str:
        """How to request an examination so that a record's key is met."""
        return exam + PHYSICAL_SUFFIX if self.hospital.examinations[exam].kind == "physical" else exam

    @functools.cached_property
    def outcomes(self) -> list[np.ndarray]:
        """P(joint outcome | disease) of each examination's informative findings, shape [outcomes, D] each."""
        tables = []
        for exam in self.hospital.examinations.values():
            table = np.ones((1, len(self.diseases)))
            for finding in exam.findings:
                if finding.informative:
                    table = (table[:, None, :] * finding.table.T[None, :, :]).reshape(-1, table.shape[1])
            tables.append(table)
        return tables

    @functools.cached_property
    def _stacked(self) -> tuple[np.ndarray, np.ndarray]:
        starts = np.cumsum([0, *[len(table) for table in self.outcomes[:-1]]])
        return np.concatenate(self.outcomes), starts

    def expected_best(self, p: np.ndarray) -> np.ndarray:
        """E[max posterior] after each examination if it gives a result, shape [examinations].

        ``p`` may have leading axes, which are kept.
        """
        tables, starts = self._stacked
        joint = tables * p[..., None, :]
        return np.add.reduceat(joint.max(axis=-1), starts, axis=-1)

    def net_gain(self, p: np.ndarray, charge: np.ndarray, miss: float) -> np.ndarray:
        """Expected gain in utility of asking for each examination once and then diagnosing, over diagnosing
        at once; ``charge`` [examinations] is the price of a result and ``miss`` that of an unavailable request."""
        on = self.site.availability
        return on * (self.expected_best(p) - p.max(axis=-1, keepdims=True) - charge) - (1 - on) * miss

    def two_step_gain(
        self, p: np.ndarray, charge: np.ndarray, miss: float, asked: np.ndarray, candidates: int = 8,
        also: Iterable[int] = (),
    ) -> np.ndarray:  # fmt: skip
        """As :meth:`net_gain`, but after the first answer one more examination may be asked for where it gains.

        Only the ``candidates`` examinations with the highest one-step gain and those named ``also`` are looked at; all
        others, and those already ``asked`` [examinations of bool], are -inf.
        """
        barred = np.where(asked, -np.inf, 0.0)
        one = self.net_gain(p, charge, miss) + barred
        two = np.full(len(self.exams), -np.inf)
        for exam in dict.fromkeys([*np.argsort(-one, kind="stable")[:candidates].tolist(), *also]):
            if asked[exam]:
                continue
            then = barred.copy()
            then[exam] = -np.inf
            joint = self.outcomes[exam] * p
            chance = joint.sum(axis=1)
            after = joint / chance[:, None]
            worth = after.max(axis=1) + np.maximum((self.net_gain(after, charge, miss) + then).max(axis=1), 0.0)
            found = chance @ worth - charge[exam]
            missed = p.max() + max((one + then).max(), 0.0) - miss
            on = self.site.availability[exam]
            two[exam] = on * found + (1 - on) * missed - p.max()
        return two


@functools.cache
def canonical_name(exam_key: str) -> str | None:
    """The vocabulary's name of an examination, whatever a record or a request calls it."""
    term = examinations().find(exam_key) or examinations().find(exam_key.removesuffix(PHYSICAL_SUFFIX))
    return term.name if term else None
