"""GridToM's documents for lmms-eval are the harness's own items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lmms_eval")

from datasets import Dataset  # noqa: E402

from sally_anne.core.errors import (
    BenchmarkError,  # noqa: E402
    HarnessError,  # noqa: E402
)
from sally_anne.harness.adapters.gridtom import (  # noqa: E402
    both,
    false_belief,
    invalid,
    lmms_eval_documents,
    lmms_eval_results,
    pictures,
    right,
    true_belief,
)
from sally_anne.harness.adapters.lmms_eval import TASKS  # noqa: E402
from sally_anne.harness.adapters.questions import asked_by  # noqa: E402
from sally_anne.harness.config import EvalConfig  # noqa: E402
from sally_anne.harness.score import results_of, score
from sally_anne.harness.tasks import load_items  # noqa: E402
from tests.harness.adapters.conftest import SEEN
from tests.made_stories import KEY_FRAMES, NUMBERS, STORIES, asked_of, made_stories, replies  # noqa: E402

pytestmark = pytest.mark.plugins


def documents(**options: Any) -> Dataset:
    return lmms_eval_documents(Dataset.from_list([options]))


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Asks about stories made by hand."""
    monkeypatch.setattr(
        "sally_anne.harness.gridtom.open_stories", lambda folder, seed: made_stories()
    )
    asked_by.cache_clear()
    yield
    asked_by.cache_clear()


