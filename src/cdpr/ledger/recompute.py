"""How a statement of the paper is recomputed from the paper's other figures: one function per sort of statement.

Figures carry the rounding they were printed with, so that a number disagrees only when no unrounded figures could
explain it; all arithmetic is exact.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from pydantic import Field

from ..results.methods import CLOSED, DATASETS
from ..results.paper import METRICS, PaperFacts, Printed
from ..results.table import marks
from ..settings.section import Section

# How what a statement is repeated for is called in sentences.
_LABELS = {**DATASETS, "acc": "accuracy", "aen": "number of examinations", "aec": "cost"}
# The share of cases on which two methods differ the paper does not say; 10% is favourable to it, independent verdicts
# would give about 50%.
DISCORDANT = (0.1, 0.4)
MOST_RUNS = 6
_SIGNS = {"<": operator.lt, "≤": operator.le, ">": operator.gt, "≥": operator.ge, "=": operator.eq, "≠": operator.ne}


class Stated(Section):
    """A statement of the paper that its other figures can bear out or not; see the head of ``audit.yaml``. ``at`` is
    the value of ``each`` that a repeated statement is about."""

    id: str
    place: str
    says: str
    each: tuple[str, ...] = ("",)
    at: str = ""
    printed: str | int = ""
    within: str = ""
    unit: str = ""
    quotes: dict[str, str] = Field(default_factory=dict)
    items: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    leads: tuple[str, ...] = ()
    detects: tuple[str, ...] = ()
    note: str = ""

    def repeated(self) -> Iterator[Stated]:
        """The statement about each value that it is repeated for."""
        for value in self.each:
            label = _LABELS.get(value, value)
            texts: dict[str, Any] = {name: getattr(self, name).replace("{each}", label) for name in ("says", "note")}
            for name in ("holds", "leads", "detects"):
                texts[name] = tuple(address.replace("{each}", value) for address in getattr(self, name))
            yield self.model_copy(update=texts | {"at": value})


class Recomputed(NamedTuple):
    """What the paper's other figures make of a statement; ``part`` tells several of one statement apart, ``printed``
    stands where the statement itself prints nothing."""

    text: str
    agrees: bool
    note: str = ""
    part: str = ""
    printed: str = ""


# ---- Sorts of statements ---------------------------------------------------------------------------------------------


def quoted(facts: PaperFacts, stated: Stated) -> Iterator[Recomputed]:
    """Numbers in the text that repeat a table's."""
    for address, text in stated.quotes.items():
        said, cell = Printed.of(text), facts[address]
        yield Recomputed(cell.text, abs(said - cell) < said.half + cell.half, part=address, printed=text)


def equals(stated: Stated, follows: Callable[..., Fraction], *figures: Printed) -> Recomputed:
    """A number that ``follows`` from others: to its last place, whole numbers exactly, or ``within`` what its words
    allow, such as ``0.5`` or ``10%``."""
    text = str(stated.printed)
    said = Printed.of(text)
    slack = said.half if "." in text else Fraction(0)
    if stated.within.endswith("%"):
        slack = abs(said) * Fraction(stated.within[:-1]) / 100
    elif stated.within:
        slack = Fraction(stated.within)
    low, high = span(follows, *figures)
    found = plain(follows(*figures), len(text.partition(".")[2]) + 2)
    return Recomputed(f"{found}{stated.unit}", low - slack <= said <= high + slack)


def span(follows: Callable[..., Fraction], *figures: Printed) -> tuple[Fraction, Fraction]:
    """Least and greatest result over the ends to which the figures may have been rounded."""
    ends = [sorted({figure - figure.half, figure + figure.half}) for figure in figures]
    results = [follows(*corner) for corner in itertools.product(*ends)]
    return min(results), max(results)


