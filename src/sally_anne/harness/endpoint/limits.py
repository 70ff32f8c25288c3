"""How fast an endpoint is asked, and how much may be spent on it; both hold over all threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sally_anne.core.errors import HarnessError


class Pace:
    """Lets requests begin one after the other, at most ``rate`` a minute; None sets no limit."""

    def __init__(
        self,
        rate: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gap = 60.0 / rate if rate else 0.0
        self._sleep, self._clock = sleep, clock
        self._next = clock()
        self._lock = threading.Lock()

    def wait(self, at_least: float = 0.0) -> None:
        """Sleep until a request may begin, and for ``at_least`` so many seconds."""
        with self._lock:
            now = self._clock()
            begin = max(self._next, now + at_least)
            # One that waits longer than the others does not hold them up.
            self._next = max(self._next, now) + self._gap
        if begin > now:
            self._sleep(begin - now)

    def hold(self, seconds: float) -> None:
        """Let no request begin for so long: the endpoint has asked for that."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


class Budget:
    """What a run has spent at endpoints, in the unit of the user's prices, and may spend.

    A request begins only if the dearest one so far would still fit beside those under way; until
    one price is known they go one by one. So the limit is passed, if at all, by what one request
    costs more than every one before it.
    """

    def __init__(self, limit: float | None = None) -> None:
        self.limit, self.spent = limit, 0.0
        self._dearest = 0.0
        self._under_way = 0
        self._changed = threading.Condition()

    def begin(self) -> None:
        """Wait until a request may begin; HarnessError if there is nothing left for one."""
        if self.limit is None:
            return
        with self._changed:
            while self._under_way and not self._room():
                self._changed.wait()
            if not self._room():
                raise HarnessError(
                    f"the spending limit is reached: {self.spent:.4f} of {self.limit:g} are spent, "
                    f"and a request costs up to {self._dearest:.4f}. Replies so far are kept: the "
                    "same command with a higher --endpoint-limit goes on from there"
                )
            self._under_way += 1

    def end(self) -> None:
        """The request that began is over, whatever it came to."""
        if self.limit is None:
            return
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def add(self, cost: float) -> None:
        """Count what a reply cost, now or in an earlier run."""
        with self._changed:
            self.spent += cost
            self._dearest = max(self._dearest, cost)

    def _room(self) -> bool:
        assert self.limit is not None
        if self._under_way and not self._dearest:
            return False
        if self.spent >= self.limit > 0:
            return False
        return self.spent + (self._under_way + 1) * self._dearest <= self.limit
