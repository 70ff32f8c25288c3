"""Requests of lmms-eval are answered as the model itself answers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("lmms_eval")
import json
import sys

import lmms_eval.__main__
import pytest
from lmms_eval import evaluator
from lmms_eval.api.instance import Instance
from lmms_eval.models import get_model
from lmms_eval.tasks import TaskManager

from sally_anne.core.errors import HarnessError, MediaError
from sally_anne.data.items import Media, Sampling
from sally_anne.data.media import read_clip
from sally_anne.harness.adapters import tasks
from sally_anne.harness.adapters.common import METADATA, documents, from_environment
from sally_anne.harness.adapters.lmms_eval import main, manifest
from sally_anne.harness.adapters.lmms_eval.model import SallyAnne, clip_of, decoding_of
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.vector import SteeringVector
from tests.harness.adapters.benchmarks import (
    ANSWERED,
    CASES,
    MODEL,
    SYSTEM,
    Case,
    Expected,
    assert_results,
    expected,
    name_of,
    own_task,
    speak,
)
from tests.harness.adapters.conftest import SEEN
from tests.harness.made_benchmarks import encoded

pytestmark = pytest.mark.plugins
QWEN, LLAVA = "tiny-qwen2-vl", "tiny-llava-next-video"
TEXTS = (
    "At first the red agent is in the corridor. Question: Where is the red agent? Answer:",
    "Question: Which room is the blue agent in? Answer:",
    "There are three rooms. Question: Where is the white agent? Answer:",
)
# Where nothing is asked the model says many words.
UNASKED = "the red agent and the blue agent"
CLIPS = np.random.default_rng(0).integers(0, 256, (3, 4, 84, 84, 3), dtype=np.uint8)
TOKENS = 6


def requests(
    shown: Sequence[Any], texts: Sequence[str], arguments: Sequence[Any], kind: str
) -> list[Instance]:
    """Requests as a task makes them; ``shown[i]`` is what document i shows."""
    return [
        Instance(
            kind,
            (text, argument, lambda doc: doc["shown"], number, "made", "test"),
            0,
            {"task": "made", "doc_id": number, "repeats": 1},
        )
        for number, (text, argument) in enumerate(zip(texts, arguments, strict=True))
    ]


def generated(lm: SallyAnne, shown: Sequence[Any], texts: Sequence[str], **options) -> list[str]:
    options = {"max_new_tokens": TOKENS, "temperature": 0, "until": [], **options}
    lm.task_dict = {"made": {"test": [{"shown": one} for one in shown]}}
    return lm.generate_until(requests(shown, texts, [options] * len(texts), "generate_until"))


def pictures(clip: np.ndarray) -> list[Image.Image]:
    return [Image.fromarray(frame) for frame in clip]


def made_by_name(name: str, **options: Any) -> SallyAnne:
    words = ",".join(f"{key}={value}" for key, value in {"pretrained": name, **options}.items())
    return get_model("sally_anne").create_from_arg_string(words, {"batch_size": 2})


def test_the_entry_point_names_the_model() -> None:
    (found,) = entry_points(group="lmms_eval.models", name="sally_anne")
    assert found.load()() == manifest()
    assert get_model("sally_anne") is SallyAnne


@pytest.mark.parametrize("name", [QWEN, LLAVA])
@pytest.mark.parametrize("steered", [False, True])
def test_replies_are_the_models_own(loaded, vectors, name: str, steered: bool) -> None:
    """Clips, text and one picture in one run; strength 0 is no steering."""
    options: dict[str, Any] = {"steer": vectors[name]} | ({} if steered else {"alpha": 0})
    lm = made_by_name(name, **options)
    shown = [pictures(CLIPS[0]), pictures(CLIPS[1]), [], [CLIPS[2]], pictures(CLIPS[0])[:1]]
    texts = [*TEXTS, *TEXTS[:2]]
    model = SteeredModel(loaded(name), SteeringVector.load(vectors[name]) if steered else None)
    expected = [
        *model.generate([Prompt(TEXTS[0], CLIPS[0]), Prompt(TEXTS[1], CLIPS[1])], TOKENS),
        *model.generate([Prompt(TEXTS[2])], TOKENS),
        *model.generate([Prompt(TEXTS[0], CLIPS[2])], TOKENS),
        *model.generate([Prompt(TEXTS[1], CLIPS[0][:1])], TOKENS),
    ]
    assert generated(lm, shown, texts) == expected
    assert all(expected)


def test_frames_of_a_film_are_sampled(loaded, tmp_path: Path) -> None:
    path = encoded(tmp_path / "film.mp4", CLIPS.reshape(-1, 84, 84, 3), 5)
    clip = read_clip(Media(path=path), "full", Sampling(count=6)).frames
    assert len(clip) == 6
    expected = SteeredModel(loaded(QWEN)).generate([Prompt(TEXTS[0], clip)], TOKENS)
    lm = made_by_name(QWEN, max_frames=6)
    assert generated(lm, [[str(path)]], TEXTS[:1]) == expected
    with pytest.raises(MediaError, match="made, document 0: .*no-film.mp4"):
        generated(lm, [[str(tmp_path / "no-film.mp4")]], TEXTS[:1])


def test_marks_of_pictures_are_taken_out_of_the_text() -> None:
    lm = made_by_name(LLAVA)
    shown = [pictures(CLIPS[0])] * 2
    plain, marked = generated(lm, shown, [TEXTS[0], f"<image>{TEXTS[0]}<video>"])
    assert plain == marked


def test_replies_end_before_a_stop_string() -> None:
    lm = made_by_name(QWEN)
    (whole,) = generated(lm, [[]], [UNASKED], max_new_tokens=12)
    words = whole.split()
    (cut,) = generated(lm, [[]], [UNASKED], max_new_tokens=12, until=["never said", words[2]])
    assert cut == whole[: whole.index(words[2])]


FRAMES = np.random.default_rng(0).integers(0, 256, (5, 12, 16, 3), dtype=np.uint8)
PICTURES = [Image.fromarray(frame) for frame in FRAMES]


@pytest.mark.parametrize("visuals", [PICTURES, [PICTURES], list(FRAMES), [FRAMES], FRAMES])
def test_frames_of_a_task_are_taken_as_they_are(visuals) -> None:
    """Also where there are more of them than of a film."""
    assert np.array_equal(clip_of(visuals, 2), FRAMES)
    for one in (PICTURES[:1], PICTURES[0], [FRAMES[0]]):
        assert np.array_equal(clip_of(one, 8), FRAMES[:1])
    assert clip_of([None], 4) is None


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.2},
        {"temperature": "warm"},
        {"do_sample": True, "temperature": None},
        {"num_beams": 4},
        {"max_new_tokens": 0},
        {"until": ["a", None]},
    ],
)
def test_what_is_not_done_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(HarnessError, match=next(iter(options))):
        decoding_of(options)


CLASS = "sally_anne.harness.adapters.lmms_eval.model.Questions"
OFFERED = [name for name in CASES if name != SYSTEM]


def run(files: Path, task: str, **steering: Any) -> dict[str, Any]:
    found = evaluator.simple_evaluate(
        "sally_anne",
        model_args=",".join(f"{n}={v}" for n, v in ({"pretrained": MODEL} | steering).items()),
        tasks=[task],
        task_manager=TaskManager(include_path=str(files), include_defaults=False),
        batch_size=4,
        bootstrap_iters=0,
    )
    assert found is not None
    return found


def assert_same(
    files: Path, case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, **steering: Any
) -> Expected:
    own = expected(case, folder, **steering)
    if (task := name_of(own.task, own.options)) is not None:
        monkeypatch.setenv(METADATA, json.dumps(own.options))
    else:
        task, files = own_task(folder, CLASS, own), folder
    found = run(files, task, **steering)
    assert_results(own, found, task)
    for sample in found["samples"][task]:
        text = own.prompts[sample["doc"]["item_id"]].text
        assert sample["doc"]["text"] == sample["arguments"][0] == text
    return own


@pytest.mark.parametrize("name", ANSWERED)
def test_replies_and_scores_are_those_of_evaluate(files, name, tmp_path, monkeypatch) -> None:
    assert_same(files, CASES[name], tmp_path, monkeypatch)


def test_steered_replies_and_scores_are_those_of_evaluate(
    files, vectors, tmp_path, monkeypatch
) -> None:
    case, steering = CASES["gridtom"], {"steer": vectors[MODEL], "alpha": 300.0}
    own = assert_same(files, case, tmp_path, monkeypatch, **steering)
    assert own.replies != expected(case, tmp_path / "plain").replies


@pytest.mark.parametrize("name", OFFERED)
def test_what_is_said_by_hand_has_the_scores_of_evaluate(
    files, name, tmp_path, monkeypatch
) -> None:
    speak(monkeypatch)
    assert_same(files, CASES[name], tmp_path, monkeypatch)


def test_the_command_says_what_is_asked(monkeypatch, seen_vector: str) -> None:
    """Options, vector and model reach all tasks, GridToM's as well, and its names are found."""
    seen: dict[str, Any] = {}

    def evaluate() -> None:
        manager = lmms_eval.__main__.TaskManager(include_defaults=False)
        seen["tasks"] = set(manager.all_subtasks) | {
            name for name, entry in manager.task_index.items() if entry["type"] == "python_task"
        }
        seen["options"] = from_environment()
        seen["stories"] = set(documents(from_environment() | {"setting": "text"})["story"])

    monkeypatch.setenv(METADATA, "")
    monkeypatch.setattr(lmms_eval.__main__, "cli_evaluate", evaluate)
    monkeypatch.setattr(lmms_eval.__main__, "TaskManager", TaskManager)
    words = ["--model_args", f"pretrained={MODEL},steer={seen_vector}", "--metadata", "limit=3"]
    main([*words, "--tasks", "bigtom"])
    assert {*tasks()} <= seen["tasks"]
    assert seen["options"] == {"limit": "3", "model": MODEL, "steer": seen_vector}
    # Stories that were seen in fitting are not asked about.
    assert len(seen["stories"]) == 3 and not seen["stories"].intersection(SEEN)
    # A cache is of a vector's numbers, whatever it is called.
    kept = []
    for alpha in (1.0, 2.0, 1.0):
        SteeringVector.load(seen_vector).with_alpha(alpha).save(seen_vector)
        main([*words, "--use_cache", "kept"])
        kept.append(sys.argv[-1])
    assert kept[0] == kept[2] != kept[1] and kept[0].startswith("kept/")
    with pytest.raises(SystemExit, match="--metadata limit: write name=value"):
        main(["--metadata", "limit"])
