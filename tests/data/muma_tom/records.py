"""Two records in the benchmark's form, in words of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def silent() -> dict[str, Any]:
    """An episode without talk: the film shows Ada, the text tells what Bob does."""
    part = "Bob came in, took the pear from the shelf and put it inside the oven."
    kept = "Bob believed that Ada placed the pear at her desired location: he moved it to help Ada."
    helped = (
        "Bob believed that Ada wants to place the pear inside the oven: he moved it to help Ada."
    )
    unknown = (
        "Bob doesn't know Ada's goal and moves the pear without thinking about what she wants."
    )
    stem = "Given the above interaction, which of the following statements is"
    return {
        "description": (
            "b'Ada fetched a pear\\'s box from the hall, opened it, carried one pear to the shelf "
            f"and left for the bedroom.\\n\\n{part}'"
        ),
        "filtered_description": part,
        "questions": {
            "1": f"{stem} MOST likely?\nA) {kept}\nB) {helped}\nC) {unknown}",
            "2": f"{stem} LEAST likely true?\nA) {helped}\nB) {unknown}\nC) {kept}\n",
        },
        "answers": {"1": f"B) {helped}\n", "2": f"C) {kept}"},
        "labels": {"1": "belief_of_goal", "2": "belief_of_goal"},
    }


def talking() -> dict[str, Any]:
    """An episode with talk: Cy asks, Dee replies."""
    stem = "Given the above interaction,"
    which = "which of the following statements is"
    believed = [
        f"When giving information, Dee believed that there was {what}"
        for what in ("a hat on the bed", "a hat in the box", "a cup in the box")
    ]
    wanted = [
        "When giving information, Dee has been trying to help Cy locate the hat",
        "When giving information, Dee has been trying to prevent Cy from finding the hat",
        "When giving information, Dee was indifferent towards Cy's goals",
    ]
    offered = "\n".join(f"{label}) {text}" for label, text in zip("ABC", believed, strict=True))
    goals = "\n".join(f"{label}) {text}" for label, text in zip("ABC", wanted, strict=True))
    return {
        "description": (
            'b\'Cy walked into the hall and asked, "Have you seen a hat?" Dee replied, "It lies '
            'on the bed," while she opened the box. Cy walked to the bed, found no hat, and took '
            "one out of the box.'"
        ),
        "questions": {
            "1": f"{stem} if Dee has been trying to help Cy achieve his goal, {which} MOST likely?"
            f"\n{offered}",
            "2": f"{stem} assuming that Dee knows what is on the bed, {which} LEAST likely?"
            f"\n{goals}",
        },
        "answers": {"1": f"A) {believed[0]}", "2": f"A) {wanted[0]}"},
        "labels": {"1": "belief", "2": "social_goal"},
    }


def write(
    folder: Path, questions: dict[str, Any], texts: dict[str, Any] | None = None, films: str = ""
) -> Path:
    """A folder in the benchmark's layout, with empty films."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "questions.json").write_text(json.dumps(questions))
    if texts is not None:
        (folder / "texts.json").write_text(json.dumps(texts))
    for name in films.split():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    return folder
