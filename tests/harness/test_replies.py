"""Replies token by token are those of plain generation, with the log-probabilities of scoring."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sally_anne.experiments.train_tiny.families import FAMILIES
from sally_anne.harness.model import Prompt, Recorder, SteeredModel
from sally_anne.models.decoding import end_tokens
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prompts import reply_prompt

pytestmark = pytest.mark.integration

PROMPTS = [
    Prompt("At first the red agent is in the corridor. Where is the red agent now?"),
    Prompt("Where is the white agent?"),
    Prompt("The door is closed. Who is in the green room?"),
]
TOKENS = 6


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, folders) -> SteeredModel:
    """Each family's model with weights that make replies differ from prompt to prompt."""
    loaded = load_model(str(folders[request.param]))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in loaded.model.named_parameters():
            if "norm" not in name:
                parameter.normal_(std=0.1)
    loaded.model.lm_head.weight = nn.Parameter(torch.randn_like(loaded.model.lm_head.weight))
    return SteeredModel(loaded)


def lengths(loaded: LoadedModel) -> list[int]:
    tokenizer = loaded.processor.tokenizer
    texts = [reply_prompt(loaded, prompt.text, False) for prompt in PROMPTS]
    return [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]


def test_the_text_is_that_of_generate(model: SteeredModel) -> None:
    replies = model.replies(PROMPTS, TOKENS)
    assert [reply.text for reply in replies] == model.generate(PROMPTS, TOKENS)
    assert [reply.prompt_tokens for reply in replies] == lengths(model.loaded)
    for reply in replies:
        assert (len(reply.tokens), reply.ended) == (TOKENS, False)
        assert reply.log_probs == reply.likeliest == ()


def test_log_probabilities_are_those_along_the_reply(model: SteeredModel) -> None:
    replies = model.replies(PROMPTS, TOKENS, top=3)
    along = model.log_probs_along(PROMPTS, [reply.tokens for reply in replies])
    for reply, rows in zip(replies, along, strict=True):
        assert reply.log_probs == tuple(
            float(row[token]) for row, token in zip(rows, reply.tokens, strict=True)
        )
        for place, token, log_prob, row in zip(
            reply.likeliest, reply.tokens, reply.log_probs, rows, strict=True
        ):
            assert [value for _, value in place] == row.topk(3).values.tolist()
            assert place[0] == (token, log_prob)


def test_a_reply_ends_with_its_end_token(model: SteeredModel, monkeypatch) -> None:
    whole = model.replies(PROMPTS, TOKENS, top=0)
    end = whole[0].tokens[2]
    config = model.loaded.model.generation_config
    monkeypatch.setattr(config, "eos_token_id", [config.eos_token_id, end])
    assert end in end_tokens(model.loaded)
    replies = model.replies(PROMPTS, TOKENS, top=0)
    assert [reply.text for reply in replies] == model.generate(PROMPTS, TOKENS)
    for before, reply in zip(whole, replies, strict=True):
        length = before.tokens.index(end) + 1 if end in before.tokens else TOKENS
        assert reply.tokens == before.tokens[:length]
        assert len(reply.log_probs) == length and reply.ended == (end in before.tokens)
    assert replies[0].ended and not all(reply.ended for reply in replies)


def test_a_reply_stops_at_the_first_stop_string(model: SteeredModel) -> None:
    whole = model.replies(PROMPTS, TOKENS)
    stop = whole[0].text[len(whole[0].text) // 2 :][:4]
    replies = model.replies(PROMPTS, TOKENS, stops=("nowhere at all", stop))
    for before, reply in zip(whole, replies, strict=True):
        stopped = stop in before.text
        assert reply.text == (before.text[: before.text.index(stop)] if stopped else before.text)
        assert reply.ended == stopped
        assert before.tokens[: len(reply.tokens)] == reply.tokens
    assert replies[0].ended and len(replies[0].tokens) < TOKENS


def test_rows_that_have_ended_are_passed_over() -> None:
    class Letters:
        def decode(self, tokens, skip_special_tokens):
            return "".join("abcde."[token] for token in tokens)

    listener = Recorder(Letters(), ends=[5], prompt_tokens=[3, 4], stops=["bc"], top=1)
    steps = ([1, 0], [2, 0], [0, 5], [0, 0])
    done = [listener(torch.eye(6)[torch.tensor(s)], torch.tensor(s)).tolist() for s in steps]
    assert done == [[False, False], [True, False], [True, True], [True, True]]
    first, second = listener.replies()
    assert (first.text, first.tokens, first.prompt_tokens, first.ended) == ("", (1, 2), 3, True)
    assert (second.text, second.tokens, second.ended) == ("aa", (0, 0, 5), True)
    assert [place[0][0] for place in second.likeliest] == [0, 0, 5]
    assert len(second.log_probs) == 3
