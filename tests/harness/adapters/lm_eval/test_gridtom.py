"""GridToM in lm-eval asks what our own harness asks, and scores it in the same way."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict

import pandas as pd
import pytest

pytest.importorskip("lm_eval")

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from sally_anne.core.errors import HarnessError
from sally_anne.data.gridtom.build import BuildConfig, build
from sally_anne.harness.adapters.gridtom import both, lm_eval_results, pictures
from sally_anne.harness.adapters.gridtom import lm_eval_documents as documents
from sally_anne.harness.adapters.lm_eval import TASKS
from sally_anne.harness.adapters.lm_eval.model import SallyAnneLM
from sally_anne.harness.adapters.questions import asked_by
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import prompt_of
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.score import accuracy, belief_metrics, score
from sally_anne.harness.tasks import load_items
from sally_anne.models.loading import load_model
from tests.harness.adapters.conftest import SEEN
from tests.made_stories import (
    KEY_FRAMES,
    NUMBERS,
    STORIES,
    Asked,
    asked_of,
    made_stories,
    replies,
)

pytestmark = pytest.mark.plugins

NAMES = {"1": "first_order", "2": "second_order", "initial": "initial"}


@pytest.fixture(scope="module")
def trained():
    """The shipped model, whose replies can be read."""
    return load_model("tiny-qwen2-vl")


def asked(order: str, setting: str, stories: int) -> list:
    """Our own items of so many test stories."""
    return load_items(EvalConfig(order=order, setting=setting, limit=stories)).items


def manager(**metadata) -> TaskManager:
    return TaskManager(include_path=str(TASKS), include_defaults=False, metadata=metadata)


@pytest.mark.parametrize(
    ("order", "setting", "stories", "alpha"),
    [
        ("1", "text", 10, None),
        ("1", "text", 10, 60.0),
        ("1", "multimodal", 10, 60.0),
        ("2", "text", 5, 60.0),
        ("initial", "text", 5, None),
        ("initial", "multimodal", 2, 60.0),
    ],
)
def test_replies_and_scores_are_those_of_our_own_harness(
    trained, make_vector, order, setting, stories, alpha
) -> None:
    vector = None if alpha is None else make_vector(trained.skeleton)
    own = asked(order, setting, stories)
    model = SteeredModel(trained, vector, alpha)
    replies = []
    for start in range(0, len(own), 4):
        replies += model.generate([prompt_of(item) for item in own[start : start + 4]])
    if vector is not None and setting == "text":
        plain = SteeredModel(trained).generate([prompt_of(item) for item in own])
        assert plain != replies
    name = f"gridtom_{NAMES[order]}_{setting}"
    results = simple_evaluate(
        model=SallyAnneLM(trained, vector, alpha),
        tasks=[name],
        task_manager=manager(stories=stories),
        limit=len(own),
        apply_chat_template=True,
        bootstrap_iters=0,
    )
    samples = sorted(results["samples"][name], key=lambda sample: sample["doc_id"])
    assert [s["doc"]["item_id"] for s in samples] == [item.item_id for item in own]
    assert [s["resps"][0][0] for s in samples] == replies
    found = results["results"][name]
    table = score(
        own, [{"item_id": i.item_id, "reply": r} for i, r in zip(own, replies, strict=True)]
    )
    for reader, prefix in (("robust", ""), ("official", "official_")):
        sheet = table.rename(
            columns={f"{reader}_correct": "correct", f"{reader}_invalid": "invalid"}
        )
        wanted = asdict(accuracy(sheet) if order == "initial" else belief_metrics(sheet))
        wanted.pop("groups", None)
        for metric, estimate in wanted.items():
            assert found[f"{prefix}{metric},none"] == pytest.approx(estimate["value"]), metric


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Asks about stories made by hand."""
    monkeypatch.setattr(
        "sally_anne.harness.gridtom.open_stories", lambda folder, seed: made_stories()
    )
    asked_by.cache_clear()
    yield
    asked_by.cache_clear()


def numbers_of(found) -> list[int]:
    """The stories of documents, in their order."""
    return list(dict.fromkeys(int(story.removeprefix("story-")) for story in found["story"]))


def asked_by_hand(found, order: str, setting: str = "text") -> list[Asked]:
    """What the documents should say, from the numbers of their stories alone."""
    return [asked for index in numbers_of(found) for asked in asked_of(index, order, setting)]


@pytest.mark.parametrize("order", ["1", "2", "initial"])
@pytest.mark.parametrize("setting", ["text", "multimodal"])
def test_documents_are_those_made_by_hand(by_hand, order, setting) -> None:
    stories: list[int] = []
    for split in ("train", "validation", "test"):
        found = documents(order, setting, split=split)["test"]
        stories += numbers_of(found)
        for document, asked in zip(found, asked_by_hand(found, order, setting), strict=True):
            # Until the first room is entered there are three frames.
            frames = 3 if asked.item_id.endswith("initial/1") else len(KEY_FRAMES)
            mark = "" if setting == "text" else "<image>" * frames
            questions = json.loads(document.pop("questions"))
            assert questions == {"order": order, "setting": setting, "split": split}
            assert document == {
                "item_id": asked.item_id,
                "story": asked.story,
                "split": split,
                "condition": asked.condition,
                "first": asked.first,
                "system": "",
                "text": mark + asked.text,
                "options": list(asked.options),
                "answer": ", ".join(asked.answer),
                "answers": list(asked.answer),
                "names": order == "initial",
            }
    # A story of a map that is not tested whole may be in no split.
    assert len(stories) == len(set(stories)) >= len(STORIES) - 1 and set(stories) <= set(STORIES)


