"""Helpers for coroutines: run one from ordinary code, wait for several, and compute a result only once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from code that is not ``async`` and return its result. In a notebook, where an event loop runs
    already, it runs in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def gather_all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Run calls at the same time and return their results in order. Unlike :func:`asyncio.gather` it raises the first
    error only after all calls have ended, because requests that were sent to a model cost money and have to be
    recorded."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


async def share(tasks: dict[str, asyncio.Task[T]], key: str, compute: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Compute a result by ``compute()`` and return it. Coroutines that request the same ``key`` at the same time share
    one computation. ``tasks`` are the computations that still run, by key. Raises what ``compute`` raises."""
    if key not in tasks:
        tasks[key] = asyncio.ensure_future(compute())
        tasks[key].add_done_callback(lambda _: tasks.pop(key))
    return await asyncio.shield(tasks[key])  # where one coroutine is cancelled, the others still get the result


class Once(Generic[T]):
    """A cache of results by key. Each result is computed once, even if several coroutines request it at the same time.
    After an error the next call computes it again."""

    def __init__(self) -> None:
        """Start empty. ``results`` has the computed results, ``_tasks`` the computations that still run, both by
        key."""
        self.results: dict[str, T] = {}
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def get(self, key: str, compute: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of ``key``. The first call computes it by ``compute()``; others wait for that. Raises what
        ``compute`` raises."""
        if key not in self.results:
            self.results[key] = await share(self._tasks, key, compute)
        return self.results[key]
