"""Samples of one's own on their way through a model, in memory or into a store."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import sally_anne as sa
from sally_anne.core.errors import ModelError, ProbingError, StoreError
from sally_anne.core.store import ActivationStore
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.samples import build
from sally_anne.data.samples import Sample
from sally_anne.hooks.capture import Capture
from sally_anne.models.loading import load_model
from sally_anne.models.prompts import encode, open_prompt, reply_prompt
from sally_anne.probing.extraction import extract, fill_store, plan_batches, prefetch
from tests.data.test_transcribe import write_wav
from tests.models.checkpoints import HEARS

FILMS = [np.zeros((length, 28, 28, 3), np.uint8) for length in (2, 4, 2, 4)]

SAMPLES = [
    Sample(f"s{i}", "Where is she?", video=film, labels={"y": i < 2}, split="train")
    for i, film in enumerate(FILMS)
]


def test_films_of_one_shape_go_together() -> None:
    assert plan_batches(SAMPLES, 4) == [[0, 2], [1, 3]]
    wide = replace(SAMPLES[0], item_id="wide", video=np.zeros((2, 28, 56, 3), np.uint8))
    assert plan_batches([*SAMPLES, wide], 4) == [[0, 2], [4], [1, 3]]
    shared = [replace(sample, context="one", group="g") for sample in SAMPLES]
    assert plan_batches(shared, 4) == [[0, 2], [1, 3]]


def test_films_of_a_group_stand_together_and_texts_by_their_contexts() -> None:
    """Of groups in their order, so that a batch's films can begin alike."""
    of = [("g", "TB"), ("g", "FB"), ("g", "TB"), ("a", "FB"), ("a", "TB"), ("g", "FB")]
    samples = [
        replace(SAMPLES[0], item_id=f"s{i}", group=group, context=context)
        for i, (group, context) in enumerate(of)
    ]
    assert plan_batches(samples, 6) == [[1, 5, 0, 2, 3, 4]]
    texts = [replace(sample, video=None) for sample in samples]
    assert plan_batches(texts, 6) == [[1, 3, 5, 0, 2, 4]]


@pytest.mark.integration
@pytest.mark.parametrize("model", ["tiny-llava-next-video", "tiny-qwen2-vl"])
def test_films_of_several_lengths_are_read(model: str) -> None:
    loaded = load_model(model, videos=True)
    for samples in (SAMPLES, [replace(sample, context=sample.item_id) for sample in SAMPLES]):
        together, alone = (extract(loaded, samples, batch_size=size).x for size in (4, 1))
        np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("name", HEARS)
def test_sounds_are_heard(
    name: str, opened: Callable[[str], sa.LoadedModel], tmp_path: Path
) -> None:
    """Of 24 samples with the same words a low or a high tone is the label."""
    draw, high = np.random.default_rng(0), [i % 2 for i in range(24)]
    moments = np.arange(8000) / 16_000
    tones = [np.sin(2 * np.pi * (200, 2000)[y] * moments) / 3 for y in high]
    sounds = [(s + draw.normal(0, 0.01, len(s))).astype(np.float32) for s in tones]
    pairs, answers = [f"p{i // 2}" for i in range(24)], ["blue", "red"] * 12
    given = {"pairs": pairs, "answers": answers, "sounds": sounds}
    loaded, samples = opened(name), sa.samples(["is it high ?"] * 24, {"high": high}, **given)
    x = extract(loaded, samples, batch_size=8)
    np.testing.assert_allclose(x.x, extract(loaded, samples, batch_size=1).x, atol=1e-5)
    prompt = open_prompt(loaded, "is it high ?", False, 1)
    with Capture(loaded.model, positions="last_prompt") as capture, torch.inference_mode():
        loaded.model(**encode(loaded, [prompt], None, [[sounds[5]]]))
        np.testing.assert_allclose(x.x[5], capture.take()[0, 0], atol=1e-5)
    heads = sa.HeadProbes(c=1.0).fit(x.train, label="high").rank(x)
    assert heads["high_test_accuracy"].max() == 1
    assert len(sa.patching(loaded, samples).heads) == x.x[0, ..., 0].size

    lines = '{"text": "is it high ?", "labels": {"high": 0}, "sound": "s.wav"}\n'
    (tmp_path / "own.jsonl").write_text(lines)
    write_wav(tmp_path / "s.wav", sounds[0])
    (sample,) = sa.read_samples(tmp_path / "own.jsonl")
    np.testing.assert_allclose(sample.waveform(), sounds[0], atol=1e-4)
    with pytest.raises(ModelError):
        extract(load_model("tiny-qwen2-vl"), samples)


