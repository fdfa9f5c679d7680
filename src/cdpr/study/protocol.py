"""The study on one page, before anything is rated: sample, load, and how many states a difference takes."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..settings import Settings
from ..settings.datasets import BENCHMARKS, DATASETS
from ..settings.schema import Study
from .blinding import Items
from .methods import all_synthetic
from .records import StudyState
from .rubric import dimensions
from .statistics import LEVEL, TARGET, states_needed

_SPREADS = (0.5, 0.75, 1.0, 1.25, 1.5)
_MINUTES_PER_CARD = 1.5


def protocol(
    settings: Settings, states: Sequence[StudyState], items: Items, runs: Sequence[str], left_out: Mapping[str, str]
) -> str:
    """Markdown. It names the runs, so raters must not see it."""
    source = states[0].source
    among = "which is itself compared" if source in runs else "which is not compared"
    alike = ", those that read alike shown once" if settings.study.merge_identical else ""
    cards, ratings = len(items.contents), len(items.contents) * len(dimensions())
    return "\n".join([
        f"# Study {items.study}", "",
        "For whoever runs the study. It says which methods are compared: **do not hand it to raters.**", "",
        *_open_seed(settings),
        "## Sample", "",
        f"The states are decisions of {source}, {among}. A method is judged at moments that it might never have come "
        f"to: the sample favours methods that decide like {source}, and says nothing of states that it does not "
        "reach.", "",
        *_strata(states), "",
        "## What is rated", "",
        f"Methods: {', '.join(runs)}." + "".join(f" Left out: {name} ({why})." for name, why in left_out.items()),
        f"{cards} proposals at {len(states)} states{alike}; {len(dimensions())} dimensions.",
        *(f"{rater}: {cards} proposals, {ratings} ratings, about {cards * _MINUTES_PER_CARD / 60:.0f} hours at "
          f"{_MINUTES_PER_CARD:g} minutes a proposal." for rater in items.forms), "",
        "## Power", "", *_power(len(states), max(1, len(runs) - 1)), "",
    ])  # fmt: skip


def _open_seed(settings: Settings) -> list[str]:
    """A rater who knows the seed and this program could work out whose a code is."""
    if all_synthetic(settings) or settings.study.seed != Study.model_fields["seed"].default:
        return []
    return ["**Anyone knows `study.seed`, as it is the default: set a number that no rater knows, and make the forms "
            "again before they go out.**", ""]  # fmt: skip


def _strata(states: Sequence[StudyState]) -> list[str]:
    counts = Counter((state.dataset, state.turn) for state in states)
    turns = sorted({state.turn for state in states})
    rows = [f"| {DATASETS[d].label} | " + " | ".join(str(counts[d, turn]) for turn in turns)
            + f" | {len({s.note_id for s in states if s.dataset == d})} |" for d in BENCHMARKS]  # fmt: skip
    heads = ["states by turn", *map(str, turns), "cases"]
    return ["| " + " | ".join(heads) + " |", "|:--" + "|--:" * (len(heads) - 1) + "|", *rows]


def _power(states: int, baselines: int) -> list[str]:
    few, tests = len(dimensions()), len(dimensions()) * baselines
    rows = [
        f"| {sd:g} | {states_needed(TARGET, sd)} | {states_needed(TARGET, sd, few)} | "
        f"{states_needed(TARGET, sd, tests)} |"
        for sd in _SPREADS
    ]
    return [
        f"States that a paired signed-rank test needs to find {TARGET:g} points with 80% power at level "
        f"{LEVEL:g}, by the deviation of the differences between two methods' per-state means: for one test, for "
        f"Holm's worst case over the {few} dimensions, and over all {tests} tests. Here are {states}.",
        "", f"| deviation | one test | {few} tests | {tests} tests |", "|--:|--:|--:|--:|", *rows,
    ]  # fmt: skip
