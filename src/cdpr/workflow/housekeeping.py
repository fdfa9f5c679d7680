"""Between runs: remove work in ``state/`` that no job needs, find altered results, and say why a result would be made
anew."""

import difflib
import re
import shutil
from pathlib import Path

from ..records import RunRecord, record_files
from ..settings import SettingsError
from ..tracking.mlflow_index import flatten
from .plan import Plan
from .stages import STAGES


def clean_state(plan: Plan) -> tuple[list[Path], list[Path]]:
    """Remove state folders whose key no job of the configuration has; returns (removed, kept)."""
    folders = sorted(p for p in Path(plan.state).glob("*") if p.is_dir() and re.fullmatch(r"[0-9a-f]{16}", p.name))
    current = plan.current_keys()
    removed = [folder for folder in folders if folder.name not in current]
    for folder in removed:
        shutil.rmtree(folder)
    return removed, [folder for folder in folders if folder.name in current]


def altered(results: Path) -> list[Path]:
    """Results that are gone or not what was written, by the digests in their run.json. MLflow's database changes by
    itself and is left out."""
    records = ((place, RunRecord.read(place)) for place in record_files(results))
    return [path for place, record in records for path in record.altered(place) if path.name != "mlflow.db"]


def record_of(plan: Plan, result: Path) -> Path:
    """The ``run.json`` of the job that wrote a result: an output, a file in an output folder, or the record itself.

    Raises SettingsError for a file that no record lists; the message names outputs whose paths are similar.
    """
    if result.name.endswith("run.json") and result.is_file():
        return result
    outputs = {path: place for place in record_files(Path(plan.results)) for path in RunRecord.read(place).files(place)}
    places = {path.resolve(): place for path, place in outputs.items()}
    whole = result.resolve()
    for path in (whole, *whole.parents):
        if path in places:
            return places[path]
    near = difflib.get_close_matches(str(result), map(str, outputs), 3, 0.5)
    near += sorted(str(path) for path in outputs if path.stem == result.stem and str(path) not in near)
    advice = f"did you mean {' or '.join(near[:3])}?" if near else f"results are in {plan.results}"
    raise SettingsError(f"{result}: no job has written it; {advice}")


def differences(plan: Plan, record: Path) -> list[str]:
    """What has changed since a ``run.json`` was written, one line each; empty when its key still holds."""
    old = RunRecord.read(record)
    stage, options = old.stage, old.options
    if stage not in STAGES:
        return [f"there is no stage {stage} any more: an earlier version made this result"]
    if plan.key(stage, **options) == old.run_key:
        return []
    before, now = flatten(old.parameters), flatten(plan.parameters(stage, options))
    lines = [f"setting {name}: {before.get(name, 'absent')} -> {now.get(name, 'absent')}"
             for name in sorted(before | now) if before.get(name) != now.get(name)]  # fmt: skip
    if old.code_digest != plan.code(stage, options):
        lines.append(f"code reachable from {', '.join(plan.roots(stage, options))} was edited")
    return lines or ["a stage before it has changed: ask `cdpr why` for the run.json of its inputs"]