@pytest.mark.integration
def test_a_store_of_another_resolution_is_not_taken(tmp_path: Path) -> None:
    words = [replace(sample, video=None) for sample in SAMPLES]
    whole, small = (load_model("tiny-qwen2-vl", max_pixels=n) for n in (None, 28 * 28))
    extract(small, words, tmp_path)
    assert ActivationStore.open(tmp_path).meta.extra["max_pixels"] == "784"
    with pytest.raises(StoreError):
        extract(whole, words, tmp_path)


@pytest.mark.integration
def test_nnsight_extracts_the_same(model_folder: Path, tmp_path: Path) -> None:
    loaded = load_model(str(model_folder))
    chosen = dict.fromkeys((0, 1), "test")
    stories = open_stories(None, 2025)
    samples = build((stories.story(i) for i in chosen), chosen, 1, "matched", "multimodal")

    def activations(name: str, folder: str) -> np.ndarray:
        store = fill_store(loaded, samples, tmp_path / folder, "head_out", 4, {}, backend=name)
        return np.asarray(store.read())

    expected = activations("native", "native")
    found = activations("nnsight", "nnsight")
    assert expected.shape[0] == len(samples) == found.shape[0]
    assert not np.array_equal(expected, 0 * expected)
    # The native way reads what samples share once and goes on from its cache.
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max(), rtol=0)
    for other, folder in (("native", "nnsight"), ("nnsight", "native")):
        with pytest.raises(StoreError, match="backend"):
            activations(other, folder)


@pytest.mark.integration
def test_replies_are_read_after_the_generation_prompt(model_folder: Path, tmp_path: Path) -> None:
    loaded = load_model(str(model_folder))
    words = [replace(sample, video=None) for sample in SAMPLES[:1]]
    read = {
        at: extract(loaded, words, tmp_path / at, position=at).x for at in ("statement", "reply")
    }
    for at, layout in (("statement", open_prompt), ("reply", reply_prompt)):
        with torch.no_grad(), Capture(loaded.model, positions="all") as capture:
            loaded.model(**encode(loaded, [layout(loaded, words[0].text, False)], None))
        np.testing.assert_allclose(read[at], capture.take()[:, -1].cpu(), atol=1e-5)
    assert not np.allclose(read["statement"], read["reply"], atol=1e-2)
    with pytest.raises(StoreError):
        extract(loaded, words, tmp_path / "statement", position="reply")
    with pytest.raises(ProbingError, match="--position reply"):
        extract(load_model(str(model_folder), prompt="raw"), words, position="reply")


linux = pytest.mark.skipif(sys.platform != "linux", reason="a thread elsewhere")


@linux
def test_other_processes_do_the_work_and_end() -> None:
    together = multiprocessing.get_context("fork").Barrier(2)

    def where(_: int) -> int:
        together.wait(20)
        return os.getpid()

    threads = torch.get_num_threads()
    with closing(prefetch(where, [0, 1], workers=2)) as results:
        pids = {next(results)}
        assert torch.get_num_threads() == max(1, threads - 2)
        pids |= set(results)
    assert len(pids) == 2 and os.getpid() not in pids
    assert torch.get_num_threads() == threads
    assert not any(_runs(pid) for pid in pids)


def test_an_error_reaches_the_reader_in_its_place() -> None:
    def work(n: int) -> int:
        if n == 1:
            raise ProbingError("frame 1 is missing")
        return n

    threads = torch.get_num_threads()
    with closing(prefetch(work, [0, 1, 2])) as results:
        assert next(results) == 0
        with pytest.raises(ProbingError, match="^frame 1 is missing$"):
            next(results)
    assert torch.get_num_threads() == threads


@linux
def test_a_killed_worker_is_noticed() -> None:
    with (
        closing(prefetch(lambda _: os.kill(os.getpid(), signal.SIGKILL), [0])) as results,
        pytest.raises(ProbingError, match="was killed, .* the same command goes on"),
    ):
        next(results)


@linux
@pytest.mark.integration
def test_workers_end_with_a_killed_parent() -> None:
    script = """
import os, time
from sally_anne.probing.extraction import prefetch
results = prefetch(lambda _: os.getpid(), [0])
print(next(results), flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    _wait(lambda: not _runs(worker))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _wait(until: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not until():
        assert time.monotonic() < limit
        time.sleep(0.01)
