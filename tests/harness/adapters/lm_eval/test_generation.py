"""Replies are those of plain generation, steered or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance
from lm_eval.models.hf_vlms import HFMultimodalLM
from PIL import Image

from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters.lm_eval.model import SallyAnneLM
from sally_anne.harness.adapters.lm_eval.requests import Context, clip_mark, place_clip
from sally_anne.harness.adapters.questions import MARK
from sally_anne.harness.model import token_inputs
from sally_anne.models.prompts import encode, reply_prompt

pytestmark = pytest.mark.plugins

TEXTS = (
    "At first the red agent is in the corridor. The door is closed. Where is the red agent now?",
    "Where is the white agent?",
    "The",
)
TOKENS = 6
SETTINGS = {"until": [], "max_gen_toks": TOKENS, "do_sample": False, "temperature": 0.0}


def asked(*texts: str, visuals=None, **settings) -> list[Instance]:
    extra = () if visuals is None else ({"visual": visuals},)
    settings = SETTINGS | settings
    return [
        Instance("generate_until", {}, (text, settings, *extra), 0, ("task", 0, 1))
        for text in texts
    ]


def pictures(count: int) -> list[Image.Image]:
    drawn = np.random.default_rng(0).integers(0, 256, (count, 84, 84, 3), dtype=np.uint8)
    return [Image.fromarray(frame) for frame in drawn]


@torch.inference_mode()
def plainly(loaded, inputs) -> list[str]:
    said = loaded.model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
    new = said[:, inputs["input_ids"].shape[1] :]
    return loaded.processor.tokenizer.batch_decode(new, skip_special_tokens=True)


def tokens(loaded, *texts: str):
    return token_inputs(loaded, [loaded.processor.tokenizer(text)["input_ids"] for text in texts])


@pytest.mark.parametrize("positions", ["last_prompt", "generated", "last_prompt+generated", "all"])
def test_steered_replies_are_those_of_plain_generation_with_the_vector(
    loaded, vector, positions
) -> None:
    vector = replace(vector, positions=positions)
    lm = SallyAnneLM(loaded, vector)
    with vector.apply(loaded.model):
        wanted = plainly(loaded, tokens(loaded, *TEXTS))
    assert lm.generate_until(asked(*TEXTS)) == wanted
    plain = plainly(loaded, tokens(loaded, *TEXTS))
    assert SallyAnneLM(loaded).generate_until(asked(*TEXTS)) == plain
    assert SallyAnneLM(loaded, vector, 0).generate_until(asked(*TEXTS)) == plain
    assert wanted != plain


def test_pictures_become_one_clip(loaded, vector) -> None:
    shown = pictures(4)
    lm = SallyAnneLM(loaded, vector)
    prompt = lm.apply_chat_template([{"role": "user", "content": MARK * 4 + TEXTS[0]}])
    inputs = encode(
        loaded, [reply_prompt(loaded, TEXTS[0], video=True)], [Context("", (), tuple(shown)).clip]
    )
    assert place_clip(prompt, clip_mark(loaded), 4) == reply_prompt(loaded, TEXTS[0], video=True)
    with vector.apply(loaded.model):
        wanted = plainly(loaded, inputs)
    assert lm.generate_until(asked(prompt, visuals=shown)) == wanted
    other = lm.generate_until(asked(prompt, visuals=pictures(5)[1:]))
    assert wanted != other or wanted != lm.generate_until(asked(TEXTS[0]))


def test_batch_equals_single(loaded, vector) -> None:
    mixed = [*asked(*TEXTS), *asked(MARK + TEXTS[1], visuals=pictures(1))]
    mixed += [*asked(MARK * 2 + TEXTS[1], visuals=pictures(2)), *asked(TEXTS[0], max_gen_toks=2)]
    together = SallyAnneLM(loaded, vector, batch_size=3).generate_until(mixed)
    alone = SallyAnneLM(loaded, vector, batch_size=1)
    assert together == [alone.generate_until([request])[0] for request in mixed]


def test_replies_are_cut_before_stop_strings(loaded) -> None:
    lm = SallyAnneLM(loaded)
    whole = lm.generate_until(asked(*TEXTS))
    stop = whole[0].split()[2]
    found = lm.generate_until(asked(*TEXTS, until=[stop, ""]))
    assert found == [text.split(stop)[0] for text in whole] and found != whole
    assert lm.generate_until(asked(*TEXTS, until=stop)) == found


def test_a_special_token_may_be_a_stop_string(loaded, monkeypatch) -> None:
    """A model that says a special token is done there."""
    tokenizer = loaded.processor.tokenizer
    stop = "<|vision_end|>"
    said = []

    def forced(module, args, logits):
        logits = logits.clone()
        wanted = tokenizer.convert_tokens_to_ids("red" if len(said) < 1 else stop)
        said.append(wanted)
        logits[..., wanted] = 1e4
        return logits

    handle = loaded.model.lm_head.register_forward_hook(forced)
    try:
        found = SallyAnneLM(loaded).generate_until(asked(TEXTS[1], until=[stop]))
    finally:
        handle.remove()
    assert found == ["red"] and len(said) == 2


@pytest.mark.parametrize("max_length", [None, 16])
def test_lm_evals_own_driver_says_the_same(loaded, max_length) -> None:
    stock = HFMultimodalLM(
        pretrained=loaded.source, device="cpu", dtype="float32", max_length=max_length
    )
    lm = SallyAnneLM(loaded, max_length=max_length)
    requests = asked(*TEXTS, until=["."])
    assert lm.generate_until(requests) == stock.generate_until(requests)


def test_what_is_not_greedy_is_refused(loaded) -> None:
    lm = SallyAnneLM(loaded)
    for settings, message in (
        ({"temperature": 0.7}, "decoding is greedy, but temperature is 0.7"),
        ({"temperature": None, "do_sample": True}, "do_sample True"),
        ({"num_beams": 4}, "num_beams is 4, not 1"),
        ({"repetition_penalty": 1.2}, "'repetition_penalty' is not supported"),
        ({"temperature": "warm"}, "temperature must be a finite number, is 'warm'"),
        ({"max_gen_toks": 0}, "max_gen_toks must be a whole number from 1 on, is 0"),
        ({"until": [3]}, "until must be a string or a list"),
    ):
        with pytest.raises(HarnessError, match=message):
            lm.generate_until(asked("Where?", **settings))


def test_pictures_and_their_marks_must_agree(loaded) -> None:
    lm = SallyAnneLM(loaded)
    with pytest.raises(HarnessError, match="it has 1 for 2"):
        lm.generate_until(asked(f"{MARK}Where?", visuals=pictures(2)))
    with pytest.raises(HarnessError, match="must give PIL pictures, not str"):
        lm.generate_until(asked(f"{MARK}Where?", visuals=["picture.png"]))
    with pytest.raises(HarnessError, match="do not hear"):
        lm.generate_until([Instance("", {}, ("Where?", SETTINGS, {"audio": [0]}), 0)])
