"""An SQLite database that many processes of one machine write at the same time. What was written survives a kill of the
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
    """A file is no SQLite database or cannot be written, or its file system has no file locks."""


class Journal:
    """An SQLite database in the file ``path``. Missing tables of ``schema`` (SQL statements ``CREATE TABLE IF NOT
    EXISTS``) are created.

    A change is on the disk when :meth:`write` returns. Other processes can read the database during a write. Raises
    JournalError for a file that is no SQLite database, and on a file system without file locks, which SQLite needs.
    """

    def __init__(self, path: Path, schema: str) -> None:
        """Open the SQLite database in the file ``path``, and create missing tables of ``schema`` (SQL). Raises
        JournalError for a file that cannot be used, or on a file system without file locks."""
        self.path, self._lock = path, threading.Lock()
        # Processes open the file one after the other. While one of them switches it to write-ahead logging, SQLite in
        # another would fail instead of wait.
        with hold(path.with_name(path.name + ".lock")):
            if not has_record_locks(path.parent):
                raise JournalError(f"{path}: {NO_RECORD_LOCKS}: name a folder on another disk in paths.state")
            try:
                self._database = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
                self._database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {schema}")
            except sqlite3.DatabaseError as error:
                raise JournalError(f"{path}: cannot be used ({error}); free its disk, or move it away") from error

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        """Run a query whose placeholders get ``values``; returns its rows."""
        with self._lock:
            return self._database.execute(sql, values).fetchall()

    def write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``change(connection)`` in one transaction and return its result; if it raises, nothing is changed. Raises
        JournalError where the file cannot be written."""
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")  # waits here for the writes of other processes
                with self._database:  # commits the transaction, or rolls it back after an error
                    return change(self._database)
            except sqlite3.OperationalError as error:  # a full disk, or locked for very long
                raise JournalError(f"{self.path}: cannot be written ({error})") from error


def open_journal(path: Path, schema: str) -> Journal:
    """Open the database at ``path`` with the tables of ``schema`` (SQL). All callers in this process get the same
    object. Raises JournalError as :class:`Journal`."""
    return _open_once(path.resolve(), schema, os.getpid())


@functools.lru_cache(maxsize=32)
def _open_once(path: Path, schema: str, process: int) -> Journal:
    """Open a database and keep the object, so that each process opens a file once. ``process`` is the number of this
    process; it is part of the cache key, because a forked child must not use its parent's connection."""
    return Journal(path, schema)
