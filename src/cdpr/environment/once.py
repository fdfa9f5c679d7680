"""Results that take time: waiting for them, and keeping those that are needed several times."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Its result; also where an event loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def all_ended(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results of calls that run at the same time. The first error is raised after all have ended: what they send
    to a model is paid for, and recorded then."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


class Once(Generic[T]):
    """Results by key: each is computed once, however many wait for it at the same time; one that failed again."""

    def __init__(self) -> None:
        self.results: dict[str, T] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def get(self, key: str, compute: Callable[[], Awaitable[T]]) -> T:
        """The result of a key. Raises what ``compute`` raises."""
        if key not in self.results:
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._compute(key, compute))
            await asyncio.shield(self._tasks[key])
        return self.results[key]

    async def _compute(self, key: str, compute: Callable[[], Awaitable[T]]) -> None:
        try:
            self.results[key] = await compute()
        finally:
            del self._tasks[key]
