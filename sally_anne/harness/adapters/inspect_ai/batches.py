"""Requests that come one by one and go through the model together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

Request = TypeVar("Request")
Result = TypeVar("Result")

# For how long nothing must have come before a batch goes off that is not full, in seconds.
QUIET = 0.05


@dataclass(eq=False)
class _Job(Generic[Request, Result]):
    request: Request
    outcome: Future[Result] = field(default_factory=Future)


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
        self._waiting: list[_Job[Request, Result]] = []
        self._turn = anyio.Lock()

    async def ask(self, request: Request, most: int) -> Result:
        """The result of one request, in a batch of ``most``; or what its work alone raises."""
        job: _Job[Request, Result] = _Job(request)
        self._waiting.append(job)
        try:
            async with self._turn:
                if not job.outcome.done():
                    await self._gather(most)
                    batch = self._take(job, most)
                    await anyio.to_thread.run_sync(partial(self._run, batch))
        finally:
            if job in self._waiting:
                self._waiting.remove(job)
        return job.outcome.result()

    async def _gather(self, most: int) -> None:
        """Wait until a batch is full, or nobody comes any more."""
        before = 0
        while before < len(self._waiting) < most:
            before = len(self._waiting)
            await anyio.sleep(QUIET)

    def _take(self, first: _Job[Request, Result], most: int) -> list[_Job[Request, Result]]:
        """The first and others of its kind, in the order in which they came."""
        kind = self._kind(first.request)
        alike = [j for j in self._waiting if j is not first and self._kind(j.request) == kind]
        batch = [first, *alike[: most - 1]]
        self._waiting = [job for job in self._waiting if job not in batch]
        return batch

    def _run(self, batch: Sequence[_Job[Request, Result]]) -> None:
        """Do a batch; if it fails, one by one, so that nobody fails for another's fault."""
        try:
            results = self._work([job.request for job in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0].outcome.set_exception(error)
                return
            for job in batch:
                self._run([job])
            return
        for job, result in zip(batch, results, strict=True):
            job.outcome.set_result(result)