@pytest.mark.parametrize("order", ["1", "2", "initial"])
def test_numbers_are_those_counted_by_hand(by_hand, trained, monkeypatch, order) -> None:
    asked = asked_by_hand(documents(order, "text")["test"], order)[:8]
    said = {a.text: reply for a, reply in zip(asked, replies(order, asked), strict=True)}
    monkeypatch.setattr(
        SallyAnneLM,
        "generate_until",
        lambda self, requests, disable_tqdm=False: [said[r.args[0]] for r in requests],
    )
    name = f"gridtom_{NAMES[order]}_text"
    results = simple_evaluate(
        model=SallyAnneLM(trained),
        tasks=[name],
        task_manager=manager(),
        limit=8,
        bootstrap_iters=0,
    )
    for reader, prefix in (("robust", ""), ("official", "official_")):
        for metric, value in NUMBERS[order][reader].items():
            metric = "overall" if metric == "accuracy" else metric
            assert results["results"][name][f"{prefix}{metric},none"] == value, (reader, metric)


def test_all_tasks_are_there() -> None:
    names = {f"gridtom_{n}_{s}" for n in NAMES.values() for s in ("text", "multimodal")}
    assert set(manager().all_subtasks) == names
    loaded = manager(stories=1).load(["gridtom"])["tasks"]
    assert set(loaded) == names
    for name, task in loaded.items():
        assert getattr(task, "MULTIMODAL", False) == name.endswith("multimodal")


def test_documents_stand_story_by_story() -> None:
    for order, each in (("1", 2), ("2", 4), ("initial", 3)):
        found = documents(order, "text", stories=3)["test"]
        assert len(found) == 3 * each
        assert found["story"] == sorted(found["story"])
    tested = set(documents("1", "text")["test"]["story"])
    assert len(tested) == 500
    assert tested.isdisjoint(documents("1", "text", split="train")["test"]["story"])


@pytest.mark.parametrize("order", ["1", "2", "initial"])
def test_pictures_are_the_key_frames_of_the_items(order: str) -> None:
    found = documents(order, "multimodal", stories=2)["test"]
    for document, item in zip(found, asked(order, "multimodal", 2), strict=True):
        # The two rooms of initial beliefs are asked of the frames of their sections.
        count = {"initial/1": 3, "initial/2": 5}.get(item.item_id.partition("/")[2], 7)
        assert document["text"] == "<image>" * count + item.text
        shown = pictures(document)
        frames = item.clip()
        assert len(shown) == len(frames) == count
        assert all((frame == picture).all() for frame, picture in zip(frames, shown, strict=True))


def test_a_folder_of_stories_may_be_asked(tmp_path) -> None:
    folder = tmp_path / "stories"
    build(BuildConfig(out=folder, stories=2, workers=1))
    found = documents("1", "multimodal", data=str(folder), split="test")["test"]
    assert json.loads(found[0]["questions"])["data"] == str(folder)
    assert len(pictures(found[0])) == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, "split must be one of train, validation, test, published, is 'dev'"),
        ({"style": "loud"}, "style must be one of plain, json"),
        ({"stories": 0}, "limit must be a whole number from 1 on"),
        ({"stories": "ten"}, "limit must be a whole number from 1 on"),
        ({"data_seed": "a"}, "data_seed must be a whole number"),
    ],
)
def test_what_cannot_be_chosen_is_named(options, message) -> None:
    with pytest.raises(HarnessError, match=message):
        documents("1", "text", **options)


def test_invalid_replies_are_wrong_and_counted() -> None:
    true, false = documents("1", "text", stories=1)["test"]
    rows = []
    for document, reply in ((true, true["answer"]), (false, "I cannot tell")):
        found = lm_eval_results(document, [reply])
        assert found[document["condition"]] == float(reply == true["answer"])
        assert found["invalid"] == float(reply == "I cannot tell")
        assert found["official_invalid"] == 1.0
        rows.append(found["Both"])
    assert both(rows) == 0.0
    assert both([row | {"correct": True, "invalid": False} for row in rows]) == 1.0
    assert math.isnan(both(rows[:1]))
    assert pd.DataFrame(rows)["invalid"].tolist() == [False, True]
    answer = json.dumps({"answer": true["answer"]})
    assert lm_eval_results(true, [answer])["official_TB"] == 1.0


def test_what_a_vector_has_seen_is_left_out(seen_vector: str) -> None:
    found = documents("1", "text", stories=3, steer=seen_vector)["test"]
    assert len(set(found["story"])) == 3 and not set(SEEN).intersection(found["story"])
    assert set(SEEN) < set(documents("1", "text", stories=3)["test"]["story"])
    whole = documents("1", "text", steer=seen_vector)["test"]
    assert len(set(whole["story"])) == 498
