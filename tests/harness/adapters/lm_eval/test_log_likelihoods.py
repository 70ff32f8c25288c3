"""Log-likelihoods and replies are those of plain passes, steered where they should be."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance
from lm_eval.models.hf_vlms import HFMultimodalLM

from sally_anne.harness.adapters.lm_eval.model import SallyAnneLM
from sally_anne.hooks.positions import POSITIONS
from tests.hooks.tiny_inputs import added, columns_of

pytestmark = pytest.mark.plugins
CONTEXTS = (
    "At first the red agent is in the corridor. The door is closed. Where is the red agent? In the",
    "Where is the white agent? In the",
)
PAIRS = (
    (CONTEXTS[0], " blue room."),
    (CONTEXTS[0], " green"),
    (CONTEXTS[1], " purple room . The door is closed ."),
    (CONTEXTS[0], " red room"),
    ("", "The door is open."),
)
TEXT = "At first the red agent is in the corridor. It goes to the blue room, opens the blue door."


def asked(*pairs: tuple) -> list[Instance]:
    return [Instance("loglikelihood", {}, pair, 0, ("task", 0, 1)) for pair in pairs]


def whole(*texts: str) -> list[Instance]:
    return [Instance("loglikelihood_rolling", {}, (text,), 0, ("task", 0, 1)) for text in texts]


@torch.inference_mode()
def by_hand(loaded, pair: tuple, vector=None) -> float:
    """The sum of log-probabilities from one pass, changed by hooks of the test's own."""
    context, continuation = pair
    tokenizer = loaded.processor.tokenizer
    begun = tokenizer(context)["input_ids"] or [tokenizer.bos_token_id]
    ids = begun + tokenizer(continuation)["input_ids"]
    where = [] if vector is None else columns_of(vector.positions, len(begun), len(ids))
    with nullcontext() if vector is None else added(loaded.model, vector.delta(), where):
        logits = loaded.model(torch.tensor([ids]), use_cache=False).logits[0].double()
    places = range(len(begun), len(ids))
    return sum(float(logits[p - 1].log_softmax(-1)[ids[p]]) for p in places)


def sums(results) -> list[float]:
    return [total for total, _ in results]


def close(values) -> object:
    return pytest.approx(values, rel=1e-5, abs=2e-4)


@pytest.mark.parametrize("positions", [None, *POSITIONS])
def test_they_are_those_of_one_pass(loaded, vector, positions) -> None:
    steer = positions and replace(vector, positions=positions)
    wanted = close([by_hand(loaded, pair, steer) for pair in PAIRS])
    for size in (1, 8):
        lm = SallyAnneLM(loaded, steer, batch_size=size)
        assert sums(lm.loglikelihood(asked(*PAIRS))) == wanted


@pytest.mark.parametrize("positions", POSITIONS)
def test_alpha_0_gives_the_bits_of_no_vector(loaded, vector, positions) -> None:
    vector = replace(vector, positions=positions)
    plain, zero = SallyAnneLM(loaded), SallyAnneLM(loaded, vector, 0)
    assert zero.loglikelihood(asked(*PAIRS)) == plain.loglikelihood(asked(*PAIRS))
    assert zero.loglikelihood_rolling(whole(TEXT)) == plain.loglikelihood_rolling(whole(TEXT))
    steered = SallyAnneLM(loaded, vector)
    for before, after in zip(
        plain.loglikelihood(asked(*PAIRS)), steered.loglikelihood(asked(*PAIRS)), strict=True
    ):
        # One token is predicted before the first generated one is read.
        assert abs(before[0] - after[0]) > 1e-3 or positions == "generated"


@pytest.fixture(scope="module")
def stock(loaded) -> HFMultimodalLM:
    """lm-eval's own driver of the same model."""
    return HFMultimodalLM(pretrained=loaded.source, device="cpu", dtype="float32")


@pytest.mark.parametrize("max_length", [None, 12])
def test_lm_evals_own_driver_finds_the_same(loaded, stock, monkeypatch, max_length) -> None:
    monkeypatch.setattr(stock, "_max_length", max_length)
    lm = SallyAnneLM(loaded, max_length=max_length)
    assert lm.max_length == stock.max_length
    mine, theirs = lm.loglikelihood(asked(*PAIRS)), stock.loglikelihood(asked(*PAIRS))
    assert sums(mine) == close(sums(theirs))
    assert [greedy for _, greedy in mine] == [greedy for _, greedy in theirs]
    texts = whole(TEXT, "The door is closed.")
    assert lm.loglikelihood_rolling(texts) == close(stock.loglikelihood_rolling(texts))


def test_rolling_takes_all_tokens_as_generated(loaded, vector) -> None:
    steer = replace(vector, positions="generated")
    (found,) = SallyAnneLM(loaded, steer).loglikelihood_rolling(whole(TEXT))
    assert found == close(by_hand(loaded, ("", TEXT), steer))
    assert abs(found - SallyAnneLM(loaded).loglikelihood_rolling(whole(TEXT))[0]) > 1e-2


TEXTS = (
    "At first the red agent is in the corridor. The door is closed. Where is the red agent now?",
    "Where is the white agent?",
    "The",
)
TOKENS = 6
SETTINGS = {"until": [], "max_gen_toks": TOKENS, "do_sample": False, "temperature": 0.0}


def said(*texts: str, **settings) -> list[Instance]:
    settings = SETTINGS | settings
    return [Instance("generate_until", {}, (text, settings), 0, ("task", 0, 1)) for text in texts]


@torch.inference_mode()
def plainly(loaded, inputs) -> list[str]:
    said = loaded.model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
    new = said[:, inputs["input_ids"].shape[1] :]
    return loaded.processor.tokenizer.batch_decode(new, skip_special_tokens=True)


def tokens(loaded, *texts: str):
    return loaded.processor.tokenizer(
        list(texts), padding=True, padding_side="left", return_tensors="pt"
    )


@pytest.mark.parametrize("positions", ["last_prompt", "generated", "last_prompt+generated", "all"])
def test_steered_replies_are_those_of_plain_generation_with_the_vector(
    loaded, vector, positions
) -> None:
    vector = replace(vector, positions=positions)
    lm = SallyAnneLM(loaded, vector)
    with vector.apply(loaded.model):
        wanted = plainly(loaded, tokens(loaded, *TEXTS))
    assert lm.generate_until(said(*TEXTS)) == wanted
    plain = plainly(loaded, tokens(loaded, *TEXTS))
    assert SallyAnneLM(loaded).generate_until(said(*TEXTS)) == plain
    assert SallyAnneLM(loaded, vector, 0).generate_until(said(*TEXTS)) == plain
    assert wanted != plain
