"""Recorded answers out of a project and into one (``cdpr recordings``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..llm.archive import export_recordings, import_recordings
from ..settings import SettingsError, value_at
from ..settings.judging import ASKERS

if TYPE_CHECKING:
    from ..settings import Settings


def export(settings: Settings, file: str, systems: Sequence[str]) -> str:
    """Write an archive; returns what to tell. Raises SettingsError for a system that there is not."""
    unknown = [name for name in systems if name not in settings.agents and name not in ASKERS]
    if unknown:
        raise SettingsError(f"{', '.join(unknown)}: no agent of workflow/agents.yaml bears that name, nor is it one of "
                            f"{', '.join(ASKERS)}; `cdpr systems`")  # fmt: skip
    return f"{file}: {export_recordings(settings.paths.state, file, systems):,} answers about open cases"


def import_(settings: Settings, file: str) -> str:
    """Read an archive; returns what to tell: what became of its answers, and how to replay them."""
    found = import_recordings(settings.paths.state, file)
    told = f"{file}: {found.new:,} new answers, {found.known:,} known ones, {found.conflicting:,} conflicting"
    told += " (another answer was recorded here, and stays)" if found.conflicting else ""
    models, folders = [], []
    for name in found.systems:
        where = ASKERS.get(name)
        called = value_at(settings, where) if where else getattr(settings.agents.get(name), "model", None)
        if name in found.of_weights:
            folders.append(f"{name} ({called})" if called else name)
        elif model := settings.models.get(called):
            models.append(f"{called}: {{enabled: true}}" if model.where else
                          f"{called}: {{at: \"http://127.0.0.1/v1\"}}")  # fmt: skip
    if models:
        told += (f"\nThey are of {', '.join(found.systems)}. To replay them without key, server or network:\n"
                 f"calls: {{mode: replay}}\nmodels: {{{', '.join(dict.fromkeys(models))}}}")  # fmt: skip
    if folders:
        told += (f"\nOf {', '.join(folders)} each question holds the digest of the model's weights: a replay needs "
                 "the very same files, named as they were there (`at`, or `weights` and `serving`)")  # fmt: skip
    return told
