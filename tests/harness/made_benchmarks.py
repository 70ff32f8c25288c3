"""Small folders in the official layout of each benchmark, with generated films."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image

RATE = 16_000


def encoded(
    path: Path,
    frames: Any,
    rate: int = 10,
    codec: str = "mpeg4",
    sound: np.ndarray | None = None,
    late: float = 0.0,
    **how: Any,
) -> Path:
    """A film of these frames, ``uint8 [T, height, width, 3]``.

    Its ``sound``, ``int16 [S]`` at 16 kHz, begins so ``late``, and no encoder changes it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kind, options = how.pop("format", None), how.pop("container", {})
    with av.open(str(path), "w", format=kind, options=options) as container:
        stream = container.add_stream(codec, rate=rate, **how)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        voice = None if sound is None else container.add_stream("flac", rate=RATE, layout="mono")
        for picture in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
        if sound is not None and voice is not None:
            heard = av.AudioFrame.from_ndarray(sound[None], format="s16", layout="mono")
            heard.rate, heard.pts, heard.time_base = RATE, round(late * RATE), Fraction(1, RATE)
            container.mux(voice.encode(heard))
            container.mux(voice.encode(None))
    return path


def film(path: Path, seconds: int = 3, **how: Any) -> Path:
    """A film of ten frames a second whose picture gets brighter."""
    shades = range(10 * seconds)
    return encoded(path, [np.full((64, 64, 3), 8 * n % 256, np.uint8) for n in shades], **how)


def bigtom(folder: Path) -> Path:
    """Two stories, each with true and false belief."""
    places = {"true_belief": ("In blue.", "In red."), "false_belief": ("In red.", "In blue.")}
    for condition, (right, wrong) in places.items():
        place = folder / f"0_forward_belief_{condition}"
        place.mkdir(parents=True)
        rows = [
            f"Ann leaves the {room} room. {condition}.;Where is it?;{right};{wrong}\n"
            for room in "ab"
        ]
        (place / "stories.csv").write_text("".join(rows))
    return folder


def mmtom_qa(folder: Path) -> Path:
    """Two questions on one episode, which has its frames but not its intervals' pickle."""
    asked = (
        "What's inside the apartment: The apartment consists of a kitchen. \n"
        "Actions taken by Ann: Ann is in the kitchen. She walks to the fridge. \n"
        "Question: If Ann has been trying to get a cup, which one of the following statements is "
        "more likely to be true? (a) Ann thinks that the cup is inside the fridge. (b) Ann thinks "
        "that the cup is not inside the fridge. Please respond with either a or b."
    )
    common = {"test": ["init_graph", "actions"], "episode": 23, "start_time": 0, "end_time": 1}
    records: list[dict[str, Any]] = [
        {"question": asked, "answer": "a", "question_type": 1.1, **common},
        {"question": asked, "answer": "b", "question_type": 2.1, **common},
    ]
    folder.mkdir(parents=True)
    (folder / "questions.json").write_text("\n".join(json.dumps(r) for r in records) + "\n")
    return folder


def mmtom_qa_frames(folder: Path) -> Path:
    """The same with frames."""
    import pickle

    task = mmtom_qa(folder) / "task_23"
    pictures = task / "script" / "0"
    pictures.mkdir(parents=True)
    (task / "frame_intervals.pik").write_bytes(pickle.dumps([[0, 3], [3, 6]]))
    for number in range(7):
        for kind in ("normal", "seg_inst"):
            grey = np.full((64, 64, 3), 30 * number, np.uint8)
            Image.fromarray(grey).save(pictures / f"Action_{number:04d}_0_{kind}.png")
    return folder


def muma_tom(folder: Path) -> Path:
    """One silent episode with two questions, and its film."""
    story = "Al put the cup on the table. Bo put the cup in the box."
    options = "A) Bo wants to help.\nB) Bo does not know.\nC) Bo wants to hinder."
    record = {
        "description": story,
        "filtered_description": "Bo put the cup in the box.",
        "questions": {
            "1": f"Which of the following statements is MOST likely?\n{options}",
            "2": f"Which of the following statements is LEAST likely?\n{options}",
        },
        "answers": {"1": "A) Bo wants to help.\n", "2": "C) Bo wants to hinder."},
        "labels": {"1": "belief_of_goal", "2": "belief_of_goal"},
    }
    folder.mkdir(parents=True)
    (folder / "questions.json").write_text(json.dumps({"42": record}))
    (folder / "texts.json").write_text(json.dumps({"42": story}))
    film(folder / "videos" / "42.mp4", seconds=5)
    return folder


def moments(folder: Path) -> Path:
    """Three questions on one film with a transcript; the last one's key is hidden."""
    folder.mkdir(parents=True)
    records = [
        {
            "question_id": f"q{n}",
            "question": "Why does she say so?",
            "assigned_categories": ["Intentions", "Desires"] if n else ["Intentions"],
            "options": {"A": "To joke", "B": "To help", "C": "To leave", "D": "To stay"},
            "movie_title": "A FILM",
            "video_url": "https://vimeo.com/12345",
            "t_0": 0.0,
            "t_i": 1.0,
            "t_j": 2.5,
            "multimodal_cues": ["Speech-related"] if n else None,
            "video_length": 3.0,
        }
        for n in range(3)
    ]
    keys = [{"question_id": f"q{n}", "correct_answer_key": "B"} for n in range(2)]
    (folder / "moments_validation_questions.json").write_text(json.dumps(records))
    (folder / "moments_validation_keys.json").write_text(json.dumps(keys))
    film(folder / "videos" / "12345.mp4")
    (folder / "transcripts").mkdir()
    (folder / "transcripts" / "12345.srt").write_text(
        "1\n00:00:00,200 --> 00:00:00,800\nHello.\n\n2\n00:00:01,200 --> 00:00:02,000\nWell well.\n"
    )
    return folder


def mimeqa(folder: Path) -> Path:
    """Two open questions on one film."""
    folder.mkdir(parents=True)
    with (folder / "annotation_final.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "question", "question type", "timestamp", "reference_answer"])
        writer.writerow(["abc.mp4", "What is held?", "Grounding the Imagined", "[0, 2]", "A rope."])
        writer.writerow(["abc.mp4", "Who is sad?", "Affect Recognition", "", "The mime."])
    film(folder / "videos" / "abc.mp4")
    return folder
