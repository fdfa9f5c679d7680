"""Between runs: remove work in ``state/`` that no job needs, find altered results, and say why a result would be made
again."""

import difflib
import os
import re
import shutil
from pathlib import Path

from ..records import RunRecord, record_files
from ..settings import SettingsError
from .evidence import EVIDENCE
from .experiment import Experiment
from .mlflow_index import flatten
from .stages import STAGES


def clean_state(experiment: Experiment) -> tuple[list[Path], list[Path]]:
    """Remove state folders whose key no job of the configuration has; returns (removed, kept)."""
    names = re.compile(r"([0-9a-f]{16})(-[0-9a-f]{16})?")  # without digests of inputs: of an earlier version
    folders = sorted(p for p in Path(experiment.state).glob("*") if p.is_dir() and names.fullmatch(p.name))
    current = experiment.current_keys()
    removed = [folder for folder in folders if folder.name.partition("-")[0] not in current]
    for folder in removed:
        shutil.rmtree(folder)
    return removed, [folder for folder in folders if folder not in removed]


def altered(results: Path) -> dict[Path, str]:
    """Results that are gone, or not what was written by the digests in their run.json, or whose record is another
    job's; and what is wrong. MLflow's database changes by itself and is left out."""
    faults: dict[Path, str] = {}
    for place in record_files(results):
        record = RunRecord.read(place)
        paths = (path for path in record.altered(place) if path.name != "mlflow.db")
        faults |= {path: "not what was written" if path.exists() else "gone" for path in paths}
        if exchanged := record.exchanged(place):
            faults[place] = exchanged
    return faults


def _makers(experiment: Experiment) -> dict[Path, Path]:
    """The record of each output in the results, both by path."""
    places = record_files(Path(experiment.results))
    return {path.resolve(): place for place in places for path in RunRecord.read(place).files(place)}


def record_of(experiment: Experiment, result: Path) -> Path:
    """The ``run.json`` of the job that wrote a result: an output, a file in an output folder, or the record itself.

    Raises SettingsError for a file that no record lists; the message names outputs whose paths are similar.
    """
    if result.name.endswith("run.json") and result.is_file():
        return result
    makers = _makers(experiment)
    for path in (whole := result.resolve(), *whole.parents):
        if path in makers:
            return makers[path]
    outputs = [os.path.relpath(path) for path in makers]
    near = difflib.get_close_matches(str(result), outputs, 3, 0.5)
    near += sorted(path for path in outputs if Path(path).stem == result.stem and path not in near)
    advice = f"did you mean {' or '.join(near[:3])}?" if near else f"results are in {experiment.results}"
    raise SettingsError(f"{result}: no job has written it; {advice}")


def differences(experiment: Experiment, record: Path) -> list[str]:
    """What has changed since a ``run.json`` was written, one line each, also of the results that it was made of; empty
    when it is current."""
    makers, waiting, lines = _makers(experiment), [record], list[str]()
    for place in waiting:
        old = RunRecord.read(place)
        changes = [moved] if (moved := old.exchanged(place)) else _changes(experiment, old)
        lines += [line if place == record else f"{place}: {line}" for line in changes]
        read = [file.path for file in old.inputs.values()]
        read += map(experiment.resolved, experiment.files_behind(old.stage) if old.stage in EVIDENCE else [])
        before = {makers[path] for path in (Path(name).resolve() for name in read) if path in makers}
        waiting += sorted(before - {*waiting})
    return lines


def _changes(experiment: Experiment, old: RunRecord) -> list[str]:
    """Settings, code and inputs of a job that are not what they were."""
    stage, options = old.stage, old.options
    if stage not in STAGES:
        return [f"there is no stage {stage} any more: an earlier version made this result"]
    before, now = flatten(old.parameters), flatten(experiment.parameters(stage, options))
    lines = [f"setting {name}: {before.get(name, 'absent')} -> {now.get(name, 'absent')}"
             for name in sorted(before | now) if before.get(name) != now.get(name)]  # fmt: skip
    if old.code_digest != experiment.code(stage, options):
        lines.append(f"code reachable from {', '.join(experiment.roots(stage, options))} was edited")
    changed = (file.path for file in old.inputs.values() if experiment.digests.digest(file.path) != file.sha256)
    return [*lines, *(f"input {path} has changed" for path in changed)]
