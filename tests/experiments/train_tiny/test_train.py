"""The recipe ends in a folder that loads; levels rise when learned; a run goes on as it was."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from sally_anne.core.errors import OptionError
from sally_anne.experiments.config import TrainConfig
from sally_anne.experiments.train_adapter import batch_of, grid, logits, plain
from sally_anne.experiments.train_tiny import conversations, looking
from sally_anne.experiments.train_tiny import train as recipe
from sally_anne.experiments.train_tiny.documents import Batch, Level
from sally_anne.experiments.train_tiny.train import CHECKPOINT, CURVE, attend_in_float32, train
from sally_anne.models.loading import load_model


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def level(name: str, goal: float, most: int, fail_at: int = 0) -> Level:
    calls = [0]

    def batch(rng: random.Random) -> Batch:
        calls[0] += 1
        if calls[0] == fail_at:
            raise KeyboardInterrupt
        x = torch.tensor([[rng.gauss(0, 1), rng.gauss(0, 1)] for _ in range(16)])

        def score(output: Tensor) -> tuple[Tensor, float]:
            loss = ((output - x.sum(1, keepdim=True)) ** 2).mean()
            return loss, loss.item()

        return {"x": x}, score

    return Level(name, batch, goal, most)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"EVERY": 10, "WARM_UP": 5, "BFLOAT16": False}.items():
        monkeypatch.setattr(recipe, name, value)


def trained(levels: list[Level], folder: Path) -> tuple[nn.Module, list[list[str]]]:
    """A line, and the step and level of each line of its curve."""
    line = Line()
    train(line, levels, folder, "t", 0, 0.05)
    rows = (folder / CURVE).read_text().splitlines()[1:]
    return line, [row.split(",")[:2] for row in rows]


@pytest.mark.usefixtures("short")
def test_levels_rise_by_loss_or_after_their_steps(tmp_path: Path, capsys: Any) -> None:
    def names(first: Level, steps: int, folder: str) -> list[str]:
        return [row[1] for row in trained([first, level("b", 0, steps)], tmp_path / folder)[1]]

    found = names(level("a", 0.05, 500), 30, "easy")
    assert 15 <= found.index("b") < 500 and found.count("b") == 30
    names(level("a", -1, 20), 5, "hard")
    assert "NOT learned" in capsys.readouterr().out
    easy = level("a", 1e9, 40)

    def untold(rng: random.Random) -> Batch:
        inputs, score = easy.batch(rng)
        return inputs, lambda output: (score(output)[0], float("nan"))

    # Batches without targets do not end a level.
    assert names(Level("a", untold, 1e9, 40), 5, "untold").index("b") >= 40


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("stop", [3, 17, 25])
def test_interrupted_training_ends_in_the_same_weights(tmp_path: Path, stop: int) -> None:
    def levels(fail_at: int = 0) -> list[Level]:
        return [level("a", -1, 25, fail_at), level("b", 0, 20)]

    whole, steps = trained(levels(), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(levels(stop), tmp_path / "broken")
    resumed, again = trained(levels(), tmp_path / "broken")
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
    assert steps == again


def test_attention_is_in_float32_inside_autocast_and_the_same_outside() -> None:
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    small = LlamaConfig(vocab_size=50, intermediate_size=64, num_hidden_layers=2, **shape)
    model = LlamaForCausalLM(small).eval()
    ids = torch.randint(50, (3, 11))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    with torch.no_grad():
        plain = model(ids, attention_mask=mask).logits
        attend_in_float32(model)
        assert torch.equal(model(ids, attention_mask=mask).logits, plain)
        given: list[torch.dtype] = []
        out = model.model.layers[0].self_attn.o_proj
        watched = out.register_forward_pre_hook(lambda _, z: given.append(z[0].dtype))
        with watched, torch.autocast("cpu", torch.bfloat16):
            model(ids, attention_mask=mask)
    assert given == [torch.float32]


@pytest.mark.integration
def test_a_step_of_every_level_ends_in_a_model(tmp_path: Path, monkeypatch: Any) -> None:
    names: dict[str, list[str]] = {}

    def short(model: Any, levels: Sequence[Level], folder: Path, stage: str, *numbers: Any) -> None:
        names[stage] = [level.name for level in levels]
        train(model, [level._replace(most=1) for level in levels], folder, stage, *numbers)

    monkeypatch.setattr(recipe, "train", short)
    # Batches of two documents: what a step costs plays no part.
    encode, film = recipe.encode, looking.Films.film
    monkeypatch.setattr(recipe, "encode", lambda words, made, most: encode(words, made[:2], most))
    monkeypatch.setattr(looking.Films, "film", lambda own, *how: film(own, *how[:2], 2, how[3]))
    for function in (looking.Films.__init__, conversations.VideoData.level):
        monkeypatch.setattr(function, "__defaults__", (2,))
    sizes = "train.STORIES train.FILMED conversations.TEXTS looking._TEXT_SIZE looking._CLIPS"
    for name in sizes.split():
        monkeypatch.setattr(f"sally_anne.experiments.train_tiny.{name}", 2)
    finished = recipe.run(TrainConfig("qwen2-vl", out=tmp_path))
    assert list(names) == ["decoder", "looking", "seeing", "mixing"]
    assert names["looking"][0] == "two agents" and names["looking"][-1] == "whole"
    marked = [f"narrated ({share} % marked)" for share in (100, 30, 0)]
    assert names["mixing"] == ["single", "checked", *marked, "mixed"]
    loaded = load_model(str(finished))
    assert loaded.model.config.text_config.num_hidden_layers == recipe.DEPTH
    seen, mixed = (load_file(tmp_path / stage / CHECKPOINT) for stage in ("seeing", "mixing"))
    for name, weights in loaded.model.named_parameters():
        kept = mixed[f"model.{name}"] if "language_model" in name else seen[f"model.model.{name}"]
        assert torch.equal(weights, kept)
    assert not any("language_model" in name for name in seen)
    assert all("language_model" in name for name in mixed if name.startswith("model."))

    names.clear()
    other = {"out": tmp_path / "other", "start": str(finished)}
    across = recipe.run(TrainConfig("llava-next-video", **other))
    assert load_model(str(across)).family.name == "llava-next-video"
    assert list(names) == ["looking", "seeing", "mixing"]


@pytest.mark.integration
def test_a_start_of_other_words_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = recipe.tiny.build_tokenizer()
    tokenizer.add_tokens(["quite", "others"])
    monkeypatch.setattr(recipe.tiny, "build_tokenizer", lambda: tokenizer)
    wrong = TrainConfig("qwen2-vl", out=tmp_path, start="tiny-qwen2-vl")
    with pytest.raises(OptionError, match="tiny-qwen2-vl"):
        recipe.run(wrong)


WIDTH = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "vocab_size": 5000}


class Words:
    """A tokenizer that numbers words as it meets them."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        words = text.replace(".", " .").replace("?", " ?").split()
        return {"input_ids": [self.known.setdefault(word, len(self.known)) for word in words]}


def test_a_question_sees_its_story_and_no_other_question() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(**WIDTH, num_hidden_layers=2, attn_implementation="eager")
    model, words = LlamaForCausalLM(config).eval().double(), Words()
    told = [*islice(plain(0, "train"), 3), next(grid(0, "validation"))]
    found = iter(logits(model, batch_of(told, words, model.dtype)))
    for story in told:
        for question in story.asked:
            ids = words(f"{story.text} {question.text}", add_special_tokens=False)["input_ids"]
            alone = model(torch.tensor([ids])).logits[0, -1].float()
            torch.testing.assert_close(next(found), alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_held_out_stories_share_no_names_places_or_plots(seed: int) -> None:
    train = list(islice(plain(seed, "train"), 400))
    other = list(islice(plain(10**6 + seed, "held-out"), 480))
    assert {story.plot for story in train}.isdisjoint(story.plot for story in other)
    answers = [{asked.answer for story in part for asked in story.asked} for part in (train, other)]
    assert answers[0].isdisjoint(answers[1])
    # The same questions of the same words: neither the start nor the end is always believed.
    beliefs = [a.kind for story in other for a in story.asked if a.kind in ("TB", "FB")]
    assert beliefs.count("TB") == beliefs.count("FB") == len(other) / 2
