"""The official release, its oddities, and what damage to it leads to."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sally_anne.benchmarks.items import BenchmarkItem, Option
from sally_anne.benchmarks.moments import (
    ABILITIES,
    CUES,
    LABELS,
    MOMENTS,
    load,
    read_keys,
    read_questions,
)
from sally_anne.core.errors import BenchmarkError, RecordError
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
GOOD_JSON = json.dumps(GOOD)
OTHER = GOOD | {"question_id": "b2", "question": "Why does he wait?", "multimodal_cues": None}
OTHER_JSON = json.dumps(OTHER)


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


def with_(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(GOOD) | changes


def one(**changes: Any) -> BenchmarkItem:
    return read_questions([with_(**changes)], "q.json", "test", {})[0]


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
    assert (media.start, media.focus, media.end, media.length) == (0.0, 10.5, 20.25, 100.5)
    assert media.path is None and media.url == GOOD["video_url"]
    assert media.alternatives == ("https://vimeo.com/123/4f",)
    assert item.licence == "CC BY-NC-SA 4.0"
    assert other.hidden and "cue" not in other.tags


def test_splits_of_the_published_folders(tmp_path: Path) -> None:
    release(tmp_path, [GOOD], [key("a1", "A")], place="data/validation")
    release(tmp_path, [OTHER], split="test", place="data/test")
    items = load(tmp_path)
    assert {i.item_id: (i.split, i.answer) for i in items} == {
        "a1": ("validation", "A"),
        "b2": ("test", None),
    }


def test_spellings_become_one() -> None:
    item = one(
        assigned_categories=["NLC", "Non-literal Communication (NLC)", "emotions"],
        multimodal_cues=["Face Expression & Gaze", "Facial Expressions or Gaze", "Speech-Related"],
    )
    assert item.tags == {
        "ability": ("Non-literal communication", "Emotions"),
        "cue": ("Face Expression and Gaze", "Speech-related"),
    }


@pytest.mark.parametrize("cues", [None, [], ...])
def test_questions_without_cues(cues: Any) -> None:
    record = with_(multimodal_cues=cues)
    if cues is ...:
        del record["multimodal_cues"]
    (item,) = read_questions([record], "q.json", "test", {})
    assert set(item.tags) == {"ability"}


def test_options_with_one_text_stay_two_options() -> None:
    item = one(options={"A": "Yes.", "B": "Yes. ", "C": "No.", "D": "So."})
    assert [option.text for option in item.options] == ["Yes.", "Yes.", "No.", "So."]


def test_an_end_beyond_the_film_stays() -> None:
    assert one(t_j=714.54, video_length=696.25).media[0].end == 714.54


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": " "}, "field question must be a text"),
        ({"question": "\ud800"}, "field question holds half of a character"),
        ({"options": {"A": "x"}}, "field options must have A, B, C, D, has A"),
        ({"options": []}, "field options must be an object"),
        ({"assigned_categories": []}, "field assigned_categories must name an ability"),
        ({"assigned_categories": ["Body Language"]}, r"assigned_categories\[0\] must be one of"),
        ({"multimodal_cues": ["NLC"]}, r"field multimodal_cues\[0\] must be one of Face"),
        ({"multimodal_cues": "Body Language"}, "field multimodal_cues must be a list"),
        ({"video_url": "youtube"}, "field video_url must be an address"),
        ({"video_url": "https://[x/1"}, "field video_url must be an address"),
        ({"video_url_alternatives": [3]}, r"field video_url_alternatives\[0\] must be a text"),
        ({"t_0": "0"}, "field t_0 must be a number"),
        ({"t_i": float("nan")}, "field t_i must be a finite number"),
        ({"t_i": 10**400}, "field t_i must be a finite number"),
        ({"t_0": 11.0}, "field t_i is before t_0"),
        ({"t_j": 10.5}, "field t_j must be after t_i"),
        ({"video_length": 0}, "field video_length must be more than 0"),
    ],
)
def test_malformed_fields_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=rf"^q\.json, record 1 \(a1\): .*{message}"):
        one(**changes)


def test_malformed_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"holds no moments_<split>_questions\.json"):
        load(tmp_path)
    with pytest.raises(RecordError, match="has no questions"):
        load(release(tmp_path, []))
    with pytest.raises(
        RecordError, match=r"record 2 \(a1\): field question_id is that of record 1"
    ):
        load(release(tmp_path, [GOOD, GOOD]))
    with pytest.raises(RecordError, match=r"record 2: field question_id is missing"):
        load(release(tmp_path, [GOOD, {}]))
    with pytest.raises(RecordError, match=r"keys\.json: .*'zz' is the key of no question"):
        load(release(tmp_path, [GOOD], [key("zz", "A")]))
    with pytest.raises(RecordError, match=r"keys\.json, record 1 \(a1\): field correct_answer_key"):
        load(release(tmp_path, [GOOD], [key("a1", "E")]))
    with pytest.raises(
        RecordError, match=r"keys\.json, record 2 \(a1\): field question_id is that"
    ):
        load(release(tmp_path, [GOOD], [key("a1", "A"), key("a1", "B")]))
    release(tmp_path, [GOOD], [key("a1", "A")])
    release(tmp_path, [GOOD], split="test")
    with pytest.raises(RecordError, match=r"'a1' is in .*moments_test_questions\.json, too"):
        load(tmp_path)


def test_films_and_transcripts_are_found_without_each_other(tmp_path: Path) -> None:
    release(tmp_path, [GOOD, OTHER | {"movie_title": "NO FILM", "video_url": "https://x.org/1"}])
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "A film [abcdefghijk].webm").touch()
    (tmp_path / "transcripts").mkdir()
    srt = "1\n00:00:01,000 --> 00:00:02,000\nHello.\n\n2\n00:00:15,000 --> 00:00:16,000\nBye.\n"
    (tmp_path / "transcripts" / "a-film.srt").write_text(srt)
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
    with pytest.raises(RecordError, match=r"abcdefghijk\.json, line 1: is not JSON"):
        load(tmp_path)


def test_two_files_of_one_film(tmp_path: Path) -> None:
    release(tmp_path, [GOOD])
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "abcdefghijk.mkv").touch()
    (tmp_path / "videos" / "abcdefghijk.mp4").touch()
    assert load(tmp_path)[0].media[0].path == tmp_path / "videos" / "abcdefghijk.mp4"
    (tmp_path / "videos" / "x [abcdefghijk].mp4").touch()
    with pytest.raises(BenchmarkError, match=r"are both of the video 'A FILM'; keep one"):
        load(tmp_path)


def test_the_official_validation_split() -> None:
    items = load(shared_data("moments"))
    assert len(items) == 325 and len({item.item_id for item in items}) == 325
    assert len({item.group for item in items}) == 13
    assert Counter(item.answer for item in items) == {"A": 76, "B": 85, "C": 78, "D": 86}
    abilities = Counter(name for item in items for name in item.tags["ability"])
    assert set(abilities) == set(ABILITIES) and sum(abilities.values()) == 470
    assert abilities["Intentions"] == 133 and abilities["Non-literal communication"] == 40
    cues = Counter(name for item in items for name in item.tags.get("cue", ()))
    assert cues == dict(zip(CUES, (218, 162, 134), strict=True))
    # 23 records say null, 3 have an empty list.
    assert sum("cue" not in item.tags for item in items) == 26
    twins = [i for i in items if len({option.text for option in i.options}) < 4]
    assert [item.item_id for item in twins] == ["gRDwb"]
    for item in items:
        (media,) = item.media
        assert media.start == 0.0 < media.focus < media.end <= media.length
        assert item.question == item.question.strip()


def test_made_records_in_the_official_layout() -> None:
    items = load(official_data("made", "moments"))
    assert {item.item_id: item.answer for item in items} == dict(
        zip(("Lm001", "Lm002", "Lm003", "Lm004", "Pr001", "Pr002", "Pr003"), "BCABDAD", strict=True)
    )
    assert Counter(item.group for item in items) == {"THE LAMPLIGHTER": 4, "PAPER RAFT": 3}
    assert Counter(name for item in items for name in item.tags["ability"]) == {
        **dict.fromkeys(("Intentions", "Emotions", "Desires"), 2),
        **dict.fromkeys(("Beliefs", "Knowledge", "Non-literal communication", "Percepts"), 1),
    }
    # One record says null, one has an empty list.
    assert [i.item_id for i in items if "cue" not in i.tags] == ["Lm002", "Pr001"]
    assert [i.item_id for i in items if len({o.text for o in i.options}) < 4] == ["Pr002"]
    (media,) = items[0].media
    assert (media.start, media.focus, media.end, media.length) == (0.0, 31.5, 44.125, 412.75)
    assert media.url == "https://vimeo.com/100200300"


@pytest.mark.parametrize("source", SOURCES)
def test_the_official_records_come_out_as_they_are(source: str) -> None:
    folder = official_data(source, "moments")
    records = json.loads((folder / "moments_validation_questions.json").read_text())
    for item, record in zip(load(folder), records, strict=True):
        assert item.item_id == record["question_id"]
        assert item.question == record["question"].rstrip()
        assert {o.label: o.text for o in item.options} == {
            label: text.rstrip() for label, text in record["options"].items()
        }
        assert item.tags["ability"] == tuple(record["assigned_categories"])
        assert item.tags.get("cue", ()) == tuple(record["multimodal_cues"] or ())


def test_the_benchmark() -> None:
    assert MOMENTS.default_view == "multimodal" and MOMENTS.windows == ("full", "focused")
    assert MOMENTS.sampling.count == 64
    assert MOMENTS.notes is not None and "end" in MOMENTS.notes["text"]
    assert "none" not in MOMENTS.notes


def odd_value(rng: random.Random) -> Any:
    return rng.choice(
        [
            None,
            True,
            -1,
            0,
            3,
            10**400,
            1e308,
            float("nan"),
            float("inf"),
            "",
            " \n",
            "x" * 3000,
            "\ud800",
            "\u202e\0é你",
            "A",
            "Intentions",
            "https://[",
            "https://vimeo.com",
            [],
            {},
            [[]],
            [None],
            [{"A": 1}],
            {"A": {}},
            dict.fromkeys(LABELS, "same"),
            ["Percepts", "Percepts"],
            ["Body Language", 1],
            [1.5] * 50,
        ]
    )


def damage(rng: random.Random, record: dict[str, Any]) -> str:
    """Change one field; says which."""
    name = rng.choice(list(record))
    inner = record[name]
    how = rng.randrange(6)
    if how == 0:
        del record[name]
    elif how == 1:
        record[name] = [inner]
    elif how == 2 and isinstance(inner, dict):
        inner[rng.choice(["A", "D", "E", "", "é"])] = odd_value(rng)
    elif how == 2 and isinstance(inner, list):
        inner.insert(rng.randrange(len(inner) + 1), odd_value(rng))
    elif how == 3 and isinstance(inner, float):
        record[name] = rng.choice(
            [-inner, inner * 1000, rng.randrange(100), rng.uniform(0, 100), str(inner)]
        )
    elif how == 4 and isinstance(inner, str):
        place = rng.randrange(len(inner) + 1)
        record[name] = inner[:place] + chr(rng.randrange(0x110000)) + inner[place + 1 :]
    else:
        record[name] = odd_value(rng)
    return name


def is_right(item: BenchmarkItem, record: dict[str, Any]) -> None:
    """The item says what the record says."""
    assert item.item_id == record["question_id"].rstrip() != ""
    assert item.question == record["question"].rstrip() != ""
    assert item.group == record["movie_title"].rstrip() != ""
    assert [o.label for o in item.options] == list(record["options"]) == sorted(LABELS)
    assert [o.text for o in item.options] == [t.rstrip() for t in record["options"].values()]
    assert all(option.text for option in item.options)
    assert set(item.tags["ability"]) <= set(ABILITIES) and item.tags["ability"]
    assert set(item.tags.get("cue", ())) <= set(CUES)
    (media,) = item.media
    times = (media.start, media.focus, media.end)
    assert times == tuple(record[name] for name in ("t_0", "t_i", "t_j"))
    assert media.focus is not None and media.end is not None and media.length is not None
    assert 0 <= media.start <= media.focus < media.end < float("inf") and media.length > 0
    assert media.url == record["video_url"].rstrip()
    repr(item).encode()


@pytest.mark.fuzz
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**62))
def test_fuzzed_records_are_right_or_named(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        records = [json.loads(GOOD_JSON), json.loads(OTHER_JSON)]
        number = rng.randrange(2)
        changed = {damage(rng, records[number]) for _ in range(rng.choice([1, 1, 1, 2]))}
        if rng.random() < 0.05:
            records[number]["question_id"] = records[1 - number]["question_id"]
            changed, number = {"question_id"}, 1
        try:
            items = read_questions(records, "q.json", "test", {})
        except RecordError as error:
            message = str(error)
            # Times are compared with each other.
            if changed & {"t_0", "t_i", "t_j"}:
                changed |= {"t_i", "t_j"}
            assert message.startswith(f"q.json, record {number + 1}")
            assert any(f"field {name}" in message for name in changed)
            continue
        for item, record in zip(items, records, strict=True):
            is_right(item, record)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**62))
def test_fuzzed_keys_are_right_or_named(seed: int) -> None:
    rng = random.Random(seed)
    keys: Any = [key("a1", "A"), key("b2", "D")]
    number = rng.randrange(2)
    if rng.random() < 0.1:
        keys[number] = odd_value(rng)
    else:
        keys[number][rng.choice(["question_id", "correct_answer_key"])] = odd_value(rng)
    try:
        found = read_keys(keys, "k.json")
    except RecordError as error:
        assert str(error).startswith(f"k.json, record {number + 1}")
    else:
        assert set(found.values()) <= set(LABELS) and len(found) == 2
