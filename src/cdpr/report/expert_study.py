"""The expert study as a table, in the paper's layout beside the paper's figures, and as the radar of its figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..job import Job
from ..results.methods import DATASETS, agent, tier_mark, trained
from ..results.paper import read_paper
from ..results.table import Cell, Column, Heading, Row, Sheet, Table, interval, marks
from ..settings import Settings, variants
from ..study.analysis import Analysis, Comparison
from ..study.records import StateMeans, read_lines
from ..study.returned import PHYSICIAN, SIMULATED
from ..study.rubric import rubric
from . import style
from .study_states import states_table

# Rows of `workflow/paper/expert_study.csv`.
_PRINTED = ("CDPR", "next best", "GPT-5.4", "Med-Gemma-27B")
_METHOD = Column("method", "Method", align="l")
_SCORES = (_METHOD, *(Column(d.name, d.title, decimals=2) for d in rubric()))
_TESTS = (
    Column("than", "Ours against", align="l"), Column("dimension", "Dimension", align="l"),
    Column("difference", "Difference [95%]"), Column("p", "p", decimals=4),
    Column("holm", "over dimensions", "Holm", decimals=4), Column("holm_all", "over all", "Holm", decimals=4),
    Column("holm_zeros_dropped", "zeros dropped", "Holm, otherwise", decimals=4),
    Column("holm_permutation", "permutation", "Holm, otherwise", decimals=4),
    Column("rank_biserial", "Rank-biserial", decimals=2, signed=True), Column("shift", "Hodges-Lehmann [95%]"),
    Column("zeros", "Ties"), Column("sd", "SD"), Column("states_needed", "States needed"),
)  # fmt: skip


def write_expert_study(settings: Settings, job: Job) -> None:
    """Write the table."""
    _sheet(settings, _read(job.inputs["study"])).write(job.out)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """The table of the results in a folder, and for the page every state that was rated."""
    analysis = _read(folder / "study" / "analysis.json")
    tables = _sheet(settings, analysis)
    means = folder / "study" / "means.jsonl"
    if not analysis.scores or not means.exists():
        return tables
    states = states_table(settings, read_lines(means, StateMeans), {run: label(settings, run) for run in analysis.runs})
    return replace(tables, parts=[*tables.parts, (f"States: {who(analysis)}", states)])


def who(analysis: Analysis) -> str:
    """The raters, so that nobody takes simulated ones for physicians."""
    if not analysis.kind:
        return "no ratings yet"
    names = {SIMULATED: "simulated raters (no physician has rated)", PHYSICIAN: "physicians"}
    return f"{len(analysis.raters)} {names.get(analysis.kind, analysis.kind)}"


def label(settings: Settings, run: str) -> str:
    """What tables call a run."""
    name = run.partition("-seed")[0]
    method = trained(settings, name) if name in variants(settings) else agent(settings, run)
    return method.label


def plot_expert_study(settings: Settings, job: Job) -> None:
    """Radar of the means, one line per method; a star where ours is significantly above the next-best baseline. Beside
    it every mean with its interval, which a radar cannot show."""
    analysis, facts = _read(job.inputs["study"]), rubric()
    with style.drawing(7.2, 3.9, job.out) as figure:
        if not analysis.scores:
            style.empty(figure.subplots(), "no ratings yet: the forms are in results/study/forms")
            style.foot(figure, settings, [who(analysis)])
            return
        radar = figure.add_subplot(1, 2, 1, projection="polar")
        points = figure.add_subplot(1, 2, 2)
        angles = [2 * math.pi * n / len(facts) for n in range(len(facts))]
        for position, run in enumerate(analysis.runs):
            look = style.look_of(settings, run.partition("-seed")[0], position)
            means = [analysis.scores[d.name][run] for d in facts]
            values = [at.value or math.nan for at in means]
            radar.plot([*angles, angles[0]], [*values, values[0]], color=look.colour, marker=look.marker,
                       linestyle=look.line, markersize=3.5, linewidth=1.3, label=label(settings, run))  # fmt: skip
            at = [n + 0.13 * (position - (len(analysis.runs) - 1) / 2) for n in range(len(facts))]
            spread = [[v - (m.low or v) for v, m in zip(values, means, strict=True)],
                      [(m.high or v) - v for v, m in zip(values, means, strict=True)]]  # fmt: skip
            points.errorbar(values, at, xerr=spread, color=look.colour, marker=look.marker, linestyle="none",
                            markersize=3.5, linewidth=1)  # fmt: skip
        stars = {d.name: "*" if _significant(analysis, d.name) else "" for d in facts}
        radar.set_xticks(angles, [f"{_two_lines(d.title)} {stars[d.name]}" for d in facts], fontsize=7)
        radar.tick_params(axis="x", pad=15)
        radar.set_theta_offset(math.pi / 2)
        radar.set_ylim(1, 5)
        radar.set_yticks([2, 3, 4, 5], ["2", "3", "4", "5"], fontsize=6)
        points.set_yticks(range(len(facts)), [f"{d.title} {stars[d.name]}" for d in facts], fontsize=7)
        points.invert_yaxis()
        points.set_title(who(analysis), fontsize=8)
        points.set_xlabel("mean score [95% interval over cases]")
        figure.legend(*radar.get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=7)
        style.foot(figure, settings, [
            f"{who(analysis)}; {analysis.states} states of {analysis.cases} cases, "
            f"sampled from {label(settings, analysis.source)}",
            f"*: {label(settings, analysis.ours)} above the next-best baseline, signed-rank test (Pratt), Holm over "
            f"the dimensions, p < {analysis.level:g}",
        ])  # fmt: skip


def _two_lines(title: str) -> str:
    return title.replace("-", "-\n", 1) if "-" in title else title.replace(" ", "\n", 1)


def _significant(analysis: Analysis, dimension: str) -> bool:
    """Whether ours is significantly above the next-best baseline."""
    if len(analysis.runs) < 2:
        return False
    test = analysis.comparison(dimension, analysis.next_best(dimension))
    return test.difference > 0 and test.holm < analysis.level


def _read(path: Path) -> Analysis:
    return Analysis.model_validate_json(path.read_text(encoding="utf-8"))


def _sheet(settings: Settings, analysis: Analysis) -> Sheet:
    raters = who(analysis)
    parts = [(f"Scores: {raters}", _scores(settings, analysis, read_paper()))]
    if analysis.comparisons:
        parts.append((f"Tests: {raters}", _tests(settings, analysis)))
    if analysis.alpha:
        parts.append((f"Agreement: {raters}", _agreement(settings, analysis)))
    return Sheet(f"Expert study: {raters} ({tier_mark(settings)})", parts, _long(settings, analysis))


def _scores(settings: Settings, analysis: Analysis, printed: Mapping[str, float]) -> Table:
    rows: list[Row | Heading] = [Heading(f"Here: {who(analysis)}, {analysis.states} states")]
    best = {d.name: marks({run: at.value for run, at in analysis.scores.get(d.name, {}).items()}, 2,
                          higher_is_better=True) for d in rubric()}  # fmt: skip
    for run in analysis.runs:
        if not analysis.scores:
            rows.append(Row({"method": label(settings, run)}, hole="no ratings yet"))
            continue
        cells: dict = {"method": label(settings, run)}
        for d in rubric():
            at = analysis.scores[d.name][run]
            star = "*" if run == analysis.ours and _significant(analysis, d.name) else ""
            text = "—" if at.value is None else interval(at.value, at.low or at.value, at.high or at.value) + star
            cells[d.name] = Cell(at.value, best[d.name].get(run, ""), text)
        rows.append(Row(cells))
    rows += [Row({"method": name}, hole=why) for name, why in analysis.left_out.items()]
    rows.append(Heading("The paper: three physicians, 300 states of its own (as far as it prints figures)"))
    for name in _PRINTED:
        printed_scores = {d.name: printed.get(f"expert:{name}:{d.name}") for d in rubric()}
        rows.append(Row({"method": f"{name} (paper)",
                         **{n: Cell(v, text=f"{v:.1f}") 
                             for n, v in printed_scores.items() if v is not None}}))  # fmt: skip
    text = f"Mean scores from 1 to 5, {who(analysis)} ({tier_mark(settings)})."
    return Table(_SCORES, rows, text, _notes(settings, analysis), "tab:expert_study")


def _notes(settings: Settings, analysis: Analysis) -> list[str]:
    among = "one of them" if analysis.source in analysis.runs else "none of them"
    notes = [
        f"Every method decided at the same {analysis.states} states of {analysis.cases} cases, sampled by turn from "
        f"the workups of {label(settings, analysis.source)}, {among}: the sample favours methods that decide like it.",
        "Scores of a state are averaged over raters, then over states; intervals resample cases. "
        f"*: above the next-best baseline, p < {analysis.level:g} after Holm's correction over the dimensions.",
    ]
    if analysis.kind == SIMULATED:
        notes.insert(
            0,
            "Simulated raters score by the synthetic hospital's exact posterior, with habits and noise of their own. "
            "They show that the study works, and nothing of what physicians would say.",
        )
    if analysis.missing:
        notes.append(f"{analysis.missing} ratings are missing; means are over what there is.")
    return notes


def _tests(settings: Settings, analysis: Analysis) -> Table:
    rows: list[Row | Heading] = []
    titles = {d.name: d.title for d in rubric()}
    for test in analysis.comparisons:
        cells = {name: getattr(test, name) for name in (c.key for c in _TESTS)} | {
            "than": label(settings, test.than), "dimension": titles[test.dimension],
            "difference": Cell(test.difference, _side(test, analysis.level),
                               interval(test.difference, test.low, test.high, signed=True)),
            "shift": Cell(test.shift, text=interval(test.shift, test.shift_low, test.shift_high, signed=True)),
        }  # fmt: skip
        rows.append(Row(cells))
    text = (f"{label(settings, analysis.ours)} against every baseline, per-state means, {who(analysis)} "
            f"({tier_mark(settings)}).")  # fmt: skip
    return Table(_TESTS, rows, text, [
        "Two-sided paired Wilcoxon signed-rank tests; zeros take part in the ranking (Pratt). Holm over the "
        "dimensions: per baseline, as in the paper; over all: every test of the study.",
        f"States needed: for {analysis.target:g} points at this SD, with 80% power, at Holm's worst level over "
        "all tests.",
    ], "tab:expert_tests")  # fmt: skip


def _side(test: Comparison, level: float) -> str:
    if test.holm >= level:
        return ""
    return "better" if test.difference > 0 else "worse"


def _agreement(settings: Settings, analysis: Analysis) -> Table:
    columns = [Column("dimension", "Dimension", align="l"), Column("alpha", "Krippendorff's alpha [95%]"),
               *([Column("model", "Language model, raters")] if analysis.model_rater else [])]  # fmt: skip
    rows = []
    for d in rubric():
        at = analysis.alpha[d.name]
        known = at.value is not None and at.low is not None and at.high is not None
        alpha = interval(at.value, at.low, at.high) if known else "undefined"  # type: ignore[arg-type]
        cells: dict = {"dimension": d.title, "alpha": Cell(at.value, text=alpha)}
        rows.append(Row(cells | ({"model": analysis.model_rater[d.name].value} if analysis.model_rater else {})))
    text = f"Agreement of {who(analysis)}, ordinal ({tier_mark(settings)})."
    return Table(columns, rows, text, [
        "Units are proposals. The paper reports more than 0.7 on every dimension and calls it substantial; by "
        "Krippendorff's own bounds data are reliable from 0.8, and allow tentative conclusions from 0.667.",
    ], "tab:expert_agreement")  # fmt: skip


def _long(settings: Settings, analysis: Analysis) -> Table:
    """One line per data set (or all), dimension and run."""
    keys = ("raters", "dataset", "dimension", "run", "method", "mean", "low", "high", "alpha", "holm_against_next_best")
    lines: list[dict] = []
    for d in rubric():
        for run in analysis.runs if analysis.scores else ():
            at, alpha = analysis.scores[d.name][run], analysis.alpha[d.name].value
            test = analysis.comparison(d.name, analysis.next_best(d.name)) if len(analysis.runs) > 1 else None
            head = {"raters": analysis.kind, "dimension": d.name, "run": run, "method": label(settings, run)}
            lines.append(head | {
                "dataset": "all", "mean": at.value, "low": at.low, "high": at.high, "alpha": alpha,
                "holm_against_next_best": test.holm if test and run == analysis.ours else None})  # fmt: skip
            lines += [head | {"dataset": dataset, "mean": means[d.name][run]}
                      for dataset, means in analysis.datasets.items() if dataset in DATASETS]  # fmt: skip
    columns: Sequence[Column] = [Column(key, key, decimals=4) for key in keys]
    return Table(columns, [Row(line) for line in lines])
