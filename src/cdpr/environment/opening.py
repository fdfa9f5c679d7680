"""Opens the environment with the judge and the matcher that the settings name.

The module of judges that ask a model is imported by name, so that a job that judges by tables does not depend on it.
"""

import importlib
from collections.abc import Collection

from ..llm import ModelSpec, open_model
from ..settings import DECIDING, TABLES, Settings, SettingsError, judging_models
from .episode import DiagnosticEnvironment
from .table_judging import TableJudge

_JUDGING = "cdpr.environment.model_judging"


def open_environment(settings: Settings, *, credentialed: bool) -> DiagnosticEnvironment:
    """Open the environment with the judge and the matcher that the settings name: a language model, or tables of names
    where none is named. ``credentialed`` says that the cases are under a data use agreement: their diagnoses and
    requests then go to another machine only under ``governance.remote_agreement``. Raises SettingsError for a model
    that cannot be opened and GovernanceError for one that the agreement forbids, both before any request."""
    judge, matcher, fuzzy_cutoff = None, None, settings.environment.fuzzy_cutoff
    if spec := _judge_spec(settings, "judge.model", credentialed):
        judge = importlib.import_module(_JUDGING).ModelJudge(open_model(spec))
    if spec := _judge_spec(settings, "matcher.model", credentialed):
        matcher = importlib.import_module(_JUDGING).ModelMatcher(open_model(spec), fuzzy_cutoff)
    return DiagnosticEnvironment(settings.environment, judge, matcher)


def open_second_judge(settings: Settings, *, credentialed: bool) -> TableJudge | None:
    """Open the second judge, which the setting ``judge.second`` names: ``tables`` or a language model; None where it
    names none. A model then judges without the tables of names, so that errors of the tables show in the comparison.
    ``credentialed`` says that the cases are under a data use agreement. Raises SettingsError for a model that cannot be
    opened and GovernanceError for one that the agreement forbids, both before any request."""
    if settings.judge.second == TABLES:
        return TableJudge()
    spec = _judge_spec(settings, "judge.second", credentialed)
    if spec is None:
        return None
    return importlib.import_module(_JUDGING).ModelJudge(open_model(spec), "second_judge", tables_first=False)


def check_models(
    settings: Settings, dataset: str, acting: ModelSpec | None = None, judging: Collection[str] = DECIDING, *,
    credentialed: bool,
) -> dict[str, str]:  # fmt: skip
    """Check before any work that models can be used: the ``acting`` one (None: there is none), and those that judge and
    match. ``judging`` are the settings that name these, by default ``judge.model`` and ``matcher.model``.

    Returns tags for ``run.json``: where text of credentialed cases will go to other machines, the name of the agreement
    that allows it, and their hosts; empty where it goes to none. Raises SettingsError for a model that cannot be
    opened, and GovernanceError where no agreement allows the disclosure; its message names the data set ``dataset``.
    """
    specs = [acting, *(_judge_spec(settings, key, credentialed) for key in judging)]
    hosts = dict.fromkeys(filter(None, (spec.check(dataset) for spec in specs if spec)))  # each once, in order
    if not hosts:
        return {}
    return {"remote_agreement": str(settings.governance.remote_agreement).strip(), "remote_host": ", ".join(hosts)}


def _judge_spec(settings: Settings, key: str, credentialed: bool) -> ModelSpec | None:
    """Make the specification of the model that the setting ``key`` (such as ``judge.model``) names; None where it names
    none. Raises SettingsError for a model that costs money and is not enabled."""
    entry = judging_models(settings).get(key)
    if entry is None:
        return None
    if entry.paid and not entry.enabled and settings.calls.mode != "replay":
        raise SettingsError(
            f"{key}: every answer of {entry.label or entry.id} costs money; set `enabled: true` in its entry "
            f"below `models`, or {key} to null"
        )
    return ModelSpec.of_entry(entry, settings, credentialed=credentialed)
