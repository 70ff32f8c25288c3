"""Each benchmark from its folder to its numbers, on a tiny model."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.core.console import Console
from sally_anne.core.errors import HarnessError, OptionError, RecordError
from sally_anne.data.items import short_name
from sally_anne.data.tasks import find_task
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.method_config import DescribeConfig
from sally_anne.harness.questions import describe
from sally_anne.harness.tasks import Row, load_items, sample_groups
from sally_anne.models.tiny import Family
from tests.data import made_text_sets as sets
from tests.harness import made_benchmarks as made
from tests.made_replies import evaluated as run
from tests.made_replies import figures_of, scripted_replies

pytestmark = pytest.mark.integration


@pytest.fixture
def config(folders: dict[Family, Path], tmp_path: Path) -> EvalConfig:
    model = str(folders["qwen2-vl"])
    return EvalConfig(model=model, out=tmp_path / "run", batch_size=2, max_new_tokens=2)


def test_mmtom_by_hand(config, tmp_path, monkeypatch) -> None:
    seen = scripted_replies(monkeypatch, lambda prompt: "(a)")
    data = made.mmtom_qa_frames(tmp_path / "data")
    _, saved, _ = run(replace(config, task="mmtom_qa", data=data))
    found = figures_of(saved["results"])
    assert (found["type: 1.1"][0], found["type: 2.1"][0]) == (1.0, 0.0)
    assert seen[0].clip is not None and len(seen[0].clip) == 7  # all up to the end of the step
    assert "What's inside" not in seen[0].text and "consists of a kitchen" in seen[0].text


def test_muma_by_hand(config, tmp_path, monkeypatch) -> None:
    seen = scripted_replies(
        monkeypatch, lambda prompt: "C" if "LEAST" in prompt.text else "nobody knows"
    )
    data = made.muma_tom(tmp_path / "data")
    table, saved, _ = run(replace(config, task="muma_tom", data=data))
    found = figures_of(saved["results"])
    assert (found["all"][0], found["invalid"][0]) == (0.5, 0.5)
    assert found["polarity: least"][0] == 1.0
    assert seen[0].clip is not None and len(seen[0].clip) == 3  # frames 0, 20 and 40 of 50
    assert "Al put the cup" not in seen[0].text


def test_moments_hidden_keys_and_submission(config, tmp_path, monkeypatch) -> None:
    scripted_replies(monkeypatch, lambda prompt: "B")
    asked = replace(config, task="moments", view="text", data=made.moments(tmp_path / "data"))
    table, saved, printed = run(asked)
    assert saved["counts"] == {"asked": 3, "hidden": 1, "cut": 0, "missing": 0}
    found = figures_of(saved["results"])
    assert found["all"] == (1.0, 2)
    assert (found["ability: Desires"][1], found["ability: Intentions"][1]) == (1, 2)
    handed_in = json.loads((asked.folder / "submission.json").read_text())
    assert [row["answer_key"] for row in handed_in] == ["B", "B", "B"]
    assert "hidden" in printed


def test_moments_windows(config, tmp_path, monkeypatch) -> None:
    seen = scripted_replies(monkeypatch, lambda prompt: "B")
    asked = replace(config, task="moments", data=made.moments(tmp_path / "data"), frames=3)
    run(replace(asked, out=tmp_path / "full"))
    run(replace(asked, out=tmp_path / "focused", window="focused"))
    full, focused = seen[0], seen[3]
    assert "Hello" in full.text and "Well well" in full.text
    assert "Hello" not in focused.text and "Well well" in focused.text
    assert full.clip is not None and focused.clip is not None
    assert full.clip[0].mean() < 20 < focused.clip[0].mean()


def test_films_that_are_not_here(config, tmp_path, monkeypatch) -> None:
    scripted_replies(monkeypatch, lambda prompt: "B")
    data = made.moments(tmp_path / "data")
    for path in (data / "videos").iterdir():
        path.unlink()
    asked = replace(config, task="moments", data=data)
    with pytest.raises(HarnessError, match="vimeo.com/12345"):
        run(replace(asked, view="video"))
    _, saved, _ = run(replace(asked, view="text"))
    assert saved["counts"]["missing"] == 0


def test_groups_are_taken_whole_and_weigh_as_many_items_as_they_have() -> None:
    """The story with three questions of x stands against the three stories with one of y."""
    rows = [("large", {"kind": ("x",)})] * 3 + [(f"y{n}", {"kind": ("y",)}) for n in range(3)]
    for seed in range(5):
        kept = sample_groups(rows, ("kind",), 3, seed)
        assert kept == {"y0", "y1", "y2"} or "large" in kept and len(kept) == 3
    assert sample_groups(rows, ("kind",), 4, 0) == {"large", "y0", "y1", "y2"}


def test_a_task_is_described_by_its_counts(tmp_path: Path) -> None:
    asked = {"a": ("Where is it?", 0, ["x", "y"]), "b": ("Where?", 0, "x"), "c": ("Who?", 1, ())}
    for (name, (text, answer, kind)), seconds in zip(asked.items(), (2, 4, 4), strict=True):
        film = made.film(tmp_path / f"{name}.mp4", seconds).name
        line = {"video": film, "question": text, "options": ["in red", "in the blue"]}
        with (tmp_path / "own.jsonl").open("a") as file:
            file.write(json.dumps(line | {"answer": answer, "tags": {"kind": kind}}) + "\n")
    counts, lengths = describe(DescribeConfig(str(tmp_path / "own.jsonl")), Console(quiet=True))
    found = {f"{kind} {value}": numbers for kind, value, *numbers in counts.to_numpy().tolist()}
    assert found["all all"] == found["options of 2"] == [3, 3, 1.0]
    assert found["kind x"] == found["right A of 2"] == pytest.approx([2, 2, 2 / 3])
    assert found["kind y"] == found["right B of 2"] == pytest.approx([1, 1, 1 / 3])
    sizes = {part: numbers for part, *numbers in lengths.to_numpy().tolist()}
    assert sizes["question"] == pytest.approx([3, 5 / 3, (4 / 3) ** 0.5, 1, 1, 3])
    assert sizes["right option"] == pytest.approx([3, 7 / 3, (1 / 3) ** 0.5, 2, 2, 3])
    assert sizes["wrong option"] == pytest.approx([3, 8 / 3, (1 / 3) ** 0.5, 3, 2, 3])
    assert sizes["window (s)"] == pytest.approx([3, 10 / 3, (4 / 3) ** 0.5, 4, 2, 4])


tagged = st.fixed_dictionaries({"kind": st.tuples(st.sampled_from("uvw"))})


@given(st.lists(tagged, min_size=1, max_size=40), st.integers(1, 50), st.integers(0, 9))
def test_as_many_of_each_value_within_one_where_there_are_so_many(tags, limit, seed) -> None:
    rows: list[Row] = [(str(n), each) for n, each in enumerate(tags)]
    kept = sample_groups(rows, ("kind",), limit, seed)
    assert len(kept) == min(limit, len(rows))
    there = Counter(each["kind"] for _, each in rows)
    taken = Counter(each["kind"] for name, each in rows if name in kept)
    most = max(taken.values())
    assert all(taken[value] >= min(n, most - 1) for value, n in there.items())


def test_stories_of_gridtom_over_maps_in_whole_pairs() -> None:
    config = EvalConfig(setting="text", limit=42)
    work = load_items(config)
    stories = {item.group: item.map for item in work.items}
    assert set(Counter(stories.values()).values()) == {2} and len(stories) == 42
    pairs = Counter((item.group, item.condition) for item in work.items)
    assert set(pairs.values()) == {1} and len(pairs) == 84
    other = load_items(replace(config, model="another", order="2"))
    assert {item.group for item in other.items} == set(stories)
    assert {i.group for i in load_items(replace(config, limit_seed=1)).items} != set(stories)
    everything = load_items(replace(config, limit=None))
    assert load_items(replace(config, limit=500)).items == everything.items


# By task: how many items are asked, and what the breakdown counts.
NUMBERS = {
    "tomi": (12, {"type": {"memory": 2, "first_order_tom": 1, "first_order_no_tom": 3}}),
    "hi_tom": (10, {"order": dict.fromkeys("01234", 2), "deception": {"Tell": 10}}),
    "fantom": (18, {"type": {"belief": 4, "belief control": 2, "answerability": 4}}),
    "opentom": (18, {"hop": {"fullness": 2, "accessibility": 2}, "type": {"attitude": 2}}),
    "tombench": (3, {"ability": {"Belief: Second-order beliefs": 2}, "language": {"en": 3}}),
}
JOINT = {
    "tomi": {"story": 2},
    "hi_tom": {f"up to order {top}": 2 for top in range(1, 5)},
    "fantom": {
        **{"all but lists": 2, "all but lists control": 1},
        **{
            f"all {kind}{c}": 2 - bool(c)
            for kind in ("answerability", "info-access")
            for c in ("", " control")
        },
    },
}


@pytest.mark.parametrize("task", NUMBERS)
def test_every_set_is_asked_and_broken_down(config, tmp_path, monkeypatch, task) -> None:
    data = getattr(sets, task)(tmp_path / "data")
    asked = replace(config, task=task, data=data, max_new_tokens=None)
    right = {item.text: item.key[0] for item in load_items(asked).items}
    seen = scripted_replies(monkeypatch, lambda prompt: right[prompt.text])
    table, saved, printed = run(asked)
    count, wanted = NUMBERS[task]
    assert len(table) == len(seen) == count == saved["counts"]["asked"]
    found = figures_of(saved["results"])
    assert (found["all"][0], found["invalid"][0]) == (1.0, 0.0)
    for kind, values in wanted.items():
        for value, n in values.items():
            assert found[f"{kind}: {value}"] == (1.0, n), (kind, value)
    joint = {k.removeprefix("all right: "): v[1] for k, v in found.items() if "all right" in k}
    assert joint == JOINT.get(task, {})
    assert ("all right: " in printed) is (task in JOINT)
    assert ("of each set of FANToM the fact question" in printed) is (task == "fantom")
    if task == "hi_tom":
        assert all("Agents like to lie" in prompt.text for prompt in seen)


@pytest.mark.parametrize(
    ("task", "cells"),
    [
        ("tomi", {"1": 1}),
        ("opentom", {f"location {how}, first order": 1 for how in ("coarse", "fine")}),
    ],
)
def test_true_and_false_beliefs_of_one_story(config, tmp_path, monkeypatch, task, cells) -> None:
    """Whoever says where the thing is knows true beliefs alone."""
    data = getattr(sets, task)(tmp_path / "data")
    asked = replace(config, task=task, data=data)

    def reply(prompt) -> str:
        options = dict(
            line.split(". ", 1)[::-1] for line in prompt.text.splitlines() if line[1:3] == ". "
        )
        return next((options[o] for o in ("blue_chest", "a blue chest", "No") if o in options), "A")

    scripted_replies(monkeypatch, reply)
    _, saved, printed = run(asked)
    found, n = figures_of(saved["results"]), sum(cells.values())
    assert [found[name] for name in ("TB", "FB", "Both")] == [(1.0, n), (0.0, n), (0.0, n)]
    assert {cell: found[f"{cell}: Both"][1] for cell in cells} == cells
    assert "Both" in printed


ROOT = Path(__file__).parents[2]
MODULE = """
from dataclasses import replace
from sally_anne.data.text_sets import BIGTOM

