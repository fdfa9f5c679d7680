"""The paper audited against itself: checks as data (``workflow/paper/audit.yaml``) over its printed figures.

A check recomputes one printed number or statement from others. Figures carry the rounding they were printed with, so a
number disagrees only when no unrounded figures could explain it. Expressions name figures by address in brackets
(see :class:`.paper.PaperFacts`): ``100 * (1 - [dynamic:CDPR:aec] / [dynamic:Static diagnosis:aec])``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from ..results.methods import CLOSED, DATASETS
from ..results.paper import METRICS, PaperFacts, PaperFactsError, Printed, facts_folder, read_paper
from ..results.table import marks

ADDRESS = re.compile(r"\[([^\[\]]+)\]")
# How what `each` runs over is called in sentences.
LABELS = {**DATASETS, "acc": "accuracy", "aen": "number of examinations", "aec": "cost"}
# More figures than this in one expression are not tried at all ends of their rounding.
MOST_ENDS = 10


@dataclass(frozen=True)
class Finding:
    """One number or statement of the paper, and what the paper's other figures make of it."""

    id: str
    place: str
    says: str
    printed: str
    recomputed: str
    agrees: bool
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


class Outcome(NamedTuple):
    """What one check finds; ``part`` tells the findings of a check apart."""

    printed: str
    recomputed: str
    agrees: bool
    note: str = ""
    part: str = ""


def audit_paper(folder: str | Path | None = None) -> list[Finding]:
    """All findings, in the order of ``audit.yaml`` in ``folder`` (default: ``workflow/paper``).

    Raises PaperFactsError for facts or checks that are malformed; the message names file and check.
    """
    import yaml

    folder = Path(folder) if folder else facts_folder()
    path = folder / "audit.yaml"
    try:
        checks = yaml.safe_load(path.read_text(encoding="utf-8"))["checks"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise PaperFactsError(f"{path}: no list of checks: {error}") from error
    facts = read_paper(folder)
    findings = [finding for check in checks for finding in _findings(facts, check, path)]
    repeated = {f.id for f in findings if sum(g.id == f.id for g in findings) > 1}
    if repeated:
        raise PaperFactsError(f"{path}: the same id twice: {', '.join(sorted(repeated))}")
    return findings


def _findings(facts: PaperFacts, check: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """``each: {name: [values]}`` makes one check per value, which ``{name}`` stands for in all texts."""
    each = check.get("each") or {"": [""]}
    body = {key: content for key, content in check.items() if key != "each"}
    for name, value in ((name, value) for name, values in each.items() for value in values):
        mark, label = f"{{{name}}}", LABELS.get(value, value)
        at = {key: _filled(text, mark, label if key in ("says", "place", "note") else value)
              for key, text in body.items()}  # fmt: skip
        try:
            head = {key: at.pop(key) for key in ("id", "place", "says", "kind")}
            note = at.pop("note", "")
            kind = KINDS[head.pop("kind")]
            inspect.signature(kind).bind(facts, **at)
            for found in kind(facts, **at):
                identity = ".".join(filter(None, (head["id"], value, found.part)))
                part = re.sub(r"^[a-z]+:", "", found.part).replace(":", ", ")
                place = ", ".join(filter(None, (head["place"], part)))
                notes = " ".join(filter(None, (found.note, note)))
                yield Finding(identity, place, head["says"], found.printed, found.recomputed, found.agrees, notes)
        except (KeyError, TypeError, ValueError, SyntaxError, ZeroDivisionError) as error:
            raise PaperFactsError(f"{path}: check {check.get('id', check)}: {type(error).__name__}: {error}") from error


def _filled(data: Any, mark: str, value: str) -> Any:
    if isinstance(data, str):
        return data.replace(mark, value)
    if isinstance(data, dict):
        return {_filled(key, mark, value): _filled(content, mark, value) for key, content in data.items()}
    return [_filled(content, mark, value) for content in data] if isinstance(data, list) else data


# ---- expressions --------------------------------------------------------------------------------------------------

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_COMPARE = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
            ast.NotEq: operator.ne}  # fmt: skip
_SIGNS = {ast.Lt: "<", ast.LtE: "≤", ast.Gt: ">", ast.GtE: "≥", ast.Eq: "=", ast.NotEq: "≠"}
_CALLS: dict[str, Callable] = {"abs": abs, "min": min, "max": max}


@functools.lru_cache(maxsize=1024)
def _parsed(expression: str) -> tuple[ast.expr, tuple[str, ...]]:
    addresses = tuple(dict.fromkeys(ADDRESS.findall(expression)))
    plain = ADDRESS.sub(lambda found: f"x{addresses.index(found[1])}", expression)
    return ast.parse(plain, mode="eval").body, addresses


def evaluate(expression: str, facts: PaperFacts) -> Fraction | bool:
    """The exact value of an expression over printed figures: + - * / min max abs, comparisons, ``and``.

    Raises KeyError for an unknown address, ValueError for any other construct.
    """
    tree, addresses = _parsed(expression)
    return _value(tree, [facts.numbers[address].value for address in addresses])


def span(expression: str, facts: PaperFacts) -> tuple[Fraction, Fraction]:
    """Least and greatest value of an expression over the ends to which its figures may have been rounded."""
    tree, addresses = _parsed(expression)
    figures = [facts.numbers[address] for address in addresses]
    if len(figures) > MOST_ENDS:
        raise ValueError(f"more than {MOST_ENDS} figures in {expression!r}")
    ends = [sorted({figure.value - figure.half, figure.value + figure.half}) for figure in figures]
    values = [_value(tree, list(corner)) for corner in itertools.product(*ends)]
    return min(values), max(values)


def shown(expression: str, facts: PaperFacts) -> str:
    """A comparison with what stands on its sides: figures as printed, terms as computed."""
    tree, addresses = _parsed(expression)
    figures = [facts.numbers[address] for address in addresses]

    def side(node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return figures[int(node.id.removeprefix("x"))].text
        return _number(_value(node, [figure.value for figure in figures]), 4)

    parts = tree.values if isinstance(tree, ast.BoolOp) else [tree]
    texts = []
    for part in parts:
        if not isinstance(part, ast.Compare):
            raise ValueError(f"no comparison: {expression!r}")
        signs = [_SIGNS[type(sign)] for sign in part.ops]
        sides = [side(term) for term in (part.left, *part.comparators)]
        texts.append(" ".join([sides[0], *itertools.chain(*zip(signs, sides[1:], strict=True))]))
    return " and ".join(texts)


def _value(node: ast.expr, figures: Sequence[Fraction]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return Fraction(str(number))
        case ast.Name(id=name):
            return figures[int(name.removeprefix("x"))]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, figures)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _BINARY[type(sign)](_value(left, figures), _value(right, figures))
        case ast.Compare(left=left, ops=signs, comparators=others) if all(type(sign) in _COMPARE for sign in signs):
            terms = [_value(term, figures) for term in (left, *others)]
            pairs = zip(signs, itertools.pairwise(terms), strict=True)
            return all(_COMPARE[type(sign)](*pair) for sign, pair in pairs)
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, figures) for part in parts)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_value(arg, figures) for arg in args))
    raise ValueError(f"not allowed in an expression: {ast.unparse(node)}")


