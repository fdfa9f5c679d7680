"""Turns errors that a user can solve into messages."""

import errno
import re
from collections.abc import Sequence

from .files import disk_problem
from .settings import load_settings

_FULL = re.compile(r"No space left on device|disk is full|unexpected pos \d+ vs|PytorchStreamWriter failed")


def explain(error: Exception, settings: Sequence[str] = ()) -> str | None:
    """Write the message for an error that the user can solve: one of this package, of a file, or of a full disk.
    Returns None for an error of the program, whose stack has to be shown.

    ``settings`` are the settings files of the command: they name the folders of results and state, whose disk may be
    full.
    """
    if type(error).__module__.split(".")[0] == "cdpr":
        return str(error)
    if not isinstance(error, OSError):  # libraries have errors of their own for a full disk
        return disk_problem(errno.ENOSPC, None, _data_folders(settings)) if _FULL.search(str(error)) else None
    if error.filename is None:
        return disk_problem(error.errno, None, _data_folders(settings)) if error.errno else None
    return disk_problem(error.errno, error.filename) or f"{error.filename}: {error.strerror}"


def _data_folders(settings: Sequence[str]) -> tuple[str, ...]:
    """The folders of results and state in the settings files; none without files."""
    paths = load_settings(*settings).paths if settings else None
    return (paths.results, paths.state) if paths else ()


def without_stack(message: str) -> str:
    """Shorten an error message of Snakemake's main process to what the user has to do, where the error is one of this
    package, of a settings file, or of a disk or folder. Any other message is returned whole, with its stack."""
    if own_error := re.match(
        r'(?:SettingsError|UnreadableRecord) in file ".*", line \d+:\n(.*?)(\n  File ".*)?\Z', message, re.DOTALL
    ):
        return own_error[1]
    if protected := re.match(r"ProtectedOutputException .*affected files:\s*(.*?)\n", message + "\n", re.DOTALL):
        return disk_problem(errno.EACCES, protected[1]) or message
    if "in load_configfile" in message:
        fault = message.rstrip().rpartition("\n")[2]
        return f"A file of --configfile cannot be read: {fault}\nCorrect its name or its content; nothing was started."
    os_error = re.search(r"\[Errno (\d+)\] [^:\n]*(?:: '([^'\n]*)')?", message)
    return (os_error and disk_problem(int(os_error[1]), os_error[2])) or message