MINE = replace(BIGTOM, name="mine")
OTHER = 3
"""


def write(path: Path, *lines: dict[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_tasks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in __import__("sys").path if path])
    return "my_tasks"


def test_a_module_of_the_working_folder(module: str) -> None:
    assert find_task(f"{module}:MINE").name == "mine"
    assert short_name(f"{module}:MINE") == "MINE"
    for name in ("OTHER", "NONE"):
        with pytest.raises(OptionError):
            find_task(f"{module}:{name}")


def test_a_file_and_its_replies(tmp_path: Path) -> None:
    closed = write(tmp_path / "a.jsonl", {"question": "Who?", "options": ["x", "y"], "answer": 0})
    asked = write(tmp_path / "b.jsonl", {"question": "Who?", "answer": "Ann."})
    assert (
        EvalConfig(task=str(closed)).reply_tokens,
        EvalConfig(task=str(asked)).reply_tokens,
    ) == (32, 128)
    assert EvalConfig(task=str(closed)).folder.name.endswith("-a")
    with pytest.raises(RecordError, match="nowhere.jsonl"):
        find_task(str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(OptionError, match="--data is for other tasks"):
        load_items(EvalConfig(task=str(closed), data=tmp_path))


def test_a_file_from_questions_to_numbers(config, tmp_path, monkeypatch) -> None:
    lines = [
        {"question": "Where?", "options": ["red", "blue"], "answer": "blue", "tags": {"kind": k}}
        for k in ("a", "a", "b", "c")
    ]
    asked = replace(config, task=str(write(tmp_path / "mine.jsonl", *lines)))
    replies = iter("BBAB")
    scripted_replies(monkeypatch, lambda prompt: next(replies))
    _, saved, printed = run(asked)
    found = figures_of(saved["results"])
    assert found["all"][0] == 0.75 and found["invalid"][0] == 0
    assert [found[f"kind: {kind}"][0] for kind in "abc"] == [1.0, 0.0, 1.0]
    assert "mine, not steered" in " ".join(printed.split())
    kept = json.loads((asked.folder / "config.json").read_text())["config"]
    assert kept == saved["config"] and kept["task"] == asked.task
    # Another question under the same name is another run.
    write(tmp_path / "mine.jsonl", *[{**line, "question": "Who?"} for line in lines])
    with pytest.raises(HarnessError, match="holds another run: data is"):
        run(asked)
