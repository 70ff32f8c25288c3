"""The folder that a build writes: its options, its lock, and stories finished one by one.

A story is written into ``.partial`` and renamed into place, so that a build that is killed leaves
whole stories only; ``info.json`` is written last, so that a folder with it is finished.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sally_anne.benchmarks.gridtom.export import is_complete
from sally_anne.benchmarks.gridtom.load import SETTINGS
from sally_anne.core.errors import BenchmarkError
from sally_anne.core.run_folder import BUILD
from sally_anne.core.run_folder import claimed as held

PARTIAL = ".partial"


@contextmanager
def claimed(out: Path, settings: Mapping[str, object]) -> Iterator[None]:
    """Hold ``out`` for one build with these settings; starts or resumes it.

    Raises:
        FolderError: the folder holds something else, or another build is at work in it.
        BenchmarkError: it was begun with other settings.
    """
    with held(out, BUILD, mark=False):
        _agree(out / SETTINGS, settings)
        shutil.rmtree(out / PARTIAL, ignore_errors=True)
        yield
        shutil.rmtree(out / PARTIAL, ignore_errors=True)


def _agree(path: Path, settings: Mapping[str, object]) -> None:
    if not path.exists():
        write_whole(path, json.dumps(dict(settings), indent=2) + "\n")
        return
    try:
        before = dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise BenchmarkError(f"{path}: is damaged ({error}); delete the folder") from error
    for name, value in settings.items():
        if before.get(name) != value:
            raise BenchmarkError(
                f"{path}: this folder was begun with {name} = {before.get(name)}, asked for is "
                f"{name} = {value}; repeat the earlier options or choose another folder"
            )


def write_whole(path: Path, text: str) -> None:
    """Write a text file that is there as a whole or not at all."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text)
    os.replace(draft, path)


def finish_story(out: Path, index: int, write: Callable[[Path], None]) -> None:
    """Write one story's folder by ``write`` and move it into place."""
    draft = out / PARTIAL / str(index)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    write(draft)
    final = out / str(index)
    # Only a folder that was damaged after its build can stand here.
    shutil.rmtree(final, ignore_errors=True)
    os.rename(draft, final)


def unfinished(out: Path, indices: Iterator[int] | range) -> list[int]:
    """Stories that have no complete folder yet."""
    return [index for index in indices if not is_complete(out / str(index))]
