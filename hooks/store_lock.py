"""Locks of a store, which the operating system drops when their holder dies: one run a store.

The process that has the store locks `.lock`. Others of the same run that add to its journal lock
the items table, together: a file that is never replaced, so that no further one is left behind.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from hooks.store_manifest import ITEMS_NAME
from sally_anne.core.errors import StoreError
from sally_anne.core.run_folder import LOCK_NAME, lock


def lock_store(folder: Path) -> IO[bytes]:
    """Hold the store in `folder` for writing until the returned file is closed.

    The lock file itself is empty and stays: removing it would let two writers hold different files.

    Raises:
        StoreError: another run holds the store.
    """
    file = open(folder / LOCK_NAME, "ab")  # noqa: SIM115  # open as long as the lock is held
    return lock(
        file,
        StoreError(
            f"another run is writing to the store {folder}. Wait for it to end, "
            "or choose another --out."
        ),
    )


def lock_contributing(folder: Path) -> IO[bytes]:
    """Show that this process adds to the journal of `folder`, until the returned file is closed.

    Raises:
        StoreError: a run is just beginning there.
    """
    file = open(folder / ITEMS_NAME, "rb")  # noqa: SIM115  # open as long as the lock is held
    busy = StoreError(f"another run begins to write to the store {folder}.")
    return lock(file, busy, fcntl.LOCK_SH)


def require_no_contributor(folder: Path) -> None:
    """Check that no process of a killed run goes on adding to the journal of `folder`.

    Raises:
        StoreError: one does.
    """
    # Some network disks lock wholly only what is open for writing.
    file = open(folder / ITEMS_NAME, "r+b")  # noqa: SIM115  # closed in the next line
    lock(
        file,
        StoreError(
            f"a process of an earlier run is still writing to the store {folder}. "
            "Wait for it to end, or choose another --out."
        ),
    ).close()