def holds(*terms: Any) -> Recomputed:
    """Quantities with signs between them, ``holds(a, "<", b)``: figures are shown as printed, others as computed."""
    quantities, signs = terms[::2], terms[1::2]
    pairs = zip(signs, itertools.pairwise(quantities), strict=True)
    agrees = all(_SIGNS[sign](*pair) for sign, pair in pairs)
    shown = [term if isinstance(term, str) else getattr(term, "text", None) or plain(term, 4) for term in terms]
    return Recomputed(f"{' '.join(shown)}: {'true' if agrees else 'false'}", agrees)


def first(values: Mapping[str, Fraction], row: str, order: str) -> Recomputed:
    """Whether a row comes first, the ``least`` or the ``greatest`` value leading."""
    sign = {"least": 1, "greatest": -1}[order]
    ahead = sorted((n for n in values if sign * values[n] < sign * values[row]), key=lambda n: sign * values[n])
    note = f"Before it: {', '.join(f'{n} ({plain(values[n])})' for n in ahead)}." if ahead else ""
    found = f"{len(ahead) + 1} of {len(values)} ({plain(values[row])})"
    return Recomputed(found, not ahead, note, printed=f"1 of {len(values)}")


def count(stated: Stated, verdicts: Mapping[str, bool]) -> Recomputed:
    """How many rows satisfy something."""
    found = [row for row, holding in verdicts.items() if holding]
    few, word = found, "These"
    if 4 * len(found) > 3 * len(verdicts):
        few, word = [row for row in verdicts if row not in found], "All but"
    note = f"{word}: {', '.join(few)}." if few else ""
    return Recomputed(f"{len(found)} of {len(verdicts)}", len(found) == stated.printed, note,
                      printed=f"{stated.printed} of {len(verdicts)}")  # fmt: skip


def listed(stated: Stated, items: Sequence[str]) -> Recomputed:
    """How many things the paper lists."""
    return Recomputed(str(len(items)), len(items) == stated.printed, f"Listed: {', '.join(items)}.")


def like_others(values: Mapping[str, Fraction], rows: Sequence[str]) -> Iterator[Recomputed]:
    """Whether the values of some rows lie where those of all others do."""
    others = [value for row, value in values.items() if row not in rows]
    low, high = min(others), max(others)
    for row in rows:
        yield Recomputed(plain(values[row], 4), low <= values[row] <= high, part=row,
                         printed=f"{plain(low)} to {plain(high)} for the other rows")  # fmt: skip


def averages(facts: PaperFacts) -> Iterator[Recomputed]:
    """Every average of Table 1 as the unweighted mean of the three data sets."""
    for method, metric in itertools.product(facts.rows(), METRICS):
        parts = [facts[f"main:{method}:{dataset}.{metric}"] for dataset in DATASETS]
        printed = facts[f"main:{method}:average.{metric}"]
        low, high = span(_mean, *parts)
        agrees = low - printed.half < printed < high + printed.half
        yield Recomputed(plain(_mean(*parts), 4), agrees, part=f"{method} {metric}", printed=printed.text)


def attainable(facts: PaperFacts, addresses: Iterable[str], dataset: str) -> Iterator[Recomputed]:
    """Accuracies as k right of the cases of a data set.

    The arithmetic of Brown and Heathers' GRIM test (2017): a mean of N yes-or-no verdicts is a multiple of 1/N.
    """
    trials = facts.cases(dataset)
    for address in addresses:
        figure = facts[address]
        right, near = _right(figure, trials), int(figure * trials / 100)
        nearest = ", ".join(f"{k}/{trials} = {100 * k / trials:.2f}" for k in (near, near + 1))
        runs = ", ".join(map(str, _runs(figure, trials))) or f"none up to {MOST_RUNS}"
        note = "" if right is not None else f"As the mean of m runs on these cases: m = {runs}."
        exact = nearest if right is None else f"{right}/{trials}"
        yield Recomputed(exact, right is not None, note, part=address, printed=figure.text)


