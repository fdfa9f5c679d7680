"""Recorded answers out of a project and into one (``cdpr recordings``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..llm.archive import export_recordings, import_recordings
from ..settings import SettingsError, model_of

if TYPE_CHECKING:
    from ..settings import Settings


def export(settings: Settings, file: str, systems: Sequence[str]) -> str:
    """Write an archive; returns what to tell. Raises SettingsError for a system that there is not."""
    unknown = [name for name in systems if name not in settings.agents]
    if unknown:
        raise SettingsError(f"{', '.join(unknown)}: no agent of workflow/agents.yaml bears that name; `cdpr systems`")
    return f"{file}: {export_recordings(settings.paths.state, file, systems):,} answers about open cases"


def import_(settings: Settings, file: str) -> str:
    """Read an archive; returns what to tell: what became of its answers, and how to replay them."""
    found = import_recordings(settings.paths.state, file)
    told = f"{file}: {found.new:,} new answers, {found.known:,} known ones, {found.conflicting:,} conflicting"
    told += " (another answer was recorded here, and stays)" if found.conflicting else ""
    models = []
    for name in found.systems:
        entry = settings.agents.get(name)
        model = entry and model_of(settings, entry)
        if entry and model and entry.model in settings.models:
            models.append(f"{entry.model}: {{enabled: true}}" if model.where else
                          f"{entry.model}: {{at: \"http://127.0.0.1/v1\"}}")  # fmt: skip
    if not models:
        return told
    return (f"{told}\nThey are of {', '.join(found.systems)}. To replay them without key, server or network:\n"
            f"calls: {{mode: replay}}\nmodels: {{{', '.join(dict.fromkeys(models))}}}")  # fmt: skip
