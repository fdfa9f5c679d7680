"""Turns errors that a user can solve into messages."""

import errno
import re
from collections.abc import Sequence

from .files import disk_problem
from .settings import load_settings

_FULL = re.compile(r"No space left on device|disk is full|unexpected pos \d+ vs|PytorchStreamWriter failed")


def explain(error: Exception, settings: Sequence[str] = ()) -> str | None:
    """The message for an error that the user can solve; None for an error of the program. ``settings`` are the files
    that name the folders of results and state, whose disk may be full."""
    if type(error).__module__.split(".")[0] == "cdpr":
        return str(error)
    full = errno.ENOSPC if _FULL.search(str(error)) else None  # libraries have errors of their own for it
    number, where = (error.errno, error.filename) if isinstance(error, OSError) else (full, None)
    paths = load_settings(*settings).paths if settings and number and where is None else None
    folders = (paths.results, paths.state) if paths else ()
    return disk_problem(number, where, folders) or (f"{where}: {error.strerror}" if where is not None else None)


def without_stack(message: str) -> str:
    """An error message of Snakemake's main process, without its stack if the user can solve the error: one of this
    package, or one of a disk or folder."""
    if own := re.match(
        r'(?:SettingsError|UnreadableRecord) in file ".*", line \d+:\n(.*?)(\n  File ".*)?\Z', message, re.DOTALL
    ):
        return own[1]
    if protected := re.match(r"ProtectedOutputException .*affected files:\s*(.*?)\n", message + "\n", re.DOTALL):
        return disk_problem(errno.EACCES, protected[1]) or message
    if "in load_configfile" in message:
        fault = message.rstrip().rpartition("\n")[2]
        return f"A file of --configfile cannot be read: {fault}\nCorrect its name or its content; nothing was started."
    of_disk = re.search(r"\[Errno (\d+)\] [^:\n]*(?:: '([^'\n]*)')?", message)
    return (of_disk and disk_problem(int(of_disk[1]), of_disk[2])) or message
