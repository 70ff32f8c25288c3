"""Writes the release layout: a story's line of ``info.json``, its frames, the folder's README.

Stories are renamed into place and ``info.json`` is written last: a folder with it is finished.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sally_anne.core.errors import BenchmarkError
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import claimed
from sally_anne.data.gridtom.load import SETTINGS, TYPES, read_settings
from sally_anne.data.gridtom.load_video import PERSPECTIVE_FOLDERS, VIDEO
from sally_anne.data.gridtom.plot import Condition
from sally_anne.data.gridtom.records import VERSIONS, BeliefCase, StoryRecord
from sally_anne.data.gridtom.render import PERSPECTIVES, Shot, shots_of, write_video
from sally_anne.data.gridtom.splits import Split
from sally_anne.data.gridtom.stories import Story

SECOND_ORDER = "SecondOrderFalseBelief"
MARKER = "complete.json"
PARTIAL = ".partial"
# Those that show events of their own: second-order true beliefs look as first-order ones.
SHOWN = [version for version in VERSIONS if version[1] != "TB"]


def readme(settings: dict[str, object]) -> str:
    """The text of ``README.md`` for a build with these settings."""
    text = Path(__file__).with_name("export_readme.md").read_text(encoding="utf-8")
    note = ", without frames" if settings["metadata_only"] else ""
    return text.format(**settings, frames_note=note)


def _folder_of(first: Condition, second: Condition | None) -> str:
    """Folder of a version inside its story's folder."""
    return f"{SECOND_ORDER}/{TYPES[first]}" if second == "FB" else TYPES[first]


def info_line(record: StoryRecord, split: Split | None) -> str:
    """The record as one line of ``info.json``, with the line break.

    The fields of the official release come first in each object, our own after them.
    """
    fields = {
        "index": record.index,
        "env_desc": record.environment,
        "init_env_desc": record.initial_environment,
        "colors": record.colors,
        "nodes": record.nodes,
        "init_belief": [
            {
                "question": q.question,
                "section": q.section,
                "answer": q.answer[0] if len(q.answer) == 1 else q.answer,
                "choices": q.choices,
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
                "frames": f"{record.index}/{_folder_of(case.first, case.second)}",
            }
            for case in record.cases(2)
        ],
        "map": record.map,
        **({"plot": record.plot} if record.plot != "move" else {}),
        "split": split,
    }
    return json.dumps(fields) + "\n"


def _belief_fields(case: BeliefCase) -> dict[str, Any]:
    return {
        "question": case.question.question,
        "options": case.question.options,
        "answer": case.question.answer,
        "caption": case.captions["omniscient"],
        "belief_true": case.question.statement_true,
        "belief_false": case.question.statement_false,
        "captions": {p: case.captions[p] for p in PERSPECTIVES if p != "omniscient"},
    }


def write_story(story: Story, out: Path) -> None:
    """Write all frames and videos of a story into its folder, whole or not at all."""
    draft = out / PARTIAL / str(story.index)
    shutil.rmtree(draft, ignore_errors=True)
    known: dict[Hashable, Shot] = {}
    for first, second in SHOWN:
        trace = story.play(first, second or "TB")
        # No contrast of the paper uses another view of the second-order versions.
        for perspective in PERSPECTIVES if second is None else PERSPECTIVES[:1]:
            place = draft / _folder_of(first, second) / PERSPECTIVE_FOLDERS[perspective]
            place.mkdir(parents=True)
            shots = shots_of(trace, perspective, known)
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
def claimed_build(out: Path, settings: dict[str, object]) -> Iterator[None]:
    """Hold ``out`` for one build with these settings; starts or resumes it."""
    path = out / SETTINGS
    with claimed(out, "a benchmark build", mark=False, sign=SETTINGS):
        before = read_settings(path) if path.exists() else settings
        for name, value in settings.items():
            if before.get(name) != value:
                raise BenchmarkError(
                    f"{path}: this folder was begun with {name} = {before.get(name)}, asked for is "
                    f"{name} = {value}; repeat the earlier options or choose another folder"
                )
        write_atomic(path, (json.dumps(settings, indent=2) + "\n").encode())
        shutil.rmtree(out / PARTIAL, ignore_errors=True)
        yield
        shutil.rmtree(out / PARTIAL, ignore_errors=True)