def pooled_together(facts: PaperFacts, addresses: Iterable[str], dataset: str) -> Recomputed:
    """Whether one number of pooled runs explains several accuracies at once."""
    fit = {facts[address].text: _runs(facts[address], facts.cases(dataset)) for address in addresses}
    common = sorted(set.intersection(*map(set, fit.values())))
    each = "; ".join(f"{text}: {', '.join(map(str, runs)) or 'none'}" for text, runs in fit.items())
    return Recomputed(", ".join(map(str, common)) or "none fits all", bool(common), f"Runs that fit each: {each}.",
                      printed="one number of runs behind all")  # fmt: skip


def _runs(figure: Printed, trials: int) -> list[int]:
    """How many runs of ``trials`` verdicts each can have been averaged."""
    return [runs for runs in range(1, MOST_RUNS + 1) if _right(figure, trials * runs) is not None]


def _right(figure: Printed, trials: int) -> int | None:
    """Right verdicts of ``trials`` that round to a printed percentage, however a half is rounded; None if there are
    none."""
    k = round(figure * trials / 100)
    return k if abs(Fraction(100 * k, trials) - figure) <= figure.half else None


def marked(facts: PaperFacts, table: str, columns: Iterable[str], *names: str) -> Iterator[Recomputed]:
    """Marks of the best values (``names``: and the second-best), among all rows but those in gray; the greatest
    accuracy is best, of all else the least."""
    rows = [row for row, group in facts.groups[table].items() if group != CLOSED]
    for column in columns:
        values = {row: float(figure) for row, figure in facts.column(column, rows, table).items()}
        right = marks(values, 2, higher_is_better=column.endswith("acc"))
        given = {row: facts.marks[f"{table}:{row}:{column}"] for row in rows}
        printed, found = (
            "; ".join(f"{name}: {', '.join(r for r in rows if at[r] == name) or 'none'}" for name in names)
            for at in (given, right)
        )
        yield Recomputed(found, printed == found, part=column, printed=printed)


def repeats(facts: PaperFacts) -> Iterator[Recomputed]:
    """Whatever the text states in several places."""
    for name, statements in facts.statements.items():
        if len(statements) > 1:
            values = list(dict.fromkeys(s.value for s in statements))
            about = statements[0].about[:1].upper() + statements[0].about[1:]
            note = f"{about}. {'; '.join(f'{s.value}: {s.place}' for s in statements)}."
            text = " / ".join(values[1:]) or f"{len(statements)} places"
            yield Recomputed(text, len(values) == 1, note, part=name, printed=values[0])


def detectable(facts: PaperFacts, points: Fraction, dataset: str) -> Recomputed:
    """A difference in points against the least one that McNemar's exact test finds with 80% power, the share of
    discordant cases lying between the two of DISCORDANT."""
    from ..evaluation.significance import detectable_difference

    trials = facts.cases(dataset)
    low, high = (100 * detectable_difference(trials, share) for share in DISCORDANT)
    shares = " to ".join(f"{share:.0%}" for share in DISCORDANT)
    note = f"Found with 80% power on {trials} cases of which {shares} are discordant."
    return Recomputed(f"{low:.1f} to {high:.1f} points", points >= low, note, printed=f"{plain(points)} points")


def utility(facts: PaperFacts, row: str) -> Fraction:
    """Mean utility on MIMIC-IV with cost in USD; unavailable requests, which only lower it, left out."""
    accuracy, tests, cost = (facts[f"main:{row}:mimic_iv.{metric}"] for metric in METRICS)
    return accuracy / 100 - facts["text:lambda_test"] * tests - facts["text:lambda_cost"] * cost


def pooled(facts: PaperFacts, row: str) -> Fraction:
    """Accuracy when each case of the three data sets counts once."""
    cases = {dataset: facts.cases(dataset) for dataset in DATASETS}
    right = sum(facts[f"main:{row}:{dataset}.acc"] * count for dataset, count in cases.items())
    return right / sum(cases.values())


def plain(number: Any, decimals: int = 2) -> str:
    """A number without zeros at its end."""
    text = f"{float(number):.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _mean(*parts: Fraction) -> Fraction:
    return sum(parts, Fraction(0)) / len(parts)
