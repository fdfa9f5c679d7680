"""A project that has run once, and the files of such a run."""

import shutil
from pathlib import Path

from filelock import FileLock
from page import outputs
from project import ROOT, Project

from cdpr.pipeline.experiment import Experiment
from cdpr.settings import load_settings

PLAN = Experiment(load_settings(ROOT / "config.yaml", ROOT / "config/ci.yaml"))
# Files of the report page by stage; a new table or figure appears here by itself.
ON_PAGE = outputs(str(ROOT / "config/ci.yaml"))
TABLES = [path for stage in ON_PAGE if stage.startswith("write_") for path in ON_PAGE[stage] if "run.json" not in path]
PICTURES = [path for paths in ON_PAGE.values() for path in paths if path.endswith(".png")]
LAST = {"write_report": 1, "index_runs": 1, "reproduce_paper": 1}
REPORTS = dict.fromkeys([*ON_PAGE, "claims", "write_frames", "inspector"], 1) | LAST


def finished_project(folder: Path, shared: Path) -> Project:
    """A project in a new folder that has made everything once, also the inspector. It is a copy of the project in
    ``shared``, which the first caller makes; its `output.txt` holds Snakemake's output."""
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            part = shared.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            (part / "output.txt").write_text(Project(part).snakemake("reproduce_paper", "inspector"))
            part.rename(shared)
    shutil.copytree(shared, folder, symlinks=True)
    return Project(folder)
