"""The causal command: columns, conclusions, own pairs."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sally_anne as sa
from sally_anne.cli import main
from sally_anne.core.console import Console
from sally_anne.core.errors import OptionError, ProbingError, RecordError
from sally_anne.core.run import Run, conclusions, verdicts
from sally_anne.data.pairs import own_pairs, statement_pairs
from sally_anne.data.samples import Sample, read_samples
from sally_anne.probing.config import PatchingConfig
from sally_anne.probing.patching import PatchingResult, conclusion, run


def made_cause(probed: float, causal: float, told: float = 1.0) -> PatchingResult:
    heads = pd.DataFrame(
        {"layer": [0] * 4, "head": range(4), "effect_validation": [0.1, 0.9, 0, 0]}
        | {"used": ["used", "used against", "not used", "not used"]}
    )
    rows = [
        {"by": by, "k": 2, "effect": share, "low": share - 0.05, "high": share + 0.05}
        | {"used": str(verdicts(share, (share - 0.05, share + 0.05), (-0.1, 0.2), 0.05))}
        for by, share in (("y_p", probed), ("patching", causal), ("random", 0.05))
    ]
    facts = {"pair_accuracy": told, "mean_logit_diff": 2.0, "clusters_drawn": 9, "clusters": "maps"}
    facts["floor"] = 0.05
    return PatchingResult(heads, pd.DataFrame(rows), facts)


@pytest.mark.parametrize(
    ("probed", "causal", "readable", "expected"),
    [
        (0.0, 0.9, [1, 0, 0, 1], ["set readable, not used", "as a set readable and used (1 of 2"]),
        (0.0, 0.9, [0, 0, 1, 1], ["set readable, not used", "as a set used, not readable (0 of 2"]),
        (0.21, 0.04, [1, 1, 1, 1], ["readable and used", "0.09]: as a set readable, not used"]),
        (-0.3, 0.9, [1, 1, 1, 1], ["as a set readable and used against", "heads used, 1 used"]),
    ],
)
def test_verdicts(probed: float, causal: float, readable: list[int], expected: list[str]) -> None:
    said = conclusion(
        made_cause(probed, causal), "y_p", 2, [bool(r) for r in readable], "the answer"
    )
    for words in expected:
        assert words in said


def test_what_was_not_tested_is_not_denied() -> None:
    words = conclusion(made_cause(0.9, 0.9, told=0.5), "y_p", 2, [True] * 4, "the answer")
    assert "50% of the pairs" in words and "used" not in words
    cause = made_cause(0.0, 0.9)
    said = conclusion(cause, "y_p", 2, None, "the answer")
    assert "as a set not used. " in said and "0.95]: as a set used. One by one: 1 of 4" in said
    one = cause._replace(facts={**cause.facts, "clusters_drawn": 1})
    said = conclusion(one, "y_p", 2, None, "the answer")
    assert said == "For the answer, all pairs are of one of the maps: no interval."
    few = cause._replace(facts={**cause.facts, "clusters_drawn": 2, "clusters": "groups"})
    said = conclusion(few, "y_p", 2, None, "the answer")
    assert said.endswith("Intervals are over 2 groups, too few to say much.")


def sample(name: str, pair: str = "t", **changes: Any) -> Sample:
    own: dict[str, Any] = {"group": "g", "split": "test", "answer": name, **changes}
    return Sample(name, own.pop("text", f"words of {name}:"), pair=pair, **own)


def test_own_pairs() -> None:
    (found,) = own_pairs([sample("a"), sample("b"), sample("c", pair="")]).pairs
    assert (found.answers, found.cluster, found.split) == (("a", "b"), "g", "test")
    assert sample("a", group=None).group == "t"


FAULTS = (
    [sample("a")],
    [sample("a"), sample("b"), sample("c")],
    [sample("a"), sample("b", group="h")],
    [sample("a"), sample("b", split="train")],
    [sample("a"), sample("b", answer="")],
    [sample("a"), sample("b", answer="a")],
    [sample("a", text="words"), sample("b", text="words")],
    [sample("a", text="words of a"), sample("b", text="words of b")],
)


def test_each_fault_of_a_pair_has_its_own_line(tmp_path: Path) -> None:
    said, path = set(), tmp_path / "mine.jsonl"
    for samples in FAULTS:
        lines = [
            {"text": s.text, "labels": {"y": True}, "group": s.group, "split": s.split}
            | {"pair": s.pair, **({"answer": s.answer} if s.answer else {})}
            for s in samples
        ]
        path.write_text("\n".join(map(json.dumps, lines)))
        for place, read in (("sample a", own_pairs), (f"{path}, line 1", read_samples)):
            with pytest.raises(RecordError) as caught:
                read(samples if read is own_pairs else path)
            place_said, _, why = str(caught.value).partition(": pair 't' ")
            assert place_said.startswith(place)
            said.add(why)
    assert len(said) == len(FAULTS)


def test_statement_pairs_share_their_context() -> None:
    samples = [
        Sample(f"{context}{truth}", "words", labels={"y": truth}, group="g", context=context)
        for context in ("one", "two", "")
        for truth in (False, True)
    ][:-3]
    found = statement_pairs(samples, "y", {"g": "map-1"})
    (pairs,) = found.pairs
    assert [s.labels["y"] for s in pairs.samples] == [True, False]
    assert (pairs.answers, pairs.cluster, found.clusters) == (("right", "wrong"), "map-1", "maps")


def test_pairs_of_all_clusters_in_turn() -> None:
    samples = [sample(n, pair=n[0], group=n[0]) for n in ("a1", "a2", "b1", "b2", "c1", "c2")]
    found = own_pairs(samples)
    pairs = [replace(t, cluster="z" if t.cluster != "a" else "y") for t in found.pairs]
    chosen = replace(found, pairs=pairs).choose("test", 2)
    assert {t.cluster for t in chosen} == {"y", "z"}
    assert found.choose("train", 5) == []


def test_a_verdict_has_a_sign_a_floor_a_control_and_an_interval() -> None:
    """With either sign the same."""
    rows = [
        (0.30, 0.1, 0.5, 0.2, "used"),
        (0.30, -0.1, 0.5, 0.2, "not used"),
        (0.30, 0.1, 0.5, 0.3, "not used"),
        (0.04, 0.01, 0.5, 0.02, "not used"),
        (0.05, 0.01, 0.5, 0.02, "used"),
        (0.30, np.nan, np.nan, 0.2, ""),
    ]
    effect, low, high, most, expected = map(np.array, zip(*rows, strict=True))
    assert list(verdicts(effect, (low, high), (-most, most), 0.05)) == list(expected)
    turned = [word + " against" * (word == "used") for word in expected]
    assert list(verdicts(-effect, (-high, -low), (-most, most), 0.05)) == turned


def test_heads_are_readable_by_their_null_and_used_by_their_verdict() -> None:
    heads = pd.DataFrame({"y_p_p_fwer": [0.05, 0.051, 0.01, 1.0, 0.05, 1.0, 0.05]})
    heads["question_used"] = [*["used"] * 2, *["not used"] * 2, *["used against"] * 2, ""]
    assert conclusions(heads, "question", "y_p") == [
        *("readable and used", "used, not readable", "readable, not used"),
        *("neither readable nor used", "readable and used against", "used against, not readable"),
        "",
    ]
    heads["y_p_p_fwer"] = np.nan
    assert conclusions(heads, "question", "y_p") == heads["question_used"].tolist()


@pytest.mark.integration
def test_columns_and_verdict_of_a_run(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    before = Run.open(folder).heads
    printed = io.StringIO()
    options = PatchingConfig(run=folder, pairs=4, validation_pairs=3, sizes=(2,), random_sets=5)
    heads = run(options, Console(file=printed, width=200))
    opened = Run.open(folder)
    pd.testing.assert_frame_equal(opened.heads, heads)
    # The null may be there already; of what was there nothing changed.
    pd.testing.assert_frame_equal(heads[before.columns], before)
    for kind in ("question", "statement"):
        wanted = ("effect_validation", "effect", "ablate", "dla")
        assert heads[[f"{kind}_{name}" for name in (*wanted, "attribution")]].notna().all().all()
        # These stories' test pairs are of one map, so nothing is said of heads.
        assert heads[[f"{kind}_effect_low", f"{kind}_effect_high"]].isna().all(axis=None)
        assert set(heads[f"{kind}_conclusion"]) == {""}
    assert opened.labels == Run.open(finished).labels
    saved = json.loads((folder / "patching.json").read_text())
    again = f"sally-anne figures {folder} && sally-anne report {folder}\n"
    said = printed.getvalue()
    assert said.endswith(again) and "by Y_p probe" in said
    for kind in ("question", "statement"):
        (row,) = (one for one in saved[kind]["sets"] if one["by"] == "patching")
        assert f"{kind}: 2 by patching" in said and f" {row['effect']:.2f} " in said
        assert saved[kind]["pairs"] == 4 and f"{kind} (4 pairs, " in said
    assert said.count("1 map): no interval, so no verdict: take more pairs\n") == 2
    assert "heads used" not in said
    # Again: nothing is computed anew, and nothing changes; the options are now the run's.
    monkeypatch.setattr("sally_anne.probing.patching.scan", lambda *_: pytest.fail("scanned again"))
    again = sa.patch(folder, pairs=4, validation_pairs=3, sizes=(2,), random_sets=5)
    pd.testing.assert_frame_equal(again, heads)
    pd.testing.assert_frame_equal(sa.patch(folder), heads)
    monkeypatch.undo()
    later = sa.patch(folder, pairs=3)
    assert (later["question_effect_validation"] == heads["question_effect_validation"]).all()
    assert (later["question_effect"] != heads["question_effect"]).any()
    # Another null leaves nothing of what was said by the first.
    sa.patch(folder, seed=1)
    after = json.loads((folder / "patching.json").read_text())
    assert after["nulls"]["seed"] == after["statement"]["scan"]["seed"] == 1


@pytest.mark.integration
def test_wrong_options_in_a_notebook(finished: Path) -> None:
    with pytest.raises(OptionError):
        sa.patch(finished, sizes=(4, 0))


@pytest.mark.integration
def test_own_samples_with_pairs(tmp_path: Path, carry: Callable[..., str]) -> None:
    lines = []
    for i in range(12):
        for room, other in (("red", "blue"), ("blue", "red")):
            text = f"The white agent is in the {room} room. Story {i}. Which room is it in? Answer:"
            # A label may be called as pairs are.
            line = {"text": text, "labels": {"question": room == "red"}, "group": f"g{i}"}
            lines.append(line | {"pair": f"t{i}", "answer": room, "tags": {"other": other}})
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert read_samples(path)[3].pair == "t1"
    carry(tmp_path / "run", samples=path, stories=None, setting="multimodal")
    options = PatchingConfig(run=tmp_path / "run", sizes=(1,), random_sets=3)
    heads = run(options, Console(quiet=True))
    assert "question_effect" in heads and "statement_effect" not in heads
    assert heads["question_rank"].notna().all() and "question_test_accuracy" in heads
    bare = [{k: v for k, v in line.items() if k not in ("pair", "answer")} for line in lines]
    path.write_text("\n".join(map(json.dumps, bare)))
    carry(tmp_path / "bare", samples=path, stories=None, setting="multimodal")
    told = carry(tmp_path / "bare", samples=path, stories=None, setting="multimodal", patching=True)
    assert "Which heads are used was not tested: no samples are pairs" in told
    assert "a common pair, and each its answer" in told
    with pytest.raises(ProbingError, match="no samples are pairs"):
        run(replace(options, run=tmp_path / "bare"), Console(quiet=True))


SCAN = {"patching": True, "pairs": 4, "validation_pairs": 3, "sizes": (2,), "random_sets": 5}


@pytest.mark.integration
def test_other_options_scan_again(
    finished: Path, tmp_path: Path, carry: Callable[..., str]
) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    carry(folder, **SCAN)
    first = json.loads((folder / "patching.json").read_text())
    carry(folder, **SCAN | {"pairs": 5}, permutations=19)
    second = json.loads((folder / "patching.json").read_text())
    assert [s["question"]["pairs"] for s in (first, second)] == [4, 5]
    assert second["nulls"]["permutations"] == 19
    heads = Run.open(folder).heads
    assert heads["y_p_p"].min() >= 1 / 20


@pytest.mark.integration
def test_a_scan_that_cannot_be_made_leaves_the_run(
    finished: Path, tmp_path: Path, carry: Callable[..., str]
) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    printed = carry(folder, **SCAN | {"sizes": (49,)})
    assert "Which heads are used was not tested: --sizes 49:" in printed
    assert not (folder / "patching.json").exists()
    with pytest.raises(ProbingError, match="--permutations 0.*--no-patching"):
        carry(folder, **SCAN, permutations=0)


@pytest.mark.integration
def test_patching_in_memory_is_what_the_command_finds(tmp_path: Path) -> None:
    """On pairs of one's own, given as columns and as JSON lines."""
    rooms = ("red", "blue", "green", "white", "purple", "yellow")
    facts = [(a, b, said) for a, b in permutations(rooms, 2) for said in (a, b)]
    columns: dict[str, list[Any]] = {
        "texts": [f"the {a} agent is in the {s} room, not the {b} one" for a, b, s in facts],
        "pairs": [f"{a} {b}" for a, b, _ in facts],
        "answers": [said for *_, said in facts],
    }
    labels = {"first": [a == said for a, _, said in facts]}
    samples = sa.samples(labels=labels, **columns)
    assert len({s.group for s in samples}) == len(samples) / 2
    with pytest.raises(RecordError, match="'red blue'"):
        sa.samples(labels=labels, **(columns | {"answers": ["red"] * len(facts)}))
    lines = [
        {"text": s.text, "labels": dict(s.labels), "pair": s.pair, "answer": s.answer}
        | {"item_id": s.item_id, "group": s.group}
        for s in samples
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    few: dict[str, Any] = {"pairs": 3, "validation_pairs": 2, "random_sets": 3, "sizes": (2,)}
    words = ["--samples", str(tmp_path / "mine.jsonl"), "--out", str(tmp_path / "run")]
    words += [f"--{n.replace('_', '-')}={v}" for n, v in few.items() if n != "sizes"]
    main(["probe", *words, "--sizes", "2", "--permutations", "20", "--no-figures"])
    model = sa.load_model("tiny-qwen2-vl")
    found = sa.patching(model, samples, **few).heads.sort_values(["layer", "head"])
    saved = Run.open(tmp_path / "run").heads.sort_values(["layer", "head"])
    assert np.abs(found["effect"]).max() > 0
    for name in ("effect", "effect_low", "effect_validation", "dla"):
        assert found[name].tolist() == saved[f"question_{name}"].tolist()