# ---- kinds of checks ----------------------------------------------------------------------------------------------


def quote(facts: PaperFacts, *, numbers: Mapping[str, str]) -> Iterator[Outcome]:
    """Numbers in the text that repeat a table's: by address, as the text prints them."""
    for address, text in numbers.items():
        stated, cell = Printed.of(text), facts.numbers[address]
        agrees = abs(stated.value - cell.value) < stated.half + cell.half
        yield Outcome(text, cell.text, agrees, part=address)


def value(facts: PaperFacts, *, printed: str, of: str, within: str = "", unit: str = "") -> Iterator[Outcome]:
    """A number that follows from others: to its last place, whole numbers exactly, or ``within`` what its words
    ("about") allow, such as ``0.5`` or ``10%``."""
    stated, (low, high) = Printed.of(printed), span(of, facts)
    slack = stated.half if "." in printed else Fraction(0)
    if within:
        slack = abs(stated.value) * Fraction(within[:-1]) / 100 if within.endswith("%") else Fraction(within)
    agrees = low - slack <= stated.value <= high + slack
    found = _number(evaluate(of, facts), len(printed.partition(".")[2]) + 2)
    yield Outcome(f"{printed}{unit}", f"{found}{unit}", agrees)


def number_of(facts: PaperFacts, *, printed: int, items: list[str] | None = None, group: str = "") -> Iterator[Outcome]:
    """How many things are listed: ``items``, or the rows of a group of Table 1."""
    found = items or [row for row, at in facts.groups["main"].items() if at == group]
    yield Outcome(str(printed), str(len(found)), len(found) == printed, f"Listed: {', '.join(found)}.")


