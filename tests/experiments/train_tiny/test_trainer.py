"""The loop: levels rise when learned, and an interrupted run ends in the same bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from sally_anne.experiments.train_tiny.trainer import (
    CHECKPOINT,
    CURVE,
    Batch,
    Level,
    Settings,
    attend_in_float32,
    train,
)

SETTINGS = Settings(checkpoint_every=10, warm_up=5, learning_rate=0.05, bfloat16=False)


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def level(name: str, goal: float, most: int, fail_at: list[int] | None = None) -> Level:
    calls = [0]

    def batch(rng: random.Random) -> Batch:
        calls[0] += 1
        if fail_at and calls[0] == fail_at[0]:
            raise KeyboardInterrupt
        x = torch.tensor([[rng.gauss(0, 1), rng.gauss(0, 1)] for _ in range(16)])

        def score(output: Tensor) -> tuple[Tensor, float]:
            loss = ((output - x.sum(1, keepdim=True)) ** 2).mean()
            return loss, loss.item()

        return {"x": x}, score

    return Level(name, batch, goal, most)


def unseen(line: str) -> None:
    del line


def test_levels_rise_by_loss_and_the_last_runs_its_steps(tmp_path: Path) -> None:
    train(Line(), [level("a", 0.05, 500), level("b", 0, 30)], tmp_path, SETTINGS, "t", unseen)
    names = [line.split(",")[1] for line in (tmp_path / CURVE).read_text().splitlines()[1:]]
    assert 15 <= names.index("b") < 500
    assert names.count("b") == 30


def test_unlearned_level_ends_after_its_most_steps(tmp_path: Path) -> None:
    said: list[str] = []
    train(Line(), [level("a", -1, 20), level("b", 0, 5)], tmp_path, SETTINGS, "t", said.append)
    assert any("NOT learned after 20 steps" in line for line in said)


def test_batches_without_targets_do_not_end_a_level(tmp_path: Path) -> None:
    easy = level("a", 1e9, 40)

    def untold(rng: random.Random) -> Batch:
        inputs, score = easy.batch(rng)
        return inputs, lambda output: (score(output)[0], float("nan"))

    levels = [Level("a", untold, 1e9, 40), level("b", 0, 5)]
    train(Line(), levels, tmp_path, SETTINGS, "t", unseen)
    names = [line.split(",")[1] for line in (tmp_path / CURVE).read_text().splitlines()[1:]]
    assert names.index("b") >= 40


@pytest.mark.parametrize("stop", [3, 17, 38])
def test_interrupted_training_ends_in_the_same_weights(tmp_path: Path, stop: int) -> None:
    def levels(fail: list[int] | None = None) -> list[Level]:
        return [level("a", -1, 25, fail), level("b", 0, 20)]

    whole, broken = Line(), Line()
    train(whole, levels(), tmp_path / "whole", SETTINGS, "t", unseen)
    with pytest.raises(KeyboardInterrupt):
        train(broken, levels([min(stop, 25)]), tmp_path / "broken", SETTINGS, "t", unseen)
    resumed = Line()
    train(resumed, levels(), tmp_path / "broken", SETTINGS, "t", unseen)
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)

    def steps(folder: str) -> list[list[str]]:
        lines = (tmp_path / folder / CURVE).read_text().splitlines()
        return [line.split(",")[:3] for line in lines]

    assert steps("whole") == steps("broken")
    assert (tmp_path / "broken" / CHECKPOINT).exists()


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
        given = []
        wrapped = model.model.layers[0].self_attn.o_proj.register_forward_pre_hook(
            lambda _, z: given.append(z[0].dtype)
        )
        with torch.autocast("cpu", torch.bfloat16):
            model(ids, attention_mask=mask)
        wrapped.remove()
    assert given == [torch.float32]
