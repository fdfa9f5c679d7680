"""The expert study as a table, in the paper's layout beside the paper's figures, and as the radar of its figure."""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from ..job import Job
from ..settings import Settings, TrainedRun
from ..study.analysis import Analysis, Comparison, Interval
from ..study.ratings import PHYSICIAN, SIMULATED
from ..study.records import StateMeans, read_lines
from ..study.rubric import rubric
from . import layout, style
from .inspector.data import address
from .methods import DATASETS, agent_method, tier_mark, variant_method
from .paper import read_paper
from .table import EMPTY, Column, Row, Sheet, Table, interval

# Rows of `workflow/paper/expert_study.csv`.
_PRINTED = ("CDPR", "next best", "GPT-5.4", "Med-Gemma-27B")
_SIMULATED = (
    "Simulated raters score by the synthetic hospital's exact posterior, with habits and noise of their own. They show "
    "that the study works, and nothing of what physicians would say."
)


def write_expert_study(settings: Settings, job: Job) -> None:
    """Write the table."""
    _sheet(settings, Analysis.read(job.inputs["study"])).write(job.out)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make the table of the results in a folder, and for the page a list of every state that was rated."""
    analysis = Analysis.read(folder / "study" / "analysis.json")
    tables = _sheet(settings, analysis)
    means = folder / "study" / "means.jsonl"
    if not analysis.scores or not means.exists():
        return tables
    labels = {run: label(settings, run) for run in analysis.runs}
    states = states_table(settings, read_lines(means, StateMeans), labels, who(analysis))
    return replace(tables, parts=[*tables.parts, states])


def who(analysis: Analysis) -> str:
    """Describe the raters. Neither simulated ones nor those of a trial on synthetic cases are called physicians."""
    if not analysis.kind:
        return "no ratings yet"
    people = "raters of synthetic cases (a trial)" if analysis.synthetic else "physicians"
    names = {SIMULATED: "simulated raters (no physician has rated)", PHYSICIAN: people}
    return f"{len(analysis.raters)} {names[analysis.kind]}"


def label(settings: Settings, run: str) -> str:
    """Return the name of a run in tables."""
    name = _variant_of(run)
    return (agent_method(settings, name) if name == run else variant_method(settings, name)).label


def _variant_of(run: str) -> str:
    """Return the variant of a trained run, or the agent."""
    trained_run = TrainedRun.parse(run)
    return trained_run.variant if trained_run else run


def plot_expert_study(settings: Settings, job: Job) -> None:
    """Plot a radar of the means, one line per method, with a star where ours is significantly above the next-best
    baseline. Beside it every mean with its interval, which a radar cannot show."""
    analysis, facts = Analysis.read(job.inputs["study"]), rubric()
    with style.drawing(7.2, 3.9, job.out) as figure:
        if not analysis.scores:
            style.write_in_empty_panel(figure.subplots(), "no ratings yet: the forms are in results/study/forms")
            style.write_notes(figure, settings, [who(analysis)])
            return
        radar, points = figure.add_subplot(1, 2, 1, projection="polar"), figure.add_subplot(1, 2, 2)
        rows = np.arange(len(facts))
        angles = 2 * math.pi * rows / len(facts)
        for position, run in enumerate(analysis.runs):
            look = style.look_of(settings, _variant_of(run), position)
            mean, low, high = np.array([_ends(analysis.scores[d.name][run]) for d in facts]).T
            radar.plot([*angles, angles[0]], [*mean, mean[0]], color=look.colour, marker=look.marker,
                       linestyle=look.line, markersize=3.5, linewidth=1.3, label=label(settings, run))  # fmt: skip
            at = rows + 0.13 * (position - (len(analysis.runs) - 1) / 2)
            points.errorbar(mean, at, xerr=[mean - low, high - mean], color=look.colour, marker=look.marker,
                            linestyle="none", markersize=3.5, linewidth=1)  # fmt: skip
        stars = ["*" if _significant(analysis, d.name) else "" for d in facts]
        titles = [re.sub("[- ]", lambda gap: gap[0].strip() + "\n", d.title, count=1) for d in facts]
        radar.set_xticks(angles, [f"{t} {star}".rstrip() for t, star in zip(titles, stars, strict=True)], fontsize=7)
        radar.tick_params(axis="x", pad=3)
        for text, angle in zip(radar.get_xticklabels(), angles, strict=True):  # beside the circle, not on it
            across, up = round(-math.sin(angle)), round(math.cos(angle))
            text.set(ha=("center", "left", "right")[across], va=("center", "bottom", "top")[up])
        radar.set_theta_offset(math.pi / 2)
        radar.set_ylim(1, 5)
        radar.set_yticks([2, 3, 4, 5], ["2", "3", "4", "5"], fontsize=6)
        points.set_yticks(rows, [f"{d.title} {star}" for d, star in zip(facts, stars, strict=True)], fontsize=7)
        points.invert_yaxis()
        points.set_title(who(analysis) + ("\nsynthetic cases" if analysis.synthetic else ""), fontsize=7)
        points.set_xlabel("mean score [95% interval over cases]", fontsize=7.5)
        handles = radar.get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=3, fontsize=7, borderpad=1.2)
        figure.get_layout_engine().set(w_pad=0.1)
        style.write_notes(figure, settings, [
            f"{who(analysis)}; {analysis.states} states of {analysis.cases} cases, "
            f"sampled from {label(settings, analysis.source)}",
            f"*: {label(settings, analysis.ours)} above the next-best baseline, signed-rank test (Pratt), Holm over "
            f"the dimensions, p < {analysis.level:g}" if any(stars) else "",
            "scores run from 1 (centre of the radar) to 5",
        ])  # fmt: skip


def _ends(at: Interval) -> tuple[float, float, float]:
    """Return value and ends of an interval; an undefined value is NaN, a missing end the value."""
    value = math.nan if at.value is None else at.value
    return value, value if at.low is None else at.low, value if at.high is None else at.high


def _next_best(analysis: Analysis, dimension: str) -> Comparison | None:
    """Return the comparison of ours with the next-best baseline, if there is one."""
    return analysis.comparison(dimension, analysis.next_best(dimension)) if len(analysis.runs) > 1 else None


def _significant(analysis: Analysis, dimension: str) -> bool:
    test = _next_best(analysis, dimension)
    return test is not None and test.difference > 0 and test.holm < analysis.level


def _sheet(settings: Settings, analysis: Analysis) -> Sheet:
    raters = who(analysis)
    parts = [_scores(settings, analysis, raters)]
    parts += [_tests(settings, analysis, raters)] if analysis.comparisons else []
    parts += [_agreement(settings, analysis, raters)] if analysis.alpha else []
    title = f"Expert study: {raters} ({tier_mark(settings)})"
    return layout.declared_sheet(settings, "expert_study", parts, _long(settings, analysis), title)


def _scores(settings: Settings, analysis: Analysis, raters: str) -> tuple[str, Table]:
    """Mean scores with intervals, above the paper's."""
    printed = read_paper()
    here, theirs = (f"Here: {raters}, {analysis.states} states",
                    "The paper: three physicians, 300 states of its own (as far as it prints figures)")  # fmt: skip
    starred = {dimension for dimension in analysis.scores if _significant(analysis, dimension)}
    rows: list[Row] = []
    for run in analysis.runs:
        row = {"label": label(settings, run), "heading": here, "learned": True,
               "reason": "" if analysis.scores else "no ratings yet"}  # fmt: skip
        for dimension, of in analysis.scores.items():
            at, star = of[run], "*" if run == analysis.ours and dimension in starred else ""
            text = EMPTY if at.value is None else interval(*_ends(at)) + star
            row |= {dimension: at.value, f"{dimension}_text": text}
        rows.append(row)
    rows += [{"label": name, "heading": here, "reason": why} for name, why in analysis.left_out.items()]
    for name in _PRINTED:
        scores = {d.name: printed.get(f"expert:{name}:{d.name}") for d in rubric()}
        texts = {f"{dimension}_text": f"{v:.1f}" for dimension, v in scores.items() if v is not None}
        rows.append({"label": f"{name} (paper)", "heading": theirs} | scores | texts)
    columns = [Column(d.name, d.title, marked=2, higher_is_better=True) for d in rubric()]
    return layout.part(
        settings, "expert_study.scores", rows, columns=columns, raters=raters, states=analysis.states,
        cases=analysis.cases, source=label(settings, analysis.source),
        among="one of them" if analysis.source in analysis.runs else "none of them",
        simulated=_SIMULATED if analysis.kind == SIMULATED else "",
        star=f"*: above the next-best baseline, p < {analysis.level:g} after Holm's correction over the dimensions."
        if starred else "",
        missing=f"{analysis.missing} ratings are missing; means are over what there is." if analysis.missing else "",
    )  # fmt: skip