def holds(facts: PaperFacts, *, that: str, printed: str = "") -> Iterator[Outcome]:
    """A statement about figures."""
    agrees = bool(evaluate(that, facts))
    yield Outcome(printed or "so stated", f"{shown(that, facts)}: {'true' if agrees else 'false'}", agrees)


def rank(facts: PaperFacts, *, of: str, row: str, order: str, printed: int = 1, among: str | list = "all",
         table: str = "main") -> Iterator[Outcome]:  # fmt: skip
    """The place of a row by an expression of ``{row}``, ``order`` being ``least`` or ``greatest`` first."""
    rows = _rows(facts, table, among)
    values = {name: evaluate(of.replace("{row}", name), facts) for name in rows}
    sign = {"least": 1, "greatest": -1}[order]
    ahead = sorted((n for n in rows if sign * values[n] < sign * values[row]), key=lambda n: sign * values[n])
    note = f"Before it: {', '.join(f'{n} ({_number(values[n])})' for n in ahead)}." if ahead else ""
    yield Outcome(f"{printed} of {len(rows)}", f"{len(ahead) + 1} of {len(rows)} ({_number(values[row])})",
                  len(ahead) + 1 == printed, note)  # fmt: skip


def count(facts: PaperFacts, *, where: str, printed: int, among: str | list = "all",
          table: str = "main") -> Iterator[Outcome]:  # fmt: skip
    """How many rows satisfy a statement about ``{row}``."""
    rows = _rows(facts, table, among)
    found = [name for name in rows if evaluate(where.replace("{row}", name), facts)]
    few, word = (
        (found, "These") if 4 * len(found) <= 3 * len(rows) else ([n for n in rows if n not in found], "All but")
    )
    note = f"{word}: {', '.join(few)}." if few else ""
    yield Outcome(f"{printed} of {len(rows)}", f"{len(found)} of {len(rows)}", len(found) == printed, note)


def like_others(facts: PaperFacts, *, of: str, rows: list[str]) -> Iterator[Outcome]:
    """Whether an expression of ``{row}`` lies for some rows of Table 1 where it lies for all others."""
    values = {name: evaluate(of.replace("{row}", name), facts) for name in facts.groups["main"]}
    others = [found for name, found in values.items() if name not in rows]
    low, high = min(others), max(others)
    for name in rows:
        yield Outcome(f"{_number(low)} to {_number(high)} for the other rows", _number(values[name], 4),
                      low <= values[name] <= high, part=name)  # fmt: skip


def averages(facts: PaperFacts, *, decimals: int = 2) -> Iterator[Outcome]:
    """Every average of Table 1 as the unweighted mean of the three data sets."""
    for method, metric in itertools.product(facts.groups["main"], METRICS):
        of = f"({' + '.join(f'[main:{method}:{place}.{metric}]' for place in DATASETS)}) / 3"
        stated = facts.numbers[f"main:{method}:average.{metric}"]
        low, high = span(of, facts)
        agrees = low - stated.half < stated.value < high + stated.half
        yield Outcome(stated.text, _number(evaluate(of, facts), decimals + 2), agrees, part=f"{method} {metric}")


def attainable(facts: PaperFacts, *, figures: Mapping[str, str | list[str]], pooled: int = 6) -> Iterator[Outcome]:
    """Accuracies as k right of N cases, by data set of N and address; ``{row}`` stands for all rows of Table 1.

    The arithmetic of Brown and Heathers' GRIM test (2017): a mean of N yes-or-no verdicts is a multiple of 1/N.
    """
    for cases, named in figures.items():
        for address in (a for pattern in _listed(named) for a in _addresses(facts, pattern)):
            number, trials = facts.numbers[address], int(facts.numbers[f"text:cases.{cases}"].value)
            right = _right(number, trials)
            near = int(number.value * trials / 100)
            nearest = ", ".join(f"{k}/{trials} = {100 * k / trials:.2f}" for k in (near, near + 1))
            pools = ", ".join(map(str, _runs(number, trials, pooled))) or f"none up to {pooled}"
            note = "" if right is not None else f"As the mean of m runs on these cases: m = {pools}."
            exact = f"{right}/{trials}" if right is not None else nearest
            yield Outcome(number.text, exact, right is not None, note, part=address)


