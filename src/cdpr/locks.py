"""Locks between processes, also on file systems that have none: Lustre without `-o flock`, many FUSE mounts."""

import errno
import fcntl
import tempfile
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import Any

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # errors of a file system without locks
NO_RECORD_LOCKS = "the file system has no locks of records, which databases need"


def hold(path: Path, wait: bool = True) -> ExitStack:
    """Acquire a lock on the file ``path``. Returns a context: the lock is released when the context is closed, when
    nothing refers to it any more, or when this process ends. A missing folder is created.

    Where another process holds the lock, this waits for it; if ``wait`` is False it raises TimeoutError, whose message
    "it holds FILE" speaks of that process. On a file system without locks, a file PATH.held with the process id is the
    lock. Another process of the same machine takes it over when the process with this id has ended.
    """
    from filelock import FileLock, SoftFileLock, Timeout  # here, because it would slow the start of every command

    path.parent.mkdir(parents=True, exist_ok=True)
    # -1 waits for ever; any thread can release the lock.
    options: Any = {"timeout": -1 if wait else 0, "thread_local": False, "poll_interval": 0.2}
    lock: FileLock | SoftFileLock = FileLock(path, fallback_to_soft=False, **options)
    try:
        try:
            lock.acquire()
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            lock = SoftFileLock(f"{path}.held", **options)
            lock.acquire()
    except Timeout as error:
        # The lock on `path` itself ends with its process; PATH.held stays where the whole machine crashes.
        remedy = "" if error.lock_file == str(path) else "; after a crash of its machine delete this file"
        raise TimeoutError(f"it holds {error.lock_file}{remedy}") from None
    held = ExitStack()
    # Releases the lock when `held` is closed or forgotten, or at the end of the process, whichever comes first.
    held.callback(weakref.finalize(held, lock.release))
    return held


def has_record_locks(folder: Path) -> bool:
    """Whether the file system of a folder can lock parts of a file, which databases need. Tries it on a temporary
    file."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        try:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return False
    return True
