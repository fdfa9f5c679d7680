"""A project that has run once, and what such a run makes."""

import shutil
from pathlib import Path

from filelock import FileLock
from project import ROOT, Project

from cdpr.settings import load_settings
from cdpr.workflow.plan import Plan

MADE = Plan(load_settings(ROOT / "config.yaml", ROOT / "config/ci.yaml"))
# What the report page shows, by the table of stages; whoever adds a table or figure need not come here.
SHOWN = {stage: [path.removeprefix("<results>/") for path in MADE.outputs(stage)] for stage in MADE.on_page}
TABLES = [path for stage in SHOWN if stage.startswith("write_") for path in SHOWN[stage] if "run.json" not in path]
PICTURES = [path for paths in SHOWN.values() for path in paths if path.endswith(".png")]
LAST = {"write_report": 1, "index_runs": 1, "reproduce_paper": 1}
REPORTS = dict.fromkeys([*SHOWN, "write_claims"], 1) | LAST


def finished(folder: Path, shared: Path) -> Project:
    """A project of one's own in a new folder that has made everything once, and the inspector with it. It is a copy of
    one in ``shared``, which whoever comes first makes; what Snakemake said then stands in its `said.txt`."""
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            part = shared.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            (part / "said.txt").write_text(Project(part).snakemake("reproduce_paper", "inspector"))
            part.rename(shared)
    shutil.copytree(shared, folder, symlinks=True)
    return Project(folder)
