"""The official release, its oddities, and malformed files of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.items import VIDEOS, Option, Question
from sally_anne.data.moments import ABILITIES, CUES, finder, load, read_question
from sally_anne.data.read import Field
from tests.shared_data import SOURCES, official_data, shared_data

GOOD: dict[str, Any] = {
    "question_id": "a1",
    "question": "Why does she wave?\n",
    "assigned_categories": ["Intentions", "Non-literal communication"],
    "options": {"A": "To greet him. ", "B": "To warn him.", "C": "To rest.", "D": "To leave."},
    "movie_title": "A FILM",
    "video_url": "https://www.youtube.com/watch?v=abcdefghijk",
    "t_0": 0.0,
    "t_i": 10.5,
    "t_j": 20.25,
    "multimodal_cues": ["Body Language"],
    "video_length": 100.5,
    "video_url_alternatives": ["https://vimeo.com/123/4f"],
}
OTHER = GOOD | {"question_id": "b2", "question": "Why does he wait?", "multimodal_cues": None}


def release(
    folder: Path,
    records: list[Any],
    keys: list[Any] | None = None,
    split: str = "validation",
    place: str = "",
) -> Path:
    target = folder / place
    target.mkdir(parents=True, exist_ok=True)
    (target / f"moments_{split}_questions.json").write_text(json.dumps(records))
    if keys is not None:
        (target / f"moments_{split}_keys.json").write_text(json.dumps(keys))
    return folder


def key(name: str, label: str) -> dict[str, str]:
    return {"question_id": name, "correct_answer_key": label}


def one(**changes: Any) -> Question:
    return read_question(Field(GOOD | changes, "q.json"), "test", {})[0]


def test_one_record(tmp_path: Path) -> None:
    item, other = load(release(tmp_path, [GOOD, OTHER], [key("a1", "B")]))
    assert item.item_id == "a1" and item.split == "validation" and item.group == "A FILM"
    assert item.question == "Why does she wave?"
    assert item.options == (
        Option("A", "To greet him."),
        Option("B", "To warn him."),
        Option("C", "To rest."),
        Option("D", "To leave."),
    )
    assert item.answer == "B" and not item.hidden and item.polarity == "most"
    assert item.tags == {
        "ability": ("Intentions", "Non-literal communication"),
        "cue": ("Body Language",),
    }
    (media,) = item.media
    assert (media.start, media.focus, media.end) == (0.0, 10.5, 20.25)
    assert media.path is None and media.url == GOOD["video_url"]
    assert other.hidden and "cue" not in other.tags


def test_a_question_in_two_files_is_refused(tmp_path: Path) -> None:
    release(release(tmp_path, [GOOD], place="data/validation"), [OTHER, GOOD], split="test")
    with pytest.raises(RecordError, match="a1"):
        load(tmp_path)


def test_spellings_become_one() -> None:
    item = one(
        assigned_categories=["NLC", "Non-literal Communication (NLC)", "emotions"],
        multimodal_cues=["Face Expression & Gaze", "Facial Expressions or Gaze", "Speech-Related"],
    )
    assert item.tags == {
        "ability": ("Non-literal communication", "Emotions"),
        "cue": ("Face Expression and Gaze", "Speech-related"),
    }


def test_films_and_transcripts_are_found_without_each_other(tmp_path: Path) -> None:
    release(tmp_path, [GOOD, OTHER | {"movie_title": "NO FILM", "video_url": "https://x.org/1"}])
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "A film [abcdefghijk].webm").touch()
    (tmp_path / "transcripts").mkdir()
    srt = "1\n00:00:01,000 --> 00:00:02,000\nHello.\n\n2\n00:00:15,000 --> 00:00:16,000\nBye.\n"
    (tmp_path / "transcripts" / "abcdefghijk.srt").write_text(srt)
    here, elsewhere = load(tmp_path)
    assert here.media[0].path == tmp_path / "videos" / "A film [abcdefghijk].webm"
    assert here.context.transcript == "Hello.\nBye."
    assert here.context.focused_transcript == "Bye."
    # Of the same film, by its alternative address.
    assert elsewhere.media[0].path is None and elsewhere.context.transcript == ""


def test_silence_is_told_from_a_missing_transcript(tmp_path: Path) -> None:
    release(tmp_path, [GOOD])
    (tmp_path / "transcripts").mkdir()
    silent = '{"segments": [{"start": 1, "end": 2, "text": "Hello."}]}'
    (tmp_path / "transcripts" / "abcdefghijk.json").write_text(silent)
    (item,) = load(tmp_path)
    assert item.context.transcript == "Hello."
    assert item.context.focused_transcript == "(no speech)"
    (tmp_path / "transcripts" / "abcdefghijk.json").write_text("{")
    with pytest.raises(RecordError):
        load(tmp_path)


def test_the_official_validation_split() -> None:
    items = load(shared_data("moments"))
    assert len(items) == 325 and len({item.item_id for item in items}) == 325
    assert Counter(item.answer for item in items) == {"A": 76, "B": 85, "C": 78, "D": 86}
    abilities = Counter(name for item in items for name in item.tags["ability"])
    assert set(abilities) == set(ABILITIES) and sum(abilities.values()) == 470
    cues = Counter(name for item in items for name in item.tags.get("cue", ()))
    assert cues == dict(zip(CUES, (218, 162, 134), strict=True))
    # 23 records say null, 3 have an empty list.
    assert sum("cue" not in item.tags for item in items) == 26
    for item in items:
        (media,) = item.media
        assert media.start == 0.0 < media.focus < media.end


@pytest.mark.parametrize("source", SOURCES)
def test_the_official_records_come_out_as_they_are(source: str) -> None:
    folder = official_data(source, "moments")
    records = json.loads((folder / "moments_validation_questions.json").read_text())
    keys = json.loads((folder / "moments_validation_keys.json").read_text())
    answers = {key["question_id"]: key["correct_answer_key"] for key in keys}
    for item, record in zip(load(folder), records, strict=True):
        assert item.answer == answers[record["question_id"]]
        assert item.item_id == record["question_id"]
        assert item.question == record["question"].rstrip()
        assert {o.label: o.text for o in item.options} == {
            label: text.rstrip() for label, text in record["options"].items()
        }
        assert item.tags["ability"] == tuple(record["assigned_categories"])
        assert item.tags.get("cue", ()) == tuple(record["multimodal_cues"] or ())


@pytest.mark.parametrize("name", ["AbC-1.mp4", "Some [x] film [AbC-1].MKV"])
def test_names_that_mean_a_film(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert finder(tmp_path, VIDEOS)(["https://youtu.be/AbC-1"]) == tmp_path / name


def test_its_own_address_goes_first(tmp_path: Path) -> None:
    for name in ("22.mp4", "one.avi"):
        (tmp_path / name).touch()
        urls = ["https://youtu.be/one", "https://vimeo.com/22"]
        assert finder(tmp_path, VIDEOS)(urls) == tmp_path / name
