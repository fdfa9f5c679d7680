"""Work spread over processes, its results in order."""

import multiprocessing
import multiprocessing.connection
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def in_processes(function: Callable[..., T], tasks: Iterable[tuple[Any, ...]], processes: int) -> Iterator[T]:
    """``function(*task)`` of every task, in their order; at most twice as many tasks as processes wait in memory."""
    # Not forked: the threads of a table engine would not come along.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=end_with_parent) as pool:
        waiting: deque[Future[T]] = deque()
        for task in tasks:
            waiting.append(pool.submit(function, *task))
            if len(waiting) >= 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def end_with_parent() -> None:
    """End this process as soon as its parent has ended, even killed; it would keep the parent's log open for ever."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
