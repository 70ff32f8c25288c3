"""Runs that are broken off, repeated, or repeated with other options."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import closing
from pathlib import Path

import pytest
import torch

from sally_anne.core.errors import OutOfMemoryError, ProbingError, StoreError
from sally_anne.core.store import ActivationStore, Index
from sally_anne.figures.config import FiguresConfig
from sally_anne.probing import extraction, pipeline
from tests.core.conftest import contents

pytestmark = pytest.mark.integration


def interrupt_after(monkeypatch: pytest.MonkeyPatch, batches: int, error: BaseException) -> None:
    """Let so many batches come from the workers."""
    ahead = extraction.prefetch

    def counted(*args):
        with closing(ahead(*args)) as results:
            for done, result in enumerate(results):
                if done == batches:
                    raise error
                yield result

    monkeypatch.setattr(extraction, "prefetch", counted)


def test_large_models_run_in_one_process_and_give_the_same_numbers(
    finished, carry, tmp_path, monkeypatch
) -> None:
    ran: list[int] = []
    run = extraction.activations_of
    monkeypatch.setattr(extraction, "activations_of", lambda *args: ran.append(1) or run(*args))
    monkeypatch.setattr(extraction, "_SMALL", 0)
    carry(tmp_path / "run")
    assert len(ran) == 12
    one, several = (
        ActivationStore.open(f / "activations").read() for f in (tmp_path / "run", finished)
    )
    torch.testing.assert_close(one, several, rtol=0, atol=1e-5)


def test_a_killed_worker_leaves_what_was_done(carry, finished, tmp_path, monkeypatch) -> None:
    batch = extraction.prepare

    def prepare(loaded, chosen, shared):
        if any(sample.item_id == killing for sample, _ in chosen):
            os.kill(os.getpid(), signal.SIGKILL)
        return batch(loaded, chosen, shared)

    store = ActivationStore.open(finished / "activations")
    killing = store.items["item_id"].iloc[-1]
    with monkeypatch.context() as patch:
        patch.setattr(extraction, "prepare", prepare)
        with pytest.raises(ProbingError, match="killed.*the same command goes on"):
            carry(tmp_path / "run")
    assert 0 < len(ActivationStore.open(tmp_path / "run" / "activations").pending()) < 12
    carry(tmp_path / "run")
    assert contents(tmp_path / "run" / "activations") == contents(finished / "activations")


def test_a_resumed_extraction_gives_the_same_bytes(finished, carry, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        interrupt_after(patch, 5, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            carry(tmp_path / "run")
    store = ActivationStore.open(tmp_path / "run" / "activations")
    assert len(store.pending()) == 7
    assert not (tmp_path / "run" / "config.json").exists()
    interrupt_after(monkeypatch, 7, AssertionError("more than the missing batches were run"))
    carry(tmp_path / "run")
    assert contents(tmp_path / "run" / "activations") == contents(finished / "activations")
    for name in ("heads.parquet", "probes.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (finished / name).read_bytes()


def test_progress_counts_what_is_stored_already(carry, tmp_path, options, monkeypatch) -> None:
    seen: list[tuple[int, int]] = []

    def watched(*args, **how):
        *rest, _, on_batch = args
        see = lambda done, total: seen.append((done, total))  # noqa: E731
        return extraction.fill_store(*rest, see, on_batch, **how)

    monkeypatch.setattr(pipeline, "fill_store", watched)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            carry(tmp_path / "run", stories=18, batch_size=18)
    assert seen == [(0, 4), (1, 4), (2, 4)]
    seen.clear()
    carry(tmp_path / "run", stories=18, batch_size=18)
    assert seen == [(2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"site": "resid"}, "site is 'head_out' in the store, 'resid' in this run"),
        ({"data_seed": 1}, "data is '[0-9a-f]+' in the store"),
        ({"batch_size": 5}, "other batches"),
    ],
)
def test_other_options_in_the_same_folder_are_named(
    finished, carry, no_weights, changes, named
) -> None:
    before = contents(finished)
    with pytest.raises(StoreError, match=named) as caught:
        carry(finished, **changes)
    assert "Choose another --out" in str(caught.value)
    assert contents(finished) == before


def test_other_probe_settings_leave_a_finished_run_alone(finished, carry, no_weights) -> None:
    before = contents(finished)
    with pytest.raises(ProbingError, match=r"--solver batched, not sklearn.*another --out"):
        carry(finished, solver="sklearn")
    assert contents(finished) == before


def test_a_fit_that_breaks_off_does_not_pass_for_the_run_before(
    finished, carry, tmp_path, monkeypatch, no_weights
) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    (folder / "heads.parquet").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "save_probes", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            carry(folder)
    assert not (folder / "config.json").exists()
    carry(folder)
    for name in ("heads.parquet", "probes.safetensors"):
        assert (folder / name).read_bytes() == (finished / name).read_bytes()


def test_missing_figures_are_drawn_without_fitting(
    finished, carry, tmp_path, monkeypatch, no_weights
) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    monkeypatch.setattr(pipeline, "fit_probes", lambda *_: pytest.fail("probes were fitted"))
    drawn = tmp_path / "drawn"

    def draw(config: FiguresConfig) -> list[Path]:
        # In a process of its own.
        drawn.write_text(str(config.run))
        return [config.run / "figures" / "new.png"]

    monkeypatch.setattr("sally_anne.figures.draw.draw", draw)
    carry(folder, figures=True)
    assert not drawn.exists()
    next((folder / "figures").glob("*.pdf")).unlink()
    carry(folder, figures=False)
    assert not drawn.exists()
    carry(folder, figures=True)
    assert drawn.read_text() == str(folder)


def test_auto_tries_the_longest_prompts_and_a_store_keeps_its_size(
    carry, tmp_path, monkeypatch
) -> None:
    ran: list[int] = []
    forward = extraction.activations_of

    def watched(loaded, batch, site, items, reader):
        ran.append(len(items))
        return forward(loaded, batch, site, items, reader)

    def five_fit(model, trial, on_cpu, processes):
        assert on_cpu == 8
        trial(64)
        trial(5)
        return 5

    with monkeypatch.context() as patch:
        patch.setattr(extraction, "activations_of", watched)
        patch.setattr(extraction, "fitting", five_fit)
        carry(tmp_path / "run", stories=18, batch_size="auto")
    assert ran[:2] == [64, 5]
    assert max(ran[2:], default=5) == 5
    store = ActivationStore.open(tmp_path / "run" / "activations")
    sizes = [len(batch) for batch in Index.read(store.path).batches]
    assert sizes == [5] * 14 + [2]
    monkeypatch.setattr(extraction, "fitting", lambda *_: pytest.fail("tried again"))
    assert "nothing was computed again" in carry(tmp_path / "run", stories=18, batch_size="auto")


def test_too_large_a_batch_says_how_to_go_on(carry, tmp_path, monkeypatch) -> None:
    def full(*_, **__):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(extraction, "prefill", full)
    with pytest.raises(OutOfMemoryError, match="smaller --batch-size.* or give another --out"):
        carry(tmp_path / "run")
