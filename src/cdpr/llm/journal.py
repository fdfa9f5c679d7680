"""An SQLite file that many processes of one machine write at once, without losing anything to a kill or power cut."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Change = Callable[[sqlite3.Connection], T]
_BUSY = 60.0  # seconds for other processes to end their transactions, which take milliseconds


class JournalError(RuntimeError):
    """A file that is no journal, or one that cannot be written."""


class Journal:
    """The file ``path``, created with the tables of ``schema`` in a folder of the mode ``mode`` if missing.

    :meth:`write` returns when its change is on the disk, safe from a power cut; :meth:`write_now` is quicker, and safe
    from a kill. Write-ahead logging lets others read meanwhile. Raises JournalError for a file that is something else.
    """

    def __init__(self, path: Path, schema: str, mode: int = 0o777) -> None:
        path.parent.mkdir(mode=mode, parents=True, exist_ok=True)
        self.path = path
        # SQLite does not wait for other processes while it switches to write-ahead logging.
        with path.with_name(path.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                self._durable, self._quick = self._connect("FULL"), self._connect("NORMAL")
                self._durable.execute("PRAGMA journal_mode=WAL")
                self._durable.executescript(schema)
            except sqlite3.DatabaseError as error:
                raise JournalError(f"{path}: cannot be used ({error}); free its disk, or move it away") from error
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "journal")

    def _connect(self, synchronous: str) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA synchronous={synchronous}")
        return connection

    def read(self, sql: str, *values: Any) -> list[tuple]:
        """The rows of a query."""
        with self._lock:
            return self._quick.execute(sql, values).fetchall()

    def write_now(self, change: Change[T]) -> T:
        """The return value of ``change(connection)``, in a transaction of its own."""
        with self._lock:
            return self._transaction(self._quick, change)

    async def write(self, change: Change[T]) -> T:
        """The return value of ``change(connection)``, after it is on the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, self._durable, change)

    def _transaction(self, connection: sqlite3.Connection, change: Change[T]) -> T:
        try:
            connection.execute("BEGIN IMMEDIATE")
            value = change(connection)
            connection.execute("COMMIT")
            return value
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):  # a full disk, or locked for very long
                raise JournalError(f"{self.path}: cannot be written ({error})") from error
            raise


def open_journal(path: Path, schema: str, mode: int = 0o777) -> Journal:
    """The journal at ``path``; all callers in this process share one."""
    return _open(path.resolve(), schema, mode, os.getpid())


@functools.lru_cache(maxsize=32)
def _open(path: Path, schema: str, mode: int, process: int) -> Journal:
    return Journal(path, schema, mode)
