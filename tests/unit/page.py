"""Tables and figures of the results page by stage, in its order."""

from pathlib import Path

from cdpr.job import PageEntry
from cdpr.pipeline.experiment import Experiment
from cdpr.pipeline.page import stage_of_result
from cdpr.settings import load_settings

ROOT = Path(__file__).parents[2]


def page(*overlays: str) -> dict[str, PageEntry]:
    """The parts of the page. ``overlays`` are files after ``--configfile``."""
    parts = Experiment(load_settings(ROOT / "config.yaml", *overlays)).page()
    return {stage_of_result(path): part for path, part in parts.items()}


def outputs(*overlays: str) -> dict[str, list[str]]:
    """Files of these parts below the results."""
    kinds = {"tables": ["md", "csv", "tex", "run.json"], "figures": ["png", "pdf", "run.json"]}
    stems = {stage: part.file.rpartition(".")[0] for stage, part in page(*overlays).items()}
    files = {stage: [f"{stem}.{kind}" for kind in kinds[stem.partition("/")[0]]] for stage, stem in stems.items()}
    files["plot_sensitivity"].append("figures/sensitivity.csv")
    return files
