"""Each benchmark from its folder to its numbers, on a tiny model."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Benchmark, BenchmarkItem, Option
from sally_anne.experiments.train_tiny.families import FAMILIES, Family
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate as work
from sally_anne.harness.model import Completion, Prompt, SteeredModel
from sally_anne.harness.tasks import Row, Subset, load_items, sample_groups
from tests.harness import made_benchmarks as made
from tests.made_replies import replied

pytestmark = pytest.mark.integration

Run = Callable[[EvalConfig], tuple[pd.DataFrame, dict[str, Any], str]]


def run(config: EvalConfig) -> tuple[pd.DataFrame, dict[str, Any], str]:
    printed = io.StringIO()
    work(config, console=Console(file=printed, width=160))
    table = pd.read_parquet(config.folder / "answers.parquet")
    return table, json.loads((config.folder / "results.json").read_text()), printed.getvalue()


@pytest.fixture
def config(folders: dict[Family, Path], tmp_path: Path) -> EvalConfig:
    model = str(folders["qwen2-vl"])
    return EvalConfig(model=model, out=tmp_path / "run", batch_size=2, max_new_tokens=2)


def say(monkeypatch: pytest.MonkeyPatch, reply: Callable[[Prompt], str]) -> list[Prompt]:
    """Let the model reply by hand; returns what it is asked."""
    seen: list[Prompt] = []

    def replies(
        self: SteeredModel, prompts: Sequence[Prompt], max_new_tokens: int
    ) -> list[Completion]:
        seen.extend(prompts)
        return replied(map(reply, prompts))

    monkeypatch.setattr(SteeredModel, "replies", replies)
    return seen


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("task", "build", "view", "n"),
    [
        ("bigtom", made.bigtom, None, 4),
        ("bigtom", made.bigtom, "none", 4),
        ("mmtom_qa", made.mmtom_qa_frames, None, 2),
        ("mmtom_qa", made.mmtom_qa, "text", 2),
        ("muma_tom", made.muma_tom, None, 2),
        ("moments", made.moments, "video", 3),
        ("moments", made.moments, "text", 3),
        ("mimeqa", made.mimeqa, None, 2),
    ],
)
def test_runs_end_to_end(config, folders, tmp_path, family, task, build, view, n) -> None:
    asked = replace(
        config,
        model=str(folders[family]),
        task=task,
        view=view,
        data=build(tmp_path / "data"),
        # What the tiny clip tower takes in a test's time.
        frames=2 if view != "none" and build is not made.bigtom else None,
    )
    table, saved, printed = run(asked)
    assert len(table) == n == saved["counts"]["asked"]
    assert table["reply"].map(type).eq(str).all()
    again, _, _ = run(asked)
    pd.testing.assert_frame_equal(again, table)
    if task == "mimeqa":
        assert saved["results"] == {} and "--judge" in printed
    else:
        assert {"robust", "official"} <= set(saved["results"])


@pytest.mark.parametrize(
    ("wanted", "scores"), [("right", (1.0, 1.0, 1.0)), ("wrong", (0.0, 0.0, 0.0)), ("A", None)]
)
def test_bigtom_by_hand(config, tmp_path, monkeypatch, wanted, scores) -> None:
    def answer(prompt: Prompt) -> str:
        true = "In blue." if "true_belief" in prompt.text else "In red."
        right = next(line[0] for line in prompt.text.splitlines() if line.endswith(true))
        return {"right": right, "wrong": "AB"[right == "A"], "A": "A"}[wanted]

    say(monkeypatch, answer)
    table, saved, _ = run(replace(config, task="bigtom", data=made.bigtom(tmp_path / "data")))
    found = saved["results"]["robust"]
    if scores is not None:
        belief = found["belief"]
        assert tuple(belief[name]["value"] for name in ("TB", "FB", "Both")) == scores
        assert found["overall"]["value"] == scores[0]
    else:
        assert found["overall"]["value"] == (table["answer"] == "A").mean()
    assert found["belief"]["Both"]["n"] == 2
    assert found["groups"]["variable"]["forward_belief"]["n"] == 4


def test_mmtom_by_hand(config, tmp_path, monkeypatch) -> None:
    seen = say(monkeypatch, lambda prompt: "(a)")
    data = made.mmtom_qa_frames(tmp_path / "data")
    _, saved, _ = run(replace(config, task="mmtom_qa", data=data))
    groups = saved["results"]["robust"]["groups"]
    assert {k: v["value"] for k, v in groups["type"].items()} == {"1.1": 1.0, "2.1": 0.0}
    assert seen[0].clip is not None and len(seen[0].clip) == 7  # all up to the end of the step
    assert "What's inside" not in seen[0].text and "consists of a kitchen" in seen[0].text


def test_muma_by_hand(config, tmp_path, monkeypatch) -> None:
    seen = say(monkeypatch, lambda prompt: "C" if "LEAST" in prompt.text else "nobody knows")
    data = made.muma_tom(tmp_path / "data")
    table, saved, _ = run(replace(config, task="muma_tom", data=data))
    found = saved["results"]["robust"]
    assert (found["overall"]["value"], found["invalid"]["value"]) == (0.5, 0.5)
    assert found["groups"]["polarity"]["least"]["value"] == 1.0
    assert seen[0].clip is not None and len(seen[0].clip) == 3  # frames 0, 20 and 40 of 50
    assert "Al put the cup" not in seen[0].text


def test_moments_hidden_keys_and_submission(config, tmp_path, monkeypatch) -> None:
    say(monkeypatch, lambda prompt: "B")
    asked = replace(config, task="moments", view="text", data=made.moments(tmp_path / "data"))
    table, saved, printed = run(asked)
    assert saved["counts"] == {"asked": 3, "hidden": 1, "cut": 0, "missing": 0}
    overall = saved["results"]["robust"]["overall"]
    assert (overall["value"], overall["n"]) == (1.0, 2)
    abilities = saved["results"]["robust"]["groups"]["ability"]
    assert {name: cell["n"] for name, cell in abilities.items()} == {"Desires": 1, "Intentions": 2}
    handed_in = json.loads((asked.folder / "submission.json").read_text())
    assert [row["answer_key"] for row in handed_in] == ["B", "B", "B"]
    assert "hidden" in printed


def test_moments_windows(config, tmp_path, monkeypatch) -> None:
    seen = say(monkeypatch, lambda prompt: "B")
    asked = replace(config, task="moments", data=made.moments(tmp_path / "data"), frames=3)
    run(replace(asked, out=tmp_path / "full"))
    run(replace(asked, out=tmp_path / "focused", window="focused"))
    full, focused = seen[0], seen[3]
    assert "Hello" in full.text and "Well well" in full.text
    assert "Hello" not in focused.text and "Well well" in focused.text
    assert full.clip is not None and focused.clip is not None
    assert full.clip[0].mean() < 20 < focused.clip[0].mean()


def test_films_that_are_not_here(config, tmp_path, monkeypatch) -> None:
    say(monkeypatch, lambda prompt: "B")
    data = made.moments(tmp_path / "data")
    for path in (data / "videos").iterdir():
        path.unlink()
    asked = replace(config, task="moments", data=data)
    with pytest.raises(HarnessError, match=r"vimeo.com/12345.*try --view text"):
        run(replace(asked, view="video"))
    _, saved, _ = run(replace(asked, view="text"))
    assert saved["counts"]["missing"] == 0


def test_mimeqa_with_a_judge(config, folders, tmp_path, monkeypatch) -> None:
    seen = say(monkeypatch, lambda prompt: "A rope." if "held" in prompt.text else "")
    asked = replace(
        config,
        task="mimeqa",
        data=made.mimeqa(tmp_path / "data"),
        judge=str(folders["llava-next-video"]),
        judge_words=("right", "wrong"),
    )
    table, saved, _ = run(asked)
    # An untrained judge may say anything; an empty reply is wrong without asking it.
    assert not table.loc[1, "judge_correct"]
    assert set(saved["results"]) == {"judge"}
    assert set(saved["results"]["judge"]["groups"]["category"]) == {
        "Affect recognition",
        "Grounding the imagined",
    }
    assert "from 0:00, 0:01, 0:02" in seen[0].text and "<frames>" not in seen[0].text
    people = table.assign(label=table["judge_correct"].map({True: "true", False: "false"}))
    people[["item_id", "label"]].to_csv(tmp_path / "human.csv", index=False)
    _, saved, printed = run(replace(asked, human=tmp_path / "human.csv"))
    assert (saved["agreement"]["agreement"], saved["agreement"]["n"]) == (1.0, 2)
    assert "agree on 100.0 % of 2 replies" in printed
    # Another judge reads what was said, and neither is asked twice.
    count = len(seen)
    other = replace(asked, judge_words=("red", "blue"))
    run(other)
    assert len(seen) == count
    assert len(list(config.folder.glob("verdicts-*.jsonl"))) == 2
    monkeypatch.setattr("sally_anne.harness.judge.LocalJudge.ask", lambda *_: pytest.fail("again"))
    for judged in (asked, other):
        run(judged)
    assert len(seen) == count
    with pytest.raises(HarnessError, match="--human"):
        run(replace(asked, judge=None, human=tmp_path / "human.csv"))


def test_the_most_pixels_of_a_frame_hold_as_films_are_read(tmp_path: Path) -> None:
    """Their films are of 64 x 64."""
    config = EvalConfig(task="muma_tom", data=made.muma_tom(tmp_path / "data"), max_pixels=32 * 32)
    for item in load_items(config).items:
        assert item.clip is not None and item.shape is not None
        clip = item.clip()
        assert clip.shape[1:] == (32, 32, 3)
        assert item.shape(True) == clip.shape[:3]


ABILITIES = [(f"a{n}", {"ability": ("a",)}) for n in range(8)]
ABILITIES += [(f"b{n}", {"ability": ("b",)}) for n in range(4)]


@pytest.mark.parametrize(
    ("limit", "a", "b"), [(1, None, None), (2, 1, 1), (6, 3, 3), (8, 4, 4), (10, 6, 4), (99, 8, 4)]
)
def test_values_get_equal_parts_as_long_as_there_are_some(limit: int, a: int, b: int) -> None:
    kept = sample_groups(ABILITIES, ("ability",), limit, 0)
    assert len(kept) == min(limit, 12)
    if a is not None:
        assert Counter(name[0] for name in kept) == {"a": a, "b": b}


def test_groups_are_taken_whole_and_weigh_as_many_items_as_they_have() -> None:
    """The story with three questions of x stands against the three stories with one of y."""
    rows = [("large", {"kind": ("x",)})] * 3 + [(f"y{n}", {"kind": ("y",)}) for n in range(3)]
    for seed in range(5):
        kept = sample_groups(rows, ("kind",), 3, seed)
        assert kept == {"y0", "y1", "y2"} or "large" in kept and len(kept) == 3
    assert sample_groups(rows, ("kind",), 4, 0) == {"large", "y0", "y1", "y2"}
    told = Subset.of([row for row in rows if row[0] in ("large", "y1")], ("kind",), 7)
    assert (told.groups, told.items, told.by) == (("large", "y1"), 4, {"kind": {"x": 3, "y": 1}})
    assert str(told) == "drawn by --limit, evenly over kind (seed 7): 2 groups, 4 items"


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


@given(st.integers(1, 12), st.integers(0, 20))
def test_two_kinds_are_even_at_once(limit: int, seed: int) -> None:
    rows: list[Row] = [
        (f"{a}{b}{n}", {"one": (a,), "two": (b,)}) for a in "pq" for b in "xyz" for n in range(12)
    ]
    kept = sample_groups(rows, ("one", "two"), limit, seed)
    for place, values in enumerate(("pq", "xyz")):
        counts = [sum(name[place] == value for name in kept) for value in values]
        assert max(counts) - min(counts) <= 1


def test_stories_of_gridtom_over_maps_in_whole_pairs() -> None:
    config = EvalConfig(setting="text", limit=42)
    work = load_items(config)
    stories = {item.story: item.map for item in work.items}
    assert set(Counter(stories.values()).values()) == {2} and len(stories) == 42
    pairs = Counter((item.story, item.condition) for item in work.items)
    assert set(pairs.values()) == {1} and len(pairs) == 84
    assert work.subset is not None and set(work.subset.by["map"].values()) == {4}
    assert (
        load_items(replace(config, model="another", order="2")).subset.groups == work.subset.groups
    )
    assert load_items(replace(config, limit_seed=1)).subset.groups != work.subset.groups
    everything = load_items(replace(config, limit=None))
    assert everything.subset is None
    assert load_items(replace(config, limit=500)).items == everything.items


def test_films_of_a_benchmark_over_its_breakdowns_and_in_its_order(monkeypatch) -> None:
    """Each film has a question of one ability; the last film alone has one of another."""
    options = (Option("A", "yes"), Option("B", "no"))
    items = [
        BenchmarkItem(
            f"q{n}", "made", "test", f"film {n // 2}", "?", options, "A", tags={"ability": (kind,)}
        )
        for n, kind in enumerate(["x", "x"] * 9 + ["y", "y"])
    ]
    made = Benchmark("made", lambda _: items, {"none": ()}, ("ability",), "", "none")
    monkeypatch.setattr("sally_anne.harness.tasks.find_task", lambda task: made)
    work = load_items(EvalConfig(task="made", limit=2))
    assert [item.item_id for item in work.items][2:] == ["q18", "q19"]
    assert work.subset is not None and work.subset.by == {"ability": {"x": 2, "y": 2}}