def _tests(settings: Settings, analysis: Analysis, raters: str) -> tuple[str, Table]:
    """Tests of ours against every baseline."""
    titles = {d.name: d.title for d in rubric()}
    rows = []
    for test in analysis.comparisons:
        favour = ("better" if test.difference > 0 else "worse") if test.holm < analysis.level else ""
        rows.append(test.model_dump() | {
            "than": label(settings, test.than), "dimension": titles[test.dimension], "difference_low": test.low,
            "difference_high": test.high, "difference_mark": favour})  # fmt: skip
    ours, target = label(settings, analysis.ours), analysis.target
    return layout.part(settings, "expert_study.tests", rows, raters=raters, ours=ours, target=target)


def _agreement(settings: Settings, analysis: Analysis, raters: str) -> tuple[str, Table]:
    """Krippendorff's alpha of every dimension."""
    alphas = [(d.title, analysis.alpha[d.name]) for d in rubric()]
    rows = [{"dimension": title, "alpha": at.value, "alpha_low": at.low, "alpha_high": at.high,
             "alpha_text": "undefined" if None in (at.value, at.low, at.high) else None}
            for title, at in alphas]  # fmt: skip
    return layout.part(settings, "expert_study.agreement", rows, raters=raters)


def _long(settings: Settings, analysis: Analysis) -> list[Row]:
    """Make one row per data set (or all), dimension and run."""
    rows: list[Row] = []
    for dimension, run in itertools.product(analysis.scores, analysis.runs):
        overall, test = analysis.scores[dimension][run], _next_best(analysis, dimension)
        labels = {"raters": analysis.kind, "dimension": dimension, "run": run, "method": label(settings, run)}
        rows.append(labels | {
            "dataset": "all", "mean": overall.value, "low": overall.low, "high": overall.high,
            "alpha": analysis.alpha[dimension].value,
            "holm_against_next_best": test.holm if test and run == analysis.ours else None})  # fmt: skip
        rows += [labels | {"dataset": dataset, "mean": means[dimension][run]}
                 for dataset, means in analysis.datasets.items() if dataset in DATASETS]  # fmt: skip
    return rows


