"""Requests that come one by one and go through the model together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

Request = TypeVar("Request")
Result = TypeVar("Result")

# For how long nothing must have come before a batch goes off that is not full, in seconds.
QUIET = 0.05


class Batches(Generic[Request, Result]):
    """Gathers requests; one batch is at work at a time, in a thread of its own.

    While it is, others wait, and the first of them takes along all of its ``kind`` that have come
    by then. There is no background task, so nothing is left running when a request is cancelled.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Request]], Sequence[Result]],
        kind: Callable[[Request], Hashable],
    ) -> None:
        self._work = work
        self._kind = kind
        self._waiting: dict[Future[Result], Request] = {}
        self._turn = anyio.Lock()

    async def ask(self, request: Request, most: int) -> Result:
        """The result of one request, in a batch of ``most``; or what its work alone raises."""
        outcome: Future[Result] = Future()
        self._waiting[outcome] = request
        try:
            async with self._turn:
                if not outcome.done():
                    await self._gather(most)
                    await anyio.to_thread.run_sync(self._run, self._take(outcome, most))
        finally:
            self._waiting.pop(outcome, None)
        return outcome.result()

    async def _gather(self, most: int) -> None:
        """Wait until a batch is full, or nobody comes any more."""
        before = 0
        while before < len(self._waiting) < most:
            before = len(self._waiting)
            await anyio.sleep(QUIET)

    def _take(self, first: Future[Result], most: int) -> dict[Future[Result], Request]:
        """The first and others of its kind, in the order in which they came."""
        kind = self._kind(self._waiting[first])
        alike = [one for one, request in self._waiting.items() if self._kind(request) == kind]
        others = [one for one in alike if one is not first]
        return {one: self._waiting.pop(one) for one in [first, *others[: most - 1]]}

    def _run(self, batch: Mapping[Future[Result], Request]) -> None:
        """Do a batch; if it fails, one by one, so that nobody fails for another's fault."""
        try:
            results = self._work(list(batch.values()))
        except Exception as error:
            for outcome, request in batch.items():
                if len(batch) == 1:
                    outcome.set_exception(error)
                else:
                    self._run({outcome: request})
            return
        for outcome, result in zip(batch, results, strict=True):
            outcome.set_result(result)
