"""Peak memory of a piece of work, in a process that has done nothing else.

The peak is the high-water mark of resident memory, which the system keeps for the whole life of a
process. On Linux it is set back before the work; elsewhere it may hold what loading the model took.
Where the work starts processes of its own, what they and this one hold together is sampled, shared
pages counted once (PSS). On a GPU the peak is that of torch's allocator.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import resource
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from bench.errors import PerfError

Result = TypeVar("Result")

_LINUX = sys.platform == "linux"
_SAMPLE_SECONDS = 0.02
# From malloc.h; pieces above this size are given back as soon as they are freed.
_M_MMAP_THRESHOLD, _MAPPED_BYTES = -3, 1 << 16
_PRELOADED = "bench.preloaded"


class Peak:
    """Memory above what there was on entering, in bytes.

    Attributes:
        bytes: at most while the block was open; 0 until it closes.
        processes: how many processes were seen at once, this one included.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.processes = 1
        self._sampled = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Peak:
        import torch

        self._gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        if self._gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
            return self
        _give_back()
        _set_back()
        self._together = _proportional(None)
        self._before = _resident()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._gpu:
            import torch

            torch.cuda.synchronize()
            self.bytes = torch.cuda.max_memory_allocated() - self._before
            return
        own = _high_water() - self._before
        self._stop.set()
        self._thread.join()
        alone = self.processes == 1
        self.bytes = max(0, own if alone else max(own, self._sampled - self._together))

    def _sample(self) -> None:
        import psutil

        process = psutil.Process()
        while not self._stop.wait(_SAMPLE_SECONDS):
            try:
                children = process.children(recursive=True)
            except psutil.Error:
                continue
            if not children:
                continue
            self.processes = max(self.processes, 1 + len(children))
            whole = _proportional(None) + sum(_proportional(child.pid) for child in children)
            self._sampled = max(self._sampled, whole)


def touch(model: Any) -> None:
    """Have a model's weights in memory; before their first use they are mapped from their file."""
    for parameter in model.parameters():
        parameter.sum()


def in_fresh_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call ``function`` in a process of its own, in which nothing has run before.

    Args:
        function: of a module, so that the other process finds it.
        arguments: plain data.

    Raises:
        PerfError: it raised, or the process was killed; says what it said.
    """
    context: Any = multiprocessing.get_context("forkserver" if _LINUX else "spawn")
    if _LINUX:
        context.set_forkserver_preload([_PRELOADED])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, function, arguments))
    process.start()
    there.close()
    try:
        fine, result = here.recv()
    except EOFError:
        process.join()
        raise PerfError(
            f"a measuring process ended with status {process.exitcode}, perhaps for want of memory"
        ) from None
    finally:
        here.close()
    process.join()
    if not fine:
        raise PerfError(f"a measuring process failed:\n{result}")
    return result


def _answer(pipe: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        message = (True, function(*arguments))
    except BaseException:
        message = (False, traceback.format_exc())
    pipe.send(message)
    pipe.close()


def _give_back() -> None:
    """Return freed memory to the system, now and from now on.

    Else the work would fill what was freed before it, and its peak would depend on that.
    """
    gc.collect()
    with contextlib.suppress(AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        library.malloc_trim(0)


def _set_back() -> None:
    """Let the high-water mark begin anew, where the system can."""
    with contextlib.suppress(OSError):
        # From proc(5): 5 sets the peak resident set size to the present one.
        Path("/proc/self/clear_refs").write_text("5")


def _status(entry: str) -> int | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(entry):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _resident() -> int:
    found = _status("VmRSS:")
    return _high_water() if found is None else found


def _high_water() -> int:
    found = _status("VmHWM:")
    if found is not None:
        return found
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _proportional(pid: int | None) -> int:
    """A process' share of the memory that it holds; 0 once it is gone or where it is not known."""
    try:
        text = Path(f"/proc/{pid or 'self'}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
