"""The runs that the study compares, and the reasons why others are left out."""

from ..agents.build import agent_class
from ..settings import Settings, SettingsError, TrainedRun, is_served, job_of, seeds_of, variants, why_not_run
from ..settings.datasets import BENCHMARKS


def study_run(settings: Settings, name: str) -> str:
    """Return the name of the run that represents a method in the study. For a variant it is the run of its first seed,
    such as ``cdpr-seed0`` for ``cdpr``; for an agent it is the agent's own name. Raises SettingsError for a name that
    is neither."""
    if name in variants(settings):
        return str(TrainedRun(job_of(settings, name), seeds_of(settings, name)[0]))
    if name not in settings.agents:
        raise SettingsError(f"study: {name!r} is neither a variant of workflow/experiments.yaml nor an agent of "
                            f"workflow/agents.yaml ({', '.join(settings.agents)})")  # fmt: skip
    return name


def study_runs(settings: Settings) -> list[str]:
    """List the runs of all methods in ``study.methods`` that can be compared. Methods with the same training have the
    same run, which is listed once. Raises SettingsError for a name that is neither variant nor agent."""
    runs = {name: study_run(settings, name) for name in settings.study.methods}
    return list(dict.fromkeys(run for name, run in runs.items() if not _why_left_out(settings, name)))


def left_out(settings: Settings) -> dict[str, str]:
    """Return the reason for each method in ``study.methods`` that cannot be compared."""
    return {name: why for name in settings.study.methods if (why := _why_left_out(settings, name))}


def _why_left_out(settings: Settings, name: str) -> str:
    """Return the reason why a method cannot be compared, empty where it can. A trained variant always can."""
    entry = settings.agents.get(name)
    if entry is None:
        return ""
    if why := why_not_run(settings, name):
        return why
    if entry.model and not entry.own_policy and is_served(settings, entry):
        return "its server runs for evaluations alone: start one yourself, and set `at` of its model"
    if entry.knows_hospital and not all_synthetic(settings):
        return "real cases have no known model"
    return "it sees the whole record, and so decides nothing step by step" if agent_class(entry).whole_record else ""


def all_synthetic(settings: Settings) -> bool:
    """Whether all benchmarks have cases of the synthetic hospital, because the settings name no files of real ones."""
    return all(settings.data.source(dataset).path is None for dataset in BENCHMARKS)
