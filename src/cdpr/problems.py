"""Turns errors that a user can solve into messages that say how to solve them."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from .files import FULL_DISK
from .settings import load_settings

# What libraries say when a disk is full, in errors that are no OSError. The first words come from several libraries,
# the second from SQLite, the last two from PyTorch.
_FULL_MESSAGE = re.compile(r"No space left on device|disk is full|unexpected pos \d+ vs|PytorchStreamWriter failed")
_SHARED_MEMORY = "/dev/shm"  # holds Python's locks between processes, whose errors name no file
_LEAST_FREE = 2**20  # bytes; a disk with less free space counts as full


def explain(error: Exception, settings: Sequence[str] = ()) -> str | None:
    """Write the message for an error that the user can solve: one raised by this package, one about a file, or a full
    disk. Returns None for any other error, whose stack has to be shown.

    ``settings`` are the paths of the settings files of the command. They name the folders of results and state, whose
    disk may be full.
    """
    if type(error).__module__.split(".")[0] == "cdpr":
        return str(error)
    if not isinstance(error, OSError):  # a library's own error, which may still say that a disk is full
        is_full_disk = _FULL_MESSAGE.search(str(error))
        return disk_problem(errno.ENOSPC, None, _data_folders(settings)) if is_full_disk else None
    if error.filename is None:  # such as that of a write to a full disk
        return disk_problem(error.errno, None, _data_folders(settings)) if error.errno else None
    return disk_problem(error.errno, error.filename) or f"{error.filename}: {error.strerror}"


def _data_folders(settings: Sequence[str]) -> tuple[str, ...]:
    """The folders of results and state that the settings files name; none without files."""
    paths = load_settings(*settings).paths if settings else None
    return (paths.results, paths.state) if paths else ()


def disk_problem(number: int | None, path: str | None, folders: Iterable[str] = ()) -> str | None:
    """Explain an error of a full disk, or of a folder that cannot be written, in three lines: the problem, the path,
    and what to do. Returns None for any other error.

    ``number`` is the errno of the error. ``path`` is the file that the error names, or None. Where a disk is full and
    the error names no file, the path in the message is the first of these folders whose disk is full: ``folders``, that
    of temporary files, shared memory.
    """
    if number in FULL_DISK:
        action = "Free space there"
        path = path or _find_full_disk(folders)
    elif number in (errno.EROFS, errno.EACCES, errno.EPERM):
        action = "Make it writable for you"
    else:
        return None
    # Shared memory that cannot be written is another cause of an error that names no file.
    if not path and os.path.exists(_SHARED_MEMORY) and not os.access(_SHARED_MEMORY, os.W_OK):
        path = _SHARED_MEMORY
    location, home = Path(path or "").absolute(), Path.home()
    # The words after "Free space there, or ...".
    alternative = "name other folders in paths.results and paths.state (config.yaml)"
    if path == _SHARED_MEMORY:
        alternative = "start the container with shared memory"
    # The home folder itself, a folder above it, or a hidden folder in it such as ~/.cache.
    elif path and (location in (home, *home.parents) or str(location).startswith(f"{home}/.")):
        alternative = "set HOME to a folder that is: programs keep their caches there"
    disk = location if path else "the disk of the results, of the state, or of temporary files"
    return f"{os.strerror(number)}\n{disk}\n{action}, or {alternative}; then the same command goes on."


def _find_full_disk(folders: Iterable[str]) -> str | None:
    """Find the first folder whose disk is full, among ``folders``, the folder of temporary files, and shared memory.
    None where none is."""
    for folder in (*folders, tempfile.gettempdir(), _SHARED_MEMORY):
        if os.path.exists(folder) and shutil.disk_usage(folder).free < _LEAST_FREE:
            return folder
    return None


def without_stack(message: str) -> str:
    """Shorten an error message of Snakemake's main process to what the user has to do. This is done for errors of this
    package, of a settings file, and of a disk or folder. Any other message is returned whole, with its stack."""
    # An error of this package, raised in a Snakefile: its class and place, its message, and perhaps the stack.
    own_error = r'(?:SettingsError|UnreadableRecord) in file ".*", line \d+:\n(.*?)(\n  File ".*)?\Z'
    if match := re.match(own_error, message, re.DOTALL):
        return match[1]
    # An output that Snakemake must not replace. A line end is added for a message that ends with the file's name.
    if match := re.match(r"ProtectedOutputException .*affected files:\s*(.*?)\n", message + "\n", re.DOTALL):
        return disk_problem(errno.EACCES, match[1]) or message
    if "in load_configfile" in message:
        fault = message.rstrip().rpartition("\n")[2]  # the last line
        return f"A file of --configfile cannot be read: {fault}\nCorrect its name or its content; nothing was started."
    # The number and the file in "[Errno 28] No space left on device: 'results/x'"; not every such error names a file.
    match = re.search(r"\[Errno (\d+)\] [^:\n]*(?:: '([^'\n]*)')?", message)
    problem = disk_problem(int(match[1]), match[2]) if match else None
    return problem or message
