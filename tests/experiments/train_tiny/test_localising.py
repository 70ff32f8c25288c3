"""The penalty sees what a linear probe sees, and leaves chosen heads alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import nn

from experiments.train_tiny.documents import Piece, verdict
from experiments.train_tiny.families import build_tokenizer
from experiments.train_tiny.localising import HeadReader, fisher_ratios, localiser
from experiments.train_tiny.trainer import encode, score_text


def sample(shift: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """400 outputs of three heads of width 5; head 1 is shifted where the statement is true."""
    draw = torch.Generator().manual_seed(seed)
    z = torch.randn(400, 3, 5, generator=draw) @ torch.diag(torch.tensor([3.0, 1, 1, 0.5, 0.1]))
    truth = torch.rand(400, generator=draw) < 0.5
    z[truth, 1, 4] += shift
    return z, truth


def test_ratio_is_large_where_a_probe_succeeds() -> None:
    z, truth = sample(1.0)
    ratios = fisher_ratios(z, truth)
    assert ratios[1] > 5 > 20 * max(ratios[0], ratios[2])
    for head in (0, 1, 2):
        probe = LinearDiscriminantAnalysis().fit(z[:, head].numpy(), truth.numpy())
        accuracy = probe.score(z[:, head].numpy(), truth.numpy())
        assert (accuracy > 0.95) == (head == 1)


def test_ratio_is_zero_where_the_means_agree() -> None:
    z, truth = sample(1.0)
    z = torch.where(truth[:, None, None], z - z[truth].mean(0), z - z[~truth].mean(0))
    assert fisher_ratios(z, truth).max() < 1e-9


class Reader:
    """Heads given by hand."""

    layers = (4,)
    n_heads = 3

    def __init__(self, z: torch.Tensor) -> None:
        self.z = z

    def heads(self, layer: int) -> torch.Tensor:
        return self.z


def test_kept_heads_are_free() -> None:
    z, truth = sample(1.0)
    judged = torch.ones(20, 20, dtype=torch.bool)
    reader = Reader(z.view(20, 20, 3, 5))
    everywhere = localiser(reader, (), 1.0)(judged, truth)  # type: ignore[arg-type]
    but_one = localiser(reader, [(4, 1)], 1.0)(judged, truth)  # type: ignore[arg-type]
    assert but_one < 0.1 < everywhere
    ratios = fisher_ratios(z, truth)
    assert everywhere == pytest.approx(float(torch.log1p(ratios).mean()), rel=1e-5)


def test_too_few_samples_say_nothing() -> None:
    z, _ = sample(1.0)
    truth = torch.zeros(400, dtype=torch.bool)
    truth[:3] = True
    reader = Reader(z.view(20, 20, 3, 5))
    judged = torch.ones(20, 20, dtype=torch.bool)
    assert localiser(reader, (), 1.0)(judged, truth) == 0  # type: ignore[arg-type]


def test_places_are_those_that_predict_the_judged_token() -> None:
    tokenizer = build_tokenizer()
    document = [Piece("red is blue .", 0.0), verdict(False), Piece("white, green", 1.0, True)]
    batch = encode(tokenizer, [document])
    asked: list[tuple[list[int], list[bool]]] = []

    def penalty(judged: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        asked.append((judged[0].nonzero()[:, 0].tolist(), truth.tolist()))
        return torch.tensor(2.0)

    output = SimpleNamespace(logits=torch.zeros(1, 8, 320))
    loss, _ = score_text(batch, penalty=penalty)(output)
    assert asked == [([3, 4], [False, True])]
    assert float(loss - score_text(batch)(output)[0]) == pytest.approx(2.0)


def test_the_reader_keeps_the_inputs_of_w_o() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"hidden_size": 16, "intermediate_size": 16, "vocab_size": 8}
    model = LlamaForCausalLM(
        LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **size)
    )
    reader = HeadReader(model, [1])
    seen: list[torch.Tensor] = []
    layer = model.model.layers[1].self_attn.o_proj
    assert isinstance(layer, nn.Linear)
    layer.register_forward_hook(lambda module, args, output: seen.append(args[0]))
    model(torch.tensor([[1, 2, 3]]))
    assert torch.equal(reader.heads(1).flatten(-2), seen[0])
    reader.heads(1).sum().backward()
    assert model.model.layers[0].mlp.up_proj.weight.grad is not None