def states_table(
    settings: Settings, means: Sequence[StateMeans], labels: Mapping[str, str], raters: str = ""
) -> tuple[str, Table]:
    """List the states with the mean score of each run there and a link to the decision in the inspector; states where
    ours (the first of ``labels``: run and label) leads most come first. Actions are in the inspector alone: those of
    credentialed cases are case text."""
    states: dict[str, StateMeans] = {}
    scores: dict[str, dict[str, float | None]] = defaultdict(dict)
    for line in means:
        known = [mean for mean in line.means.values() if mean is not None]
        scores[line.state][line.run] = fmean(known) if known else None
        states[line.state] = line
    source = means[0].source
    linked = source in settings.inspector.runs
    rows: list[Row] = []
    for digest, state in states.items():
        ours, *rest = (scores[digest].get(run) for run in labels)
        others = [score for score in rest if score is not None]
        link = address(state.source, state.dataset, case=state.note_id, decoding="greedy", turn=state.turn)
        rows.append({**scores[digest], "state": f"{DATASETS[state.dataset]}, turn {state.turn + 1}",
                     "state_link": link if linked else "",
                     "lead": ours - fmean(others) if ours is not None and others else None})  # fmt: skip
    rows.sort(key=lambda row: math.inf if row["lead"] is None else -row["lead"])
    columns = [*(Column(run, label) for run, label in labels.items()),
               Column("lead", "Ours above the mean of the others", signed=True)]  # fmt: skip
    note = f"To see the decisions, name {source} in inspector.runs."
    if linked:
        note = "Every state leads to its decision in the inspector, which snakemake inspector makes."
    return layout.part(settings, "expert_study.states", rows, columns=columns, raters=raters, way=note)
