"""Writes one story in the release layout: its line of ``info.json`` and its frames."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sally_anne.benchmarks.gridtom.export_media import Pictures, write_video
from sally_anne.benchmarks.gridtom.load import TYPES
from sally_anne.benchmarks.gridtom.load_film import PERSPECTIVE_FOLDERS, VIDEO
from sally_anne.benchmarks.gridtom.plot import Condition
from sally_anne.benchmarks.gridtom.records_types import BeliefCase, StoryRecord
from sally_anne.benchmarks.gridtom.render import PERSPECTIVES
from sally_anne.benchmarks.gridtom.splits import Split
from sally_anne.benchmarks.gridtom.stories import Story

SECOND_ORDER = "SecondOrderFalseBelief"
MARKER = "complete.json"


def version_folder(first: Condition, second: Condition | None) -> str:
    """Folder of a version inside its story's folder.

    Second-order true-belief versions show the same events as first-order ones.
    """
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


def write_frames(story: Story, folder: Path) -> None:
    """Write all frames and videos of a story, then the marker that the folder is complete.

    First-order versions get PNG frames and a video from each perspective. The second-order
    false-belief versions get the omniscient PNG frames alone: no contrast of the paper uses
    another view of them.

    Args:
        story: a generated story.
        folder: an empty folder.
    """
    pictures = Pictures()
    for first, second in _versions():
        trace = story.play(first, second or "TB")
        for perspective in PERSPECTIVES if second is None else PERSPECTIVES[:1]:
            place = folder / version_folder(first, second) / PERSPECTIVE_FOLDERS[perspective]
            place.mkdir(parents=True)
            shots = pictures.of(trace, perspective)
            for tick, shot in enumerate(shots):
                (place / f"{tick}.png").write_bytes(shot.png)
            if second is None:
                write_video(place / VIDEO, shots)
    (folder / MARKER).write_text(json.dumps(_content(folder)) + "\n")


def is_complete(folder: Path) -> bool:
    """Whether the folder holds just as many files and bytes as its marker says."""
    try:
        return bool(json.loads((folder / MARKER).read_text()) == _content(folder))
    except (OSError, ValueError):
        return False


def _versions() -> Iterator[tuple[Condition, Condition | None]]:
    yield from (("TB", None), ("FB", None), ("TB", "FB"), ("FB", "FB"))


def _content(folder: Path) -> dict[str, int]:
    files = [path for path in folder.rglob("*.*") if path.name != MARKER]
    return {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}