def pooled_together(facts: PaperFacts, *, figures: list[str], cases: str, pooled: int = 6) -> Iterator[Outcome]:
    """Whether one number of pooled runs explains several accuracies at once."""
    trials = int(facts.numbers[f"text:cases.{cases}"].value)
    numbers = [facts.numbers[address] for address in figures]
    fit = {number.text: _runs(number, trials, pooled) for number in numbers}
    common = set.intersection(*(set(runs) for runs in fit.values()))
    each = "; ".join(f"{text}: {', '.join(map(str, runs)) or 'none'}" for text, runs in fit.items())
    yield Outcome("one number of runs behind all", ", ".join(map(str, sorted(common))) or "none fits all",
                  bool(common), f"Runs that fit each: {each}.")  # fmt: skip


def _runs(number: Printed, trials: int, most: int) -> list[int]:
    """How many runs of ``trials`` verdicts each can have been averaged, up to ``most``."""
    return [runs for runs in range(1, most + 1) if _right(number, trials * runs) is not None]


def _right(number: Printed, trials: int) -> int | None:
    """Right verdicts of ``trials`` that round to a printed percentage, however a half is rounded; None if there are
    none."""
    k = round(number.value * trials / 100)
    return k if abs(Fraction(100 * k, trials) - number.value) <= number.half else None


def marked(facts: PaperFacts, *, table: str, columns: Mapping[str, str], second: bool = False) -> Iterator[Outcome]:
    """Marks of best (and second-best) values, among all rows but those in gray; ``columns``: which end is best."""
    rows = _rows(facts, table, "competing")
    for column, order in columns.items():
        cells = {row: f"{table}:{row}:{column}" for row in rows}
        values = {row: float(facts.numbers[address].value) for row, address in cells.items()}
        right = marks(values, 2, higher_is_better={"least": False, "greatest": True}[order])
        given = {row: facts.marks[address] for row, address in cells.items()}
        names = ("best", "second") if second else ("best",)
        texts = ["; ".join(f"{name}: {', '.join(r for r in rows if at[r] == name) or 'none'}" for name in names)
                 for at in (given, right)]  # fmt: skip
        yield Outcome(texts[0], texts[1], texts[0] == texts[1], part=column)


def repeats(facts: PaperFacts) -> Iterator[Outcome]:
    """Whatever the text states in several places."""
    for name, stated in facts.statements.items():
        if len(stated) > 1:
            values = list(dict.fromkeys(s.value for s in stated))
            note = "; ".join(f"{s.value}: {s.place}" for s in stated) + "."
            agrees = len(values) == 1
            yield Outcome(values[0], " / ".join(values[1:]) or f"{len(stated)} places", agrees,
                          f"{stated[0].about[:1].upper()}{stated[0].about[1:]}. {note}", part=name)  # fmt: skip


def detectable(facts: PaperFacts, *, difference: str, cases: str, discordant: list[float]) -> Iterator[Outcome]:
    """A difference in points against the least one that McNemar's exact test finds with 80% power, the share of
    discordant cases lying between the two given."""
    from ..evaluation.statistics import detectable_difference

    trials, points = int(facts.numbers[f"text:cases.{cases}"].value), evaluate(difference, facts)
    low, high = (100 * detectable_difference(trials, share) for share in discordant)
    note = (
        f"Found with 80% power on {trials} cases of which {' to '.join(f'{s:.0%}' for s in discordant)} are discordant."
    )
    yield Outcome(f"{_number(points)} points", f"{low:.1f} to {high:.1f} points", points >= low, note)


KINDS: dict[str, Callable[..., Iterator[Outcome]]] = {
    kind.__name__: kind for kind in (quote, value, number_of, holds, rank, count, like_others, averages, attainable,
                                     pooled_together, marked, repeats, detectable)
}  # fmt: skip


def _rows(facts: PaperFacts, table: str, among: str | list) -> list[str]:
    groups = facts.groups[table]
    if isinstance(among, list):
        unknown = sorted(set(among) - set(groups))
        if unknown:
            raise ValueError(f"no rows of {table}: {', '.join(unknown)}")
        return among
    if among not in ("all", "competing"):
        raise ValueError(f"among must be all, competing or a list of rows, not {among!r}")
    return [row for row, group in groups.items() if among == "all" or group != CLOSED]


def _addresses(facts: PaperFacts, pattern: str) -> list[str]:
    return [pattern.replace("{row}", row) for row in facts.groups["main"]] if "{row}" in pattern else [pattern]


def _listed(named: str | list[str]) -> list[str]:
    return [named] if isinstance(named, str) else named


def _number(number: Any, decimals: int = 2) -> str:
    text = f"{float(number):.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
