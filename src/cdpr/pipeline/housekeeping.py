"""Maintenance between runs: remove work in ``state/`` that no job needs, find damaged results, and explain why a result
would be made again."""

import difflib
import os
import re
import shutil
from pathlib import Path

from ..records import RunRecord, record_files
from ..settings import SettingsError, flatten
from .evidence import EVIDENCE
from .experiment import Experiment
from .stages import STAGES


def clean_state(experiment: Experiment) -> tuple[list[Path], list[Path]]:
    """Remove the folders of unfinished work in ``state/`` whose run key no job of the configuration has. Returns the
    paths of the folders that were removed, and of those that are kept."""
    # RUN_KEY-DIGEST; folders of an earlier version have no digest.
    names = re.compile(r"([0-9a-f]{16})(-[0-9a-f]{16})?")
    folders = sorted(p for p in Path(experiment.state).glob("*") if p.is_dir() and names.fullmatch(p.name))
    current = experiment.current_keys()
    removed = [folder for folder in folders if folder.name.partition("-")[0] not in current]
    for folder in removed:
        shutil.rmtree(folder)
    return removed, [folder for folder in folders if folder not in removed]


def find_altered(results: Path) -> dict[Path, str]:
    """Compare all results in the folder ``results`` with the digests in their run.json. Returns what is wrong, as text
    by path: files that are gone or edited, and records that were moved to the folder of another job."""
    faults: dict[Path, str] = {}
    for file in record_files(results):
        record = RunRecord.read(file)
        faults |= {path: "not what was written" if path.exists() else "gone" for path in record.altered_outputs(file)}
        if exchanged := record.describe_exchange(file):
            faults[file] = exchanged
    return faults


def _records_by_output(experiment: Experiment) -> dict[Path, Path]:
    """The path of the record (``run.json``) that lists each output in the results, by the output's path."""
    records = record_files(Path(experiment.results))
    return {output.resolve(): record for record in records for output in RunRecord.read(record).output_digests(record)}


def record_of(experiment: Experiment, result: Path) -> Path:
    """Find the ``run.json`` of the job that wrote a result: an output, a file in an output folder, or the record
    itself.

    Raises SettingsError for a file that no record lists; the message names outputs whose paths are similar.
    """
    if result.name.endswith("run.json") and result.is_file():
        return result
    records = _records_by_output(experiment)
    for path in (result.resolve(), *result.resolve().parents):
        if path in records:
            return records[path]
    # Paths as a user types them: relative, unless they are outside of this folder.
    relative = {path: os.path.relpath(path) for path in records}
    outputs = [str(path) if name.startswith("..") else name for path, name in relative.items()]
    similar = difflib.get_close_matches(str(result), outputs, 3, 0.5)
    # Outputs of the same name in other folders, or with another ending.
    similar += sorted(path for path in outputs if Path(path).stem == result.stem and path not in similar)
    advice = f"did you mean {' or '.join(similar[:3])}?" if similar else f"results are in {experiment.results}"
    raise SettingsError(f"{result}: no job has written it; {advice}")


def list_differences(experiment: Experiment, record: Path) -> list[str]:
    """List what has changed since the ``run.json`` at ``record`` was written: one line for each change of its job, and
    of the jobs from whose results it was made, directly or not; a line about another job begins with the path of that
    job's record. Empty where the result is current."""
    records = _records_by_output(experiment)
    lines, waiting = list[str](), [record]
    for path in waiting:  # the list grows while it is read
        old = RunRecord.read(path)
        exchanged = old.describe_exchange(path)
        changes = [exchanged] if exchanged else _list_changes(experiment, old)
        lines += [line if path == record else f"{path}: {line}" for line in changes]
        inputs = [file.path for file in old.inputs.values()]
        if old.stage in EVIDENCE:  # a table or figure: its rule gives the results no names, so `inputs` lacks them
            inputs += map(experiment.resolve_path, experiment.files_behind(old.stage))
        earlier = {records[Path(name).resolve()] for name in inputs if Path(name).resolve() in records}
        waiting += sorted(earlier - {*waiting})
    return lines


def _list_changes(experiment: Experiment, old: RunRecord) -> list[str]:
    """List the settings, code and inputs of a job that are not what its record ``old`` says, one line each."""
    stage, options = old.stage, old.options
    if stage not in STAGES:
        return [f"there is no stage {stage} any more: an earlier version made this result"]
    before, now = flatten(old.parameters), flatten(experiment.parameters(stage, options))
    changed_settings = sorted(name for name in before | now if before.get(name) != now.get(name))
    lines = [f"setting {name}: {before.get(name, 'absent')} -> {now.get(name, 'absent')}" for name in changed_settings]
    if old.code_digest != experiment.code(stage, options):
        lines.append(f"code reachable from {', '.join(experiment.code_roots(stage, options))} was edited")
    changed = [file.path for file in old.inputs.values() if experiment.digests.digest(file.path) != file.sha256]
    return lines + [f"input {path} has changed" for path in changed]
