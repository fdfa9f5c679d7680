"""An SQLite file that many processes of a machine write at the same time. What was written survives a kill of the
process and a power cut."""

import functools
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..locks import NO_RECORD_LOCKS, has_record_locks, hold

T = TypeVar("T")
_BUSY = 60.0  # seconds for other processes to end their transactions, which take milliseconds


class JournalError(RuntimeError):
    """A file that is no journal, or one that cannot be written."""


class Journal:
    """A database in the file ``path``, created with the tables of ``schema`` (SQL statements) if missing.

    A change is on the disk when :meth:`write` returns; other processes can read during a write. Raises JournalError for
    a file that is no such database, or on a file system without locks of records.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self.path, self._lock = path, threading.Lock()
        # SQLite does not wait for other processes while it switches to write-ahead logging.
        with hold(path.with_name(path.name + ".lock")):
            if not has_record_locks(path.parent):
                raise JournalError(f"{path}: {NO_RECORD_LOCKS}: name a folder on another disk in paths.state")
            try:
                self._database = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
                self._database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {schema}")
            except sqlite3.DatabaseError as error:
                raise JournalError(f"{path}: cannot be used ({error}); free its disk, or move it away") from error

    def read(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[tuple]:
        """Run a query with these ``values``; returns its rows."""
        with self._lock:
            return self._database.execute(sql, values).fetchall()

    def write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``change(connection)`` in a transaction; returns its result. Raises JournalError where the file cannot be
        written."""
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                with self._database:
                    return change(self._database)
            except sqlite3.OperationalError as error:  # a full disk, or locked for very long
                raise JournalError(f"{self.path}: cannot be written ({error})") from error


def open_journal(path: Path, schema: str) -> Journal:
    """Open the journal at ``path`` with the tables of ``schema``; all callers in this process share one object."""
    return _open_once(path.resolve(), schema, os.getpid())


@functools.lru_cache(maxsize=32)
def _open_once(path: Path, schema: str, process: int) -> Journal:
    """Open a journal once in the process with this number: a forked child must not share its parent's connection."""
    return Journal(path, schema)
