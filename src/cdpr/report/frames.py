"""The results as two tidy frames for a notebook: ``evaluations.parquet`` and ``trainings.parquet``.

docs/reference/frames.md lists their columns with units. No word of a case is in them: where cases are credentialed,
their names are pseudonyms.
"""

from collections.abc import Iterable, Mapping

import pandas as pd

from ..environment import Effort
from ..environment.utility import TERMS
from ..evaluation.replay import COUNTS
from ..files import replacing
from ..job import Job
from ..settings import Settings, TrainedRun
from .curves import read_training
from .methods import Method, page_methods
from .results import Results


def write_frames(settings: Settings, job: Job) -> None:
    """Write every evaluation and training that the results page shows. Raises as :class:`Results` and CurveError."""
    results = Results(settings, job.inputs["results"], page_methods(settings))
    owners: dict[str, Method] = {}
    for method in results.methods:
        owners |= {run: method for run in method.runs if run not in owners}
    frames = {
        "evaluations": _joined(owners, (evaluation_frame(results, run) for run in owners)),
        "trainings": _joined(owners, (read_training(results.folder, run) for run in owners)),
    }
    for name, frame in frames.items():
        with replacing(job.out[name]) as partial:
            frame.to_parquet(partial, index=False)
        job.metrics[f"rows/{name}"] = len(frame)
    print(", ".join(f"{len(frame):,} rows of {name}" for name, frame in frames.items()))


def evaluation_frame(results: Results, run: str) -> pd.DataFrame:
    """Make a frame of a run's evaluations on all data sets, without diagnoses, with the value of each term of the
    utility."""
    frames = [results.read(path) for dataset in results.datasets if (path := results.path(run, dataset)).exists()]
    if not frames:
        return pd.DataFrame()
    frame = pd.concat(frames, ignore_index=True).drop(columns=["diagnosis", "gold"])
    effort = Effort(**{name: frame[f"n_{name}"] for name in COUNTS}, cost_usd=frame.cost_usd)
    parts = {f"utility_{term.symbol.lower()}": term.value(effort, results.settings.utility,
                                                          results.settings.environment.tests)
             for term in TERMS}  # fmt: skip
    return frame.rename(columns={"note_id": "case"}).assign(**parts)


def _joined(owners: Mapping[str, Method], frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Join the frames below each other, with method and seed in front of each row."""
    parts = [frame for frame in frames if len(frame)]
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"run": pd.Series(dtype=str)})
    seeds = {run: trained.seed for run in owners if (trained := TrainedRun.parse(run))}
    of_method = {name: whole.run.map({run: getattr(method, name) for run, method in owners.items()})
                 for name in ("name", "label", "group")}  # fmt: skip
    front = {"method": of_method.pop("name"), **of_method, "seed": whole.run.map(seeds).astype("Int64")}
    return pd.concat([pd.DataFrame(front), whole], axis=1)
