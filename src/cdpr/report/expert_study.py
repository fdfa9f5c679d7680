"""The expert study as a table, in the paper's layout beside the paper's figures, and as the radar of its figure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from ..job import Job
from ..settings import Settings, TrainedRun
from ..study.analysis import Analysis
from ..study.ratings import PHYSICIAN, SIMULATED
from ..study.records import StateMeans, read_lines
from ..study.rubric import rubric
from . import layout, style
from .inspector.data import address
from .methods import DATASETS, agent, tier_mark, trained
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
    _sheet(settings, _read(job.inputs["study"])).write(job.out)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """The table of the results in a folder, and for the page every state that was rated."""
    analysis = _read(folder / "study" / "analysis.json")
    tables = _sheet(settings, analysis)
    means = folder / "study" / "means.jsonl"
    if not analysis.scores or not means.exists():
        return tables
    labels = {run: label(settings, run) for run in analysis.runs}
    states = states_table(settings, read_lines(means, StateMeans), labels, who(analysis))
    return replace(tables, parts=[*tables.parts, states])


def who(analysis: Analysis) -> str:
    """The raters. Neither simulated ones nor those of a trial on synthetic cases are called physicians."""
    if not analysis.kind:
        return "no ratings yet"
    people = "raters of synthetic cases (a trial)" if analysis.synthetic else "physicians"
    names = {SIMULATED: "simulated raters (no physician has rated)", PHYSICIAN: people}
    return f"{len(analysis.raters)} {names[analysis.kind]}"


def label(settings: Settings, run: str) -> str:
    """What tables call a run."""
    name = _variant_of(run)
    return (agent(settings, name) if name == run else trained(settings, name)).label


def _variant_of(run: str) -> str:
    """The variant of a trained run, or the agent."""
    trained_run = TrainedRun.parse(run)
    return trained_run.variant if trained_run else run


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
            look = style.look_of(settings, _variant_of(run), position)
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
        titles = [d.title.replace("-", "-\n", 1) if "-" in d.title else d.title.replace(" ", "\n", 1) for d in facts]
        names = [f"{t} {star}".rstrip() for t, star in zip(titles, stars.values(), strict=True)]
        radar.set_xticks(angles, names, fontsize=7)
        radar.tick_params(axis="x", pad=3)
        for text, angle in zip(radar.get_xticklabels(), angles, strict=True):  # beside the circle, not on it
            across, up = round(-math.sin(angle)), round(math.cos(angle))
            text.set(ha=("center", "left", "right")[across], va=("center", "bottom", "top")[up])
        radar.set_theta_offset(math.pi / 2)
        radar.set_ylim(1, 5)
        radar.set_yticks([2, 3, 4, 5], ["2", "3", "4", "5"], fontsize=6)
        points.set_yticks(range(len(facts)), [f"{d.title} {stars[d.name]}" for d in facts], fontsize=7)
        points.invert_yaxis()
        points.set_title(who(analysis) + ("\nsynthetic cases" if analysis.synthetic else ""), fontsize=7)
        points.set_xlabel("mean score [95% interval over cases]", fontsize=7.5)
        handles = radar.get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=3, fontsize=7, borderpad=1.2)
        figure.get_layout_engine().set(w_pad=0.1)
        style.foot(figure, settings, [
            f"{who(analysis)}; {analysis.states} states of {analysis.cases} cases, "
            f"sampled from {label(settings, analysis.source)}",
            f"*: {label(settings, analysis.ours)} above the next-best baseline, signed-rank test (Pratt), Holm over "
            f"the dimensions, p < {analysis.level:g}" if any(stars.values()) else "",
            "scores run from 1 (centre of the radar) to 5",
        ])  # fmt: skip


def _significant(analysis: Analysis, dimension: str) -> bool:
    test = analysis.comparison(dimension, analysis.next_best(dimension)) if len(analysis.runs) > 1 else None
    return test is not None and test.difference > 0 and test.holm < analysis.level


def _read(path: Path) -> Analysis:
    return Analysis.model_validate_json(path.read_bytes())


def _sheet(settings: Settings, analysis: Analysis) -> Sheet:
    raters = who(analysis)
    parts = [_scores(settings, analysis, raters)]
    parts += [_tests(settings, analysis, raters)] if analysis.comparisons else []
    parts += [_agreement(settings, analysis, raters)] if analysis.alpha else []
    title = f"Expert study: {raters} ({tier_mark(settings)})"
    return layout.declared_sheet(settings, "expert_study", parts, _long(settings, analysis), title)


def _scores(settings: Settings, analysis: Analysis, raters: str) -> tuple[str, Table]:
    printed = read_paper()
    here, theirs = (f"Here: {raters}, {analysis.states} states",
                    "The paper: three physicians, 300 states of its own (as far as it prints figures)")  # fmt: skip
    rows: list[Row] = []
    for run in analysis.runs:
        row = {"label": label(settings, run), "heading": here, "learned": True,
               "reason": "" if analysis.scores else "no ratings yet"}  # fmt: skip
        for dimension, of in analysis.scores.items():
            at, star = of[run], "*" if run == analysis.ours and _significant(analysis, dimension) else ""
            text = EMPTY if at.value is None else interval(at.value, at.low or at.value, at.high or at.value) + star
            row |= {dimension: at.value, f"{dimension}_text": text}
        rows.append(row)
    rows += [{"label": name, "heading": here, "reason": why} for name, why in analysis.left_out.items()]
    for name in _PRINTED:
        scores = {d.name: printed.get(f"expert:{name}:{d.name}") for d in rubric()}
        texts = {f"{dimension}_text": f"{v:.1f}" for dimension, v in scores.items() if v is not None}
        rows.append({"label": f"{name} (paper)", "heading": theirs} | scores | texts)
    columns = [Column(d.name, d.title, marked=2, higher_is_better=True) for d in rubric()]
    starred = any(_significant(analysis, dimension) for dimension in analysis.scores)
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
    titles = {d.name: d.title for d in rubric()}
    lines = []
    for test in analysis.comparisons:
        favour = ("better" if test.difference > 0 else "worse") if test.holm < analysis.level else ""
        lines.append(test.model_dump() | {
            "than": label(settings, test.than), "dimension": titles[test.dimension], "difference_low": test.low,
            "difference_high": test.high, "difference_mark": favour})  # fmt: skip
    ours, target = label(settings, analysis.ours), analysis.target
    return layout.part(settings, "expert_study.tests", lines, raters=raters, ours=ours, target=target)


def _agreement(settings: Settings, analysis: Analysis, raters: str) -> tuple[str, Table]:
    lines = []
    for d in rubric():
        at = analysis.alpha[d.name]
        undefined = "undefined" if None in (at.value, at.low, at.high) else None
        lines.append({"dimension": d.title, "alpha": at.value, "alpha_low": at.low, "alpha_high": at.high,
                      "alpha_text": undefined})  # fmt: skip
    return layout.part(settings, "expert_study.agreement", lines, raters=raters)


def _long(settings: Settings, analysis: Analysis) -> list[Row]:
    """One row per data set (or all), dimension and run."""
    lines: list[Row] = []
    for dimension, of in analysis.scores.items():
        test = analysis.comparison(dimension, analysis.next_best(dimension)) if len(analysis.runs) > 1 else None
        for run in analysis.runs:
            head = {"raters": analysis.kind, "dimension": dimension, "run": run, "method": label(settings, run)}
            lines.append(head | {
                "dataset": "all", "mean": of[run].value, "low": of[run].low, "high": of[run].high,
                "alpha": analysis.alpha[dimension].value,
                "holm_against_next_best": test.holm if test and run == analysis.ours else None})  # fmt: skip
            lines += [head | {"dataset": dataset, "mean": means[dimension][run]}
                      for dataset, means in analysis.datasets.items() if dataset in DATASETS]  # fmt: skip
    return lines


def states_table(
    settings: Settings, means: Sequence[StateMeans], labels: Mapping[str, str], raters: str = ""
) -> tuple[str, Table]:
    """One row per state with what raters gave there and the way to the decision in the inspector, where ours (the first
    of ``labels``: run and what it is called) does best first. Actions are in the inspector alone: of credentialed cases
    they are case text."""
    by_state: dict[str, dict[str, float | None]] = {}
    places = {line.state: line for line in means}
    for line in means:
        known = [mean for mean in line.means.values() if mean is not None]
        by_state.setdefault(line.state, {})[line.run] = fmean(known) if known else None
    source = means[0].source
    linked = source in settings.inspector.runs
    lines: list[Row] = []
    for state, scores in by_state.items():
        ours, *rest = (scores.get(run) for run in labels)
        others = [score for score in rest if score is not None]
        place = places[state]
        link = address(place.source, place.dataset, case=place.note_id, decoding="greedy", turn=place.turn)
        text = f"{DATASETS[place.dataset]}, turn {place.turn + 1}"
        lead = ours - fmean(others) if ours is not None and others else None
        lines.append({**scores, "state": text, "state_link": link if linked else "", "lead": lead})
    lines.sort(key=lambda line: math.inf if line["lead"] is None else -line["lead"])
    columns = [*(Column(run, label) for run, label in labels.items()),
               Column("lead", "Ours above the mean of the others", signed=True)]  # fmt: skip
    note = f"To see the decisions, name {source} in inspector.runs."
    if linked:
        note = "Every state leads to its decision in the inspector, which snakemake inspector makes."
    return layout.part(settings, "expert_study.states", lines, columns=columns, raters=raters, way=note)
