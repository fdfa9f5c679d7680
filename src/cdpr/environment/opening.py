"""From the settings to the environment, with the judges and the matcher that they name.

Those that ask a model are found by name, so that the code of a job whose tables judge alone does not hold them.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..llm import ModelSpec, open_model
from ..llm.spec import modules_of
from ..settings import Settings, SettingsError, judging_models
from ..settings.judging import DECIDING, SECOND, TABLES
from .episode import DiagnosticEnvironment
from .judge import Judge, TableJudge
from .matcher import TableMatcher

if TYPE_CHECKING:
    from ..llm.guard import Disclosure

_JUDGING = "cdpr.environment.model_judging"


def open_environment(settings: Settings, *, credentialed: bool) -> DiagnosticEnvironment:
    """The environment. ``credentialed`` says whether cases stand under a data use agreement, so that their diagnoses
    and requests go to no other machine. Raises SettingsError and GovernanceError before anything is asked."""
    specs, calls = judging_specs(settings, DECIDING, credentialed=credentialed), Counter[str]()
    plan, judge, matcher = settings.environment, None, None
    if spec := specs.get("judge.model"):
        judge = importlib.import_module(_JUDGING).ModelJudge(open_model(spec), calls=calls)
    if spec := specs.get("matcher.model"):
        tables = TableMatcher(plan.fuzzy_cutoff)
        matcher = importlib.import_module(_JUDGING).ModelMatcher(open_model(spec), tables, calls)
    return DiagnosticEnvironment(plan, judge, matcher, calls)


def open_second(settings: Settings, *, credentialed: bool) -> Judge | None:
    """The second judge; None where the settings name none. A model judges alone, without the tables: what they got
    wrong shall show too. Raises as :func:`open_environment`."""
    if settings.judge.second == TABLES:
        return TableJudge()
    spec = judging_specs(settings, SECOND, credentialed=credentialed).get("judge.second")
    if spec is None:
        return None
    return importlib.import_module(_JUDGING).ModelJudge(open_model(spec), "second_judge", tables_first=False)


def judging_specs(settings: Settings, which: Collection[str], *, credentialed: bool) -> dict[str, ModelSpec]:
    """The models that judge and match, by the setting that names them. Raises SettingsError for one that costs money
    without leave, or is nowhere."""
    found = {}
    for where, entry in judging_models(settings).items():
        if where not in which:
            continue
        if entry.paid and not entry.enabled and settings.calls.mode != "replay":
            raise SettingsError(
                f"{where}: every answer of {entry.label or entry.id} costs money; set `enabled: true` in its entry "
                f"below `models`, or {where} to null"
            )
        found[where] = ModelSpec.of_entry(entry, settings, credentialed=credentialed)
    return found


def check_judges(
    settings: Settings, dataset: str, which: Collection[str] = DECIDING, *, credentialed: bool
) -> list[Disclosure]:
    """Ask before any work is done, as :meth:`ModelSpec.check`: where text of credentialed cases will be sent."""
    specs = judging_specs(settings, which, credentialed=credentialed).values()
    return [disclosure for spec in specs if (disclosure := spec.check(dataset))]


def judging_code(settings: Settings, which: Collection[str] = DECIDING) -> list[str]:
    """Roots of the code of models that judge and match: part of the code of a job that asks them."""
    found = []
    for where, entry in judging_models(settings).items():
        if where in which:
            found += [_JUDGING, *modules_of(entry)]
    return found