@pytest.mark.parametrize("setting", ["text", "multimodal"])
@pytest.mark.parametrize("order", ["1", "2", "initial"])
def test_documents_and_numbers_are_those_made_by_hand(by_hand, order: str, setting: str) -> None:
    stories: list[int] = []
    for split in ("train", "validation", "test"):
        found = documents(order=order, setting=setting, split=split)
        members = dict.fromkeys(int(s.removeprefix("story-")) for s in found["story"])
        stories += members
        wanted = [asked for index in members for asked in asked_of(index, order, setting)]
        for doc, asked in zip(found, wanted, strict=True):
            for name in ("item_id", "story", "condition", "first", "text"):
                assert doc[name] == getattr(asked, name)
            assert doc["answer"] == ", ".join(asked.answer)
        greys = [int(np.asarray(picture)[0, 0, 0]) for picture in pictures(found[0])]
        index = next(iter(members))
        # Initial beliefs are asked of the false-belief version, which is 20 greys lighter.
        base = 40 * (index % 4) + (20 if order == "initial" else 0)
        assert greys == [base + t for t in KEY_FRAMES if setting != "text"]
    # A story of a map that is not tested whole may be in no split.
    assert len(stories) == len(set(stories)) >= len(STORIES) - 1 and set(stories) <= set(STORIES)
    rows: dict[str, list[dict[str, Any]]] = {}
    for doc, reply in zip(found.select(range(8)), replies(order, wanted[:8]), strict=True):
        for metric, row in lmms_eval_results(doc, [reply]).items():
            rows.setdefault(metric, []).append(row)
    shared = {"TB": true_belief, "FB": false_belief, "Both": both, "invalid": invalid}
    for reader, prefix in (("robust", ""), ("official", "official_")):
        numbers = {
            metric: shared.get(metric, right)(rows[prefix + metric])
            for metric in NUMBERS[order][reader]
        }
        assert numbers == NUMBERS[order][reader]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"order": "2", "setting": "video", "split": "validation"}, 45 * 4),
        ({"order": "initial", "setting": "text", "style": "json", "split": "train"}, 86 * 3),
        ({"data_seed": 7, "split_seed": 1, "data": None, "split": "validation"}, 45 * 2),
    ],
)
def test_documents_are_the_items(options: dict[str, Any], count: int) -> None:
    found = documents(**options)
    assert len(found) == count
    items = load_items(EvalConfig(**options)).items[: len(found) // 10]
    assert found["item_id"][: len(items)] == [item.item_id for item in items]
    assert found["text"][: len(items)] == [item.text for item in items]
    assert found["condition"][: len(items)] == [item.condition for item in items]
    for doc, item in list(zip(found, items, strict=False))[::5]:
        shown = pictures(doc)
        if item.clip is None:
            assert shown == [] and options["setting"] == "text"
        else:
            clip = np.stack([np.asarray(picture) for picture in shown])
            assert np.array_equal(clip, item.clip())


def test_stories_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=str(tmp_path)):
        documents(data=str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ordre": "1"}, "no option 'ordre'; there are order, setting"),
        ({"order": "3"}, "order must be one of 1, 2, initial, reality, is '3'"),
        ({"order": 1}, "order must be one of 1, 2, initial, reality, is 1"),
        ({"setting": "film"}, "setting must be one of multimodal, video, text, is 'film'"),
        ({"split": "all"}, "split must be one of train, validation, test"),
        ({"style": ["json"]}, "style must be one of plain, json"),
        ({"data": 5}, "data must be a folder, is 5"),
        ({"data_seed": "x"}, "data_seed must be a whole number from 0 on, is 'x'"),
    ],
)
def test_bad_questions(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        documents(**options)


def test_a_file_asks_once() -> None:
    with pytest.raises(HarnessError, match="holds one JSON object, this one 2"):
        lmms_eval_documents(Dataset.from_list([{"order": "1"}, {"order": "2"}]))


def test_every_task_has_its_questions() -> None:
    folder = TASKS / "gridtom"
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    assert names == sorted(path.stem for path in folder.glob("*.json")) and len(names) == 9


@pytest.mark.parametrize("order", ["1", "2"])
@pytest.mark.parametrize(
    "reply",
    [
        lambda item: f" {item.key[0]}.",
        lambda item: item.key[0] if item.condition == "FB" else "the",
        lambda item: next(o.text for o in item.options if o.label not in item.key),
        lambda item: f'{{"answer": "{item.key[0]}"}}' if item.first == "TB" else "",
    ],
    ids=["right", "invalid under TB", "wrong", "JSON at times"],
)
def test_metrics_are_the_harness_own(order: str, reply) -> None:
    options: dict[str, Any] = {"order": order, "setting": "text", "split": "validation"}
    found, items = documents(**options), load_items(EvalConfig(**options)).items[:24]
    table = score(items, [{"item_id": i.item_id, "reply": reply(i)} for i in items])
    rows: dict[str, list[dict[str, Any]]] = {}
    # As lmms-eval does: replies are stripped, each metric's rows are put together.
    for doc, item in zip(found, items, strict=False):
        for metric, row in lmms_eval_results(doc, [reply(item).strip()]).items():
            rows.setdefault(metric, []).append(row)
    for prefix, reader in (("", "robust"), ("official_", "official")):
        expected = results_of(table, beliefs=order != "initial")[reader]
        for metric, shared in (
            ("TB", true_belief),
            ("FB", false_belief),
            ("Both", both),
            ("invalid", invalid),
        ):
            assert shared(rows[prefix + metric]) == expected[metric]["value"]
            if metric != "Both":
                mean = np.mean([row["score"] for row in rows[prefix + metric]])
                assert mean == pytest.approx(expected[metric]["value"])


def test_initial_questions_have_accuracy() -> None:
    doc = documents(order="initial", setting="text", split="validation")[1]
    found = lmms_eval_results(doc, [doc["answer"]])
    assert set(found) == {"accuracy", "invalid", "official_accuracy", "official_invalid"}
    assert right([found["accuracy"]]) == 1 and invalid([found["invalid"]]) == 0
    assert right([found["official_accuracy"]]) == 1 and invalid([found["official_invalid"]]) == 0


def test_what_a_vector_has_seen_is_left_out(seen_vector: str) -> None:
    found = documents(setting="text", steer=seen_vector)
    assert len(set(found["story"])) == 498
    assert not set(SEEN).intersection(found["story"])
    with pytest.raises(HarnessError, match="steer must be a folder, is 3"):
        documents(steer=3)
