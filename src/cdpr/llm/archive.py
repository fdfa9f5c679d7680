"""Recorded answers out of a project and into one (``cdpr recordings``)."""

from collections.abc import Sequence

from ..settings import Settings, SettingsError, value_at
from ..settings.datasets import DATASETS
from ..settings.judging import ASKERS
from .recording import export_recordings, import_recordings, withheld


def export(settings: Settings, file: str, systems: Sequence[str]) -> str:
    """Write the recorded answers of ``systems`` (empty: all) about open cases to ``file``; returns a message. Raises
    SettingsError for an unknown system, and as :func:`export_recordings`."""
    unknown = [name for name in systems if name not in settings.agents and name not in ASKERS]
    if unknown:
        raise SettingsError(f"{', '.join(unknown)}: no agent of workflow/agents.yaml has that name, nor is it one of "
                            f"{', '.join(ASKERS)}; `cdpr systems`")  # fmt: skip
    state, marked = settings.paths.state, [name for name in DATASETS if settings.data.source(name).credentialed]
    written, left = export_recordings(state, file, systems, marked), len(withheld(state, systems, marked))
    more = f"; {left:,} left out: their data set is credentialed by now, or was not recorded" if left else ""
    return f"{file}: {written:,} answers about open cases{more}"


def import_(settings: Settings, file: str) -> str:
    """Read an archive; returns a message with the counts of its answers and how to replay them. Raises as
    :func:`import_recordings`."""
    imported = import_recordings(settings.paths.state, file)
    message = (
        f"{file}: {imported.new:,} new answers, {imported.known:,} known ones, {imported.conflicting:,} conflicting"
    )
    message += " (another answer was recorded here, and stays)" if imported.conflicting else ""
    systems, models, folders, absent = sorted(imported.systems), [], [], []
    for name in systems:
        where = ASKERS.get(name)
        model_name = value_at(settings, where) if where else getattr(settings.agents.get(name), "model", None)
        if name in imported.of_weights:
            folders.append(f"{name} ({model_name})" if model_name else name)
        elif model_name is None:
            absent.append(name)
        elif model := settings.models.get(model_name):
            setting = "enabled: true" if model.where else 'at: "http://127.0.0.1/v1"'
            models.append(f"{model_name}: {{{setting}}}")
    if len(systems) > len(folders) + len(absent):
        message += f"\nThey are of {', '.join(systems)}. To replay them without key, server or network:\n"
        message += "calls: {mode: replay}" + (f"\nmodels: {{{', '.join(dict.fromkeys(models))}}}" if models else "")
    if absent:
        message += (f"\nOf {', '.join(absent)} these settings have no row or model: copy the lines of `agents`, "
                 "`models`, `judge` and `matcher` with which the answers were recorded, and import again")  # fmt: skip
    if folders:
        message += (f"\nOf {', '.join(folders)} each question holds the digest of the model's weights: a replay needs "
                 "the very same files, named as they were there (`at`, or `weights` and `serving`)")  # fmt: skip
    return message
