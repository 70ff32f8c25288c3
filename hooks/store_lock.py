"""One writer a store: a lock that the operating system drops when its holder dies."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO

from hooks.errors import StoreError

LOCK_NAME = ".lock"
# Seconds that a killed run's own processes are given to end.
_PATIENCE = 1.0


def lock_store(folder: Path) -> IO[bytes]:
    """Hold the store in `folder` for writing until the returned file is closed.

    The lock file itself is empty and stays: removing it would let two writers hold different files.

    Raises:
        StoreError: another run holds the store.
    """
    file = open(folder / LOCK_NAME, "ab")  # noqa: SIM115  # open as long as the lock is held
    limit = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError as error:
            if time.monotonic() < limit:
                time.sleep(0.02)
                continue
            file.close()
            raise StoreError(
                f"another run is writing to the store {folder}. Wait for it to end, "
                "or choose another --out."
            ) from error
