"""What ``--dry-run`` says beforehand is what the run then does."""

from __future__ import annotations

import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sally_anne.core.errors import FolderError, ModelError, OptionError
from sally_anne.core.store import ActivationStore
from sally_anne.data.tasks import open_task
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prompts import open_prompt
from sally_anne.probing import extraction, interchange
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.extraction import plan_batches, prepare
from sally_anne.probing.pipeline import dry_run
from sally_anne.probing.pipeline import run as work
from tests.made_replies import printed

pytestmark = pytest.mark.integration


planned = partial(printed, dry_run)


def store_of(config: ProbeConfig) -> ActivationStore:
    return ActivationStore.open(config.folder / "activations")


@pytest.mark.parametrize(
    "options",
    [
        {"model": "tiny-qwen2-vl"},
        {"model": "tiny-qwen2-vl", "setting": "text", "order": 2, "dtype": "bfloat16"},
    ],
    ids=str,
)
def test_a_run_reads_and_stores_what_was_said(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = {"permutations": 39, "pairs": 3, "validation_pairs": 2, "random_sets": 9}
    config = ProbeConfig(stories=12, out=tmp_path / "run", figures=False, **options | scanned)
    figures, said_all = planned(config)
    assert not config.folder.exists()

    real, batches = [], []
    own_activations = extraction.activations_of

    def watched(loaded: LoadedModel, batch: Any, *rest: Any) -> Any:
        mask = batch.inputs["attention_mask"]
        ends = [len(ending) for ending in batch.endings]
        real.append(int(mask.sum()) + sum(ends))
        batches.append(batch)
        return own_activations(loaded, batch, *rest)

    monkeypatch.setattr(extraction, "activations_of", watched)
    exchanged = []
    prefix = interchange.prefix
    own_prefill, own_columns = prefix.prefill, prefix.read_side_by_side

    def begun(loaded: LoadedModel, inputs: Any, **how: Any) -> Any:
        exchanged.append(inputs["input_ids"].numel())
        return own_prefill(loaded, inputs, **how)

    def columns(loaded: LoadedModel, state: Any, rows: Any, tokens: Any, count: int) -> Any:
        exchanged.append(count * len(rows))
        return own_columns(loaded, state, rows, tokens, count)

    monkeypatch.setattr(prefix, "prefill", begun)
    monkeypatch.setattr(prefix, "read_side_by_side", columns)
    # In this process, where it is seen.
    monkeypatch.setattr(extraction, "models_at_once", lambda loaded: 1)
    heads = work(config, Console(quiet=True))
    assert figures["batches"].value == len(batches)
    assert figures["tokens read"].value == sum(real)
    # Contexts of questions and of statements are not equally long, nor shared alike.
    said = figures["tokens of the patching scan"].value
    assert sum(exchanged) == pytest.approx(said, rel=0.25)
    store = store_of(config)
    assert figures["samples N"].value == len(store.items)
    assert figures["activations on disk"].value == store.read().nbytes
    files = sorted((config.folder / "activations").glob("shard-*.safetensors"))
    assert figures["batches"].value == len(files)
    assert 0 <= sum(f.stat().st_size for f in files) - store.read().nbytes < 4096 * len(files)
    assert figures["probes"].value == 3 * len(heads)
    assert f"{len(batches)}" in said_all and "nothing is computed or written" in said_all


class Live(TorchDispatchMode):
    """Bytes of the tensors that are alive at once, at most; those of the model aside."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known = {p.untyped_storage()._cdata for p in model.parameters()}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.known:
                    self.known.add(storage._cdata)
                    weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
        return made

    def _gone(self, key: int, size: int) -> None:
        self.now -= size
        self.known.discard(key)


@pytest.mark.parametrize(
    ("model", "setting"), [("tiny-qwen2-vl", "multimodal"), ("tiny-llava-next-video", "text")]
)
def test_memory_is_near_what_the_tensors_of_a_pass_take(model: str, setting: Any) -> None:
    """The formula is to be on the safe side, but not far."""
    config = ProbeConfig(model=model, setting=setting, stories=20, batch_size=8)
    loaded = load_model(model)
    video = setting != "text"
    samples = open_task(config).samples
    rows = plan_batches(samples, config.batch_size)[0]
    prompts = [(samples[i], open_prompt(loaded, samples[i].text, video)) for i in rows]
    batch = prepare(loaded, prompts)
    with Live(loaded.model) as live:
        extraction.activations_of(loaded, batch, config.site)
    said = planned(config)[0]["above the weights"].value
    assert live.peak <= said <= 1.5 * live.peak


def test_a_published_model_needs_neither_weights_nor_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_weights: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was asked"))
    figures, said = planned(ProbeConfig(model="qwen2-vl", stories=20))
    assert not list(tmp_path.iterdir())
    assert figures["samples N"].value == 80
    # 600 tokens of frames and a story of some 300 words.
    assert 850 < figures["tokens a sample"].value < 1000
    assert figures["weights"].value == 2 * 8_291_375_616
    assert figures["activations on disk"].value == 80 * 28 * 28 * 128 * 2
    assert figures["cache of a token"].value == 2 * 28 * 4 * 128 * 2
    assert "estimated" in said


def test_what_the_run_would_refuse_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(FolderError, match="thesis.tex"):
        dry_run(ProbeConfig(out=tmp_path))
    with pytest.raises(OptionError, match="--stories"):
        dry_run(ProbeConfig(stories=0))
    with pytest.raises(ModelError, match="takes no videos"):
        dry_run(ProbeConfig(model="llama3", setting="multimodal", stories=20))
