"""Packed questions against questions asked alone; what training and held-out stories share."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sally_anne.experiments.train_adapter import batch_of, grid, logits, plain

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
