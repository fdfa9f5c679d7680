"""Opens the environment with the judge and the matcher that the settings name.

The module of judges that ask a model is imported by name, so that a job that judges by tables does not depend on it.
"""

import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..llm import ModelSpec, open_model
from ..settings import Settings, SettingsError, judging_models
from ..settings.judging import DECIDING, TABLES
from .episode import DiagnosticEnvironment
from .table_judging import TableJudge

if TYPE_CHECKING:
    from ..llm.guard import Disclosure

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


def check_judges(
    settings: Settings, dataset: str, which: Collection[str] = DECIDING, *, credentialed: bool
) -> "list[Disclosure]":
    """Check before any work that the judging and matching models can be used. ``which`` are the settings that name
    them, by default ``judge.model`` and ``matcher.model``. Returns one :class:`Disclosure` for each model on another
    machine to which text of credentialed cases will go. ``dataset`` is named in errors only. Raises SettingsError for a
    model that cannot be opened, and GovernanceError where no agreement allows the disclosure."""
    specs = [_judge_spec(settings, key, credentialed) for key in which]
    return list(filter(None, (spec.check(dataset) for spec in specs if spec)))


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
