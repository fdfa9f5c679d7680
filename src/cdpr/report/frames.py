"""All results as two tidy frames for a notebook: ``evaluations.parquet`` and ``trainings.parquet``.

docs/reference/frames.md lists their columns with units. They hold no text of a case; where cases are credentialed, the
names of cases are pseudonyms.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from ..environment import Effort
from ..environment.utility import TERMS
from ..evaluation.row import COUNTS
from ..files import replacing
from ..job import Job
from ..settings import Settings, seeds_of_runs
from .curves import read_training
from .methods import Method, page_methods
from .results import Results


def write_frames(settings: Settings, job: Job) -> None:
    """Write every evaluation and every training of the results page to the Parquet files ``evaluations`` and
    ``trainings``. Raises as :class:`Results`, and TableError for a broken file of training metrics."""
    results = Results(settings, job.inputs["results"], page_methods(settings))
    methods: dict[str, Method] = {}
    for method in results.methods:
        for run in method.runs:
            methods.setdefault(run, method)  # a run that several variants share counts for the first of them
    frames = {
        "evaluations": _add_methods(methods, [evaluation_frame(results, run) for run in methods]),
        "trainings": _add_methods(methods, [read_training(results.folder, run) for run in methods]),
    }
    for name, frame in frames.items():
        with replacing(job.out[name]) as partial:
            frame.to_parquet(partial, index=False)
        job.metrics[f"rows/{name}"] = len(frame)
    print(", ".join(f"{len(frame):,} rows of {name}" for name, frame in frames.items()))


def evaluation_frame(results: Results, run: str) -> pd.DataFrame:
    """Return the evaluations of a run on all data sets: a row per data set, decoding and case, without the texts of
    diagnoses, and with each term of the utility in a column of its own (``utility_cost``). It is empty where the run
    was not evaluated."""
    paths = [results.path(run, dataset) for dataset in results.datasets]
    frames = [results.read_evaluation(path) for path in paths if path.exists()]
    if not frames:
        return pd.DataFrame()
    frame = pd.concat(frames, ignore_index=True).drop(columns=["diagnosis", "gold"]).rename(columns={"note_id": "case"})
    # `Effort` holds the counts of one episode; here each count is a column, so that a term of the utility is computed
    # for all rows at once.
    effort = Effort(**{name: frame[f"n_{name}"] for name in COUNTS}, cost_usd=frame.cost_usd)
    for term in TERMS:
        value = term.value(effort, results.settings.utility, results.settings.environment.tests)
        frame[f"utility_{term.symbol.lower()}"] = value
    return frame


def _add_methods(methods: Mapping[str, Method], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all ``frames`` as one frame, with columns in front that say which method each row is of:
    ``method`` (its name), ``label``, ``group`` and ``seed`` (missing for agents). ``methods`` maps the names in the
    column ``run`` to their methods."""
    no_rows = pd.DataFrame({"run": pd.Series(dtype=str)})
    filled = [frame for frame in frames if len(frame)]
    # A trained run has one seed, the run of an agent none.
    about = pd.DataFrame([{"method": method.name, "label": method.label, "group": method.group,
                           "seed": next(iter(seeds_of_runs([run])), None), "run": run}
                          for run, method in methods.items()])  # fmt: skip
    return about.astype({"seed": "Int64"}).merge(pd.concat(filled or [no_rows], ignore_index=True), how="right")
