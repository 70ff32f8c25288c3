"""Replies are those of plain generation, steered or not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance
from lm_eval.models.hf_vlms import HFMultimodalLM

from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters.lm_eval.model import Context, SallyAnneLM, clip_mark, place_clip
from sally_anne.harness.adapters.questions import MARK
from sally_anne.harness.model import token_inputs
from sally_anne.models.prompts import encode, reply_prompt
from tests.harness.adapters.benchmarks import drawn_pictures as pictures

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


def test_replies_are_cut_before_stop_strings(loaded) -> None:
    lm = SallyAnneLM(loaded)
    whole = lm.generate_until(asked(*TEXTS))
    stop = whole[0].split()[2]
    found = lm.generate_until(asked(*TEXTS, until=[stop, ""]))
    assert found == [text.split(stop)[0] for text in whole] and found != whole
    assert lm.generate_until(asked(*TEXTS, until=stop)) == found


@pytest.mark.parametrize("max_length", [None, 16])
def test_lm_evals_own_driver_says_the_same(loaded, max_length) -> None:
    stock = HFMultimodalLM(
        pretrained=loaded.source, device="cpu", dtype="float32", max_length=max_length
    )
    lm = SallyAnneLM(loaded, max_length=max_length)
    requests = asked(*TEXTS, until=["."])
    assert lm.generate_until(requests) == stock.generate_until(requests)


def test_pictures_and_their_marks_must_agree(loaded) -> None:
    lm = SallyAnneLM(loaded)
    with pytest.raises(HarnessError, match="it has 1 for 2"):
        lm.generate_until(asked(f"{MARK}Where?", visuals=pictures(2)))
    with pytest.raises(HarnessError, match="only PIL pictures"):
        lm.generate_until(asked(f"{MARK}Where?", visuals=["picture.png"]))
    with pytest.raises(HarnessError, match="no sounds"):
        lm.generate_until([Instance("", {}, ("Where?", SETTINGS, {"audio": [0]}), 0)])
