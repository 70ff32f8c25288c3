"""Writes the release layout: a story's line of ``info.json``, its frames, the folder's README.

A story is written into ``.partial`` and renamed into place, so that a build that is killed leaves
whole stories only; ``info.json`` is written last, so that a folder with it is finished.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sally_anne.benchmarks.gridtom.load import SETTINGS, TYPES
from sally_anne.benchmarks.gridtom.load_video import PERSPECTIVE_FOLDERS, VIDEO
from sally_anne.benchmarks.gridtom.plot import Condition
from sally_anne.benchmarks.gridtom.records import BeliefCase, StoryRecord
from sally_anne.benchmarks.gridtom.render import PERSPECTIVES, Pictures, write_video
from sally_anne.benchmarks.gridtom.splits import Split
from sally_anne.benchmarks.gridtom.stories import Story
from sally_anne.core.errors import BenchmarkError
from sally_anne.core.files import write_atomic
from sally_anne.core.run_folder import BUILD, claimed

SECOND_ORDER = "SecondOrderFalseBelief"
MARKER = "complete.json"
PARTIAL = ".partial"
# Those that show other events than the rest: second-order true beliefs look as first-order ones.
VERSIONS: tuple[tuple[Condition, Condition | None], ...] = (
    ("TB", None),
    ("FB", None),
    ("TB", "FB"),
    ("FB", "FB"),
)


def readme(settings: Mapping[str, object]) -> str:
    """The text of ``README.md`` for a build with these settings."""
    text = Path(__file__).with_name("export_readme.md").read_text(encoding="utf-8")
    return text.format(
        stories=settings["stories"],
        version=settings["generator"],
        seed=settings["seed"],
        frames_note=", without frames" if settings["metadata_only"] else "",
    )


def version_folder(first: Condition, second: Condition | None) -> str:
    """Folder of a version inside its story's folder."""
    return f"{SECOND_ORDER}/{TYPES[first]}" if second == "FB" else TYPES[first]


def info_line(record: StoryRecord, split: Split | None) -> str:
    """The record as one line of ``info.json``, with the line break.

    The fields of the official release come first in each object, our own after them.
    """
    fields: dict[str, Any] = {
        "index": record.index,
        "env_desc": record.environment,
        "init_env_desc": record.initial_environment,
        "colors": dict(record.colors),
        "nodes": list(record.nodes),
        "init_belief": [
            {
                "question": q.question,
                "section": list(q.section),
                "answer": q.answer[0] if len(q.answer) == 1 else list(q.answer),
                "choices": list(q.choices),
            }
            for q in record.initial
        ],
        "first_order_belief": [
            {"type": TYPES[case.first], **_belief_fields(case)} for case in record.cases(1)
        ],
        "second_order_belief": [
            {
                "first": case.first,
                "second": case.second,
                **_belief_fields(case),
                "frames": f"{record.index}/{version_folder(case.first, case.second)}",
            }
            for case in record.cases(2)
        ],
        "map": record.map,
        "split": split,
    }
    return json.dumps(fields) + "\n"


def _belief_fields(case: BeliefCase) -> dict[str, Any]:
    return {
        "question": case.question.question,
        "options": list(case.question.options),
        "answer": case.question.answer,
        "caption": case.captions["omniscient"],
        "belief_true": case.question.statement_true,
        "belief_false": case.question.statement_false,
        "captions": {p: case.captions[p] for p in PERSPECTIVES if p != "omniscient"},
    }


def write_story(story: Story, out: Path) -> None:
    """Write all frames and videos of a story into its folder, whole or not at all.

    First-order versions get PNG frames and a video from each perspective. The second-order
    false-belief versions get the omniscient PNG frames alone: no contrast of the paper uses
    another view of them.

    Args:
        story: a generated story.
        out: the folder of the build.
    """
    draft = out / PARTIAL / str(story.index)
    shutil.rmtree(draft, ignore_errors=True)
    pictures = Pictures()
    for first, second in VERSIONS:
        trace = story.play(first, second or "TB")
        for perspective in PERSPECTIVES if second is None else PERSPECTIVES[:1]:
            place = draft / version_folder(first, second) / PERSPECTIVE_FOLDERS[perspective]
            place.mkdir(parents=True)
            shots = pictures.of(trace, perspective)
            for tick, shot in enumerate(shots):
                (place / f"{tick}.png").write_bytes(shot.png)
            if second is None:
                write_video(place / VIDEO, shots)
    (draft / MARKER).write_text(json.dumps(_content(draft)) + "\n")
    final = out / str(story.index)
    # Only a folder that was damaged after its build can stand here.
    shutil.rmtree(final, ignore_errors=True)
    os.rename(draft, final)


def is_complete(folder: Path) -> bool:
    """Whether a story's folder holds just as many files and bytes as its marker says."""
    try:
        return bool(json.loads((folder / MARKER).read_text()) == _content(folder))
    except (OSError, ValueError):
        return False


def _content(folder: Path) -> dict[str, int]:
    files = [path for path in folder.rglob("*.*") if path.name != MARKER]
    return {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}


@contextmanager
def claimed_build(out: Path, settings: Mapping[str, object]) -> Iterator[None]:
    """Hold ``out`` for one build with these settings; starts or resumes it.

    Raises:
        FolderError: the folder holds something else, or another build is at work in it.
        BenchmarkError: it was begun with other settings.
    """
    with claimed(out, BUILD, mark=False):
        _agree(out / SETTINGS, settings)
        shutil.rmtree(out / PARTIAL, ignore_errors=True)
        yield
        shutil.rmtree(out / PARTIAL, ignore_errors=True)


def _agree(path: Path, settings: Mapping[str, object]) -> None:
    if not path.exists():
        write_atomic(path, (json.dumps(dict(settings), indent=2) + "\n").encode())
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
