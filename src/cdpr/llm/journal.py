"""An SQLite file that many processes write at once, and that holds what it was told, whatever happens next."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Change = Callable[[sqlite3.Connection], T]
_BUSY = 60.0  # seconds for other processes to end their transactions, which take milliseconds


class JournalError(RuntimeError):
    """A file that is no journal, or one that cannot be written."""


class Journal:
    """The file ``path``, made with the tables of ``schema`` where it is not there, in a folder of the mode ``mode``.

    :meth:`write` returns when its change is on the disk, safe from a power cut. Changes that wait for the disk at the
    same time share one transaction, so that a hundred answers a second need not a hundred waits. :meth:`write_now` is
    safe from a kill, and takes no wait. Write-ahead logging lets others read meanwhile; it works for the processes of
    one machine. Raises JournalError for a file that is something else.
    """

    def __init__(self, path: Path, schema: str, mode: int = 0o777) -> None:
        path.parent.mkdir(mode=mode, parents=True, exist_ok=True)
        self.path = path
        with path.with_name(path.name + ".lock").open("w") as lock:  # SQLite waits for nobody on the way to this mode
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                self._writer, self._other = self._connect("FULL"), self._connect("NORMAL")
                self._writer.execute("PRAGMA journal_mode=WAL")
                self._writer.executescript(schema)
            except sqlite3.DatabaseError as error:
                raise JournalError(f"{path}: cannot be used ({error}); free its disk, or move it away") from error
        self._own = threading.Lock()
        self._waiting: deque[tuple[Change, Future]] = deque()
        self._thread = ThreadPoolExecutor(1, "journal")

    def _connect(self, synchronous: str) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA synchronous={synchronous}")
        return connection

    def read(self, sql: str, *values: Any) -> list[tuple]:
        """The rows of a query."""
        with self._own:
            return self._other.execute(sql, values).fetchall()

    def write_now(self, change: Change[T]) -> T:
        """What ``change(connection)`` returns, in a transaction of its own."""
        with self._own:
            return self._transaction(self._other, [change])[0]

    async def write(self, change: Change[T]) -> T:
        """What ``change(connection)`` returns, after it is on the disk."""
        done: Future[T] = Future()
        self._waiting.append((change, done))
        self._thread.submit(self._write_all)
        return await asyncio.wrap_future(done)

    def _write_all(self) -> None:
        """All changes that wait, in one transaction: all of them, or none."""
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not batch:  # an earlier call took them along
            return
        try:
            found = self._transaction(self._writer, [change for change, _ in batch])
        except BaseException as error:
            for _, done in batch:
                _tell(done.set_exception, error)
        else:
            for (_, done), result in zip(batch, found, strict=True):
                _tell(done.set_result, result)

    def _transaction(self, connection: sqlite3.Connection, changes: list[Change]) -> list[Any]:
        try:
            connection.execute("BEGIN IMMEDIATE")
            found = [change(connection) for change in changes]
            connection.execute("COMMIT")
            return found
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):  # a full disk, or locked for very long
                raise JournalError(f"{self.path}: cannot be written ({error})") from error
            raise


def _tell(tell: Callable[[Any], None], what: Any) -> None:
    """To whoever waits; a caller that was cancelled does so no more, and what it wrote stays written."""
    with contextlib.suppress(InvalidStateError):
        tell(what)


def open_journal(path: Path, schema: str, mode: int = 0o777) -> Journal:
    """The journal at ``path``: one for all who write to it in this process."""
    return _open(path.resolve(), schema, mode, os.getpid())


@functools.lru_cache(maxsize=32)
def _open(path: Path, schema: str, mode: int, process: int) -> Journal:
    return Journal(path, schema, mode)
