"""Models without a chat template: texts as they are, whatever the tokenizer puts around them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import BREAK
from sally_anne.models.prompts import open_prompt, process, reply_prompt

pytestmark = pytest.mark.integration

CORPUS = ["Sally puts the ball in the red box. Anne is in the garden.", "Mary has the basket."] * 9
# Class, marks, and what the tokenizer puts around a text: as Qwen2, Llama and Gemma have it, the
# last with an end that Gemma's can have.
BASES = {
    "qwen2": ([], ""),
    "llama": (["<unk>", "<s>", "</s>"], "<s> $A"),
    "gemma3_text": (["<pad>", "<eos>", "<bos>"], "<bos> $A <eos>"),
}
PIECES = ["Mary", " ", "box", "the", ".", "\n", "é", "猫", "<", "s>", "x", "  ", "Anne ", "\t", "?"]
texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)


def save_base(name: str, folder: Path) -> Path:
    """A random model of a class with a tokenizer made here: byte-level, or as sentencepiece's."""
    marks, around = BASES[name]
    made = Tokenizer(BPE(byte_fallback=bool(marks)))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if marks:
        made.normalizer = normalizers.Replace(" ", "▁")
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        steps = (decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse())
        made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
        alphabet, marks = [], [*marks, *(f"<0x{i:02X}>" for i in range(256))]
    else:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=marks, show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    if around:
        ids = [(mark, made.token_to_id(mark)) for mark in around.split() if mark != "$A"]
        made.post_processor = TemplateProcessing(single=around, special_tokens=ids)
    named = {m.strip("<>/"): m for m in BASES[name][0]}
    special = {"bos": named.get("bos") or ("<s>" if marks else None), "unk": named.get("unk")}
    special |= {"eos": "<eos>" if "eos" in named else "</s>" if marks else None}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, **{f"{role}_token": mark for role, mark in special.items() if mark}
    )
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": len(tokenizer)}
    sizes |= {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=BASES)
def base(request: pytest.FixtureRequest, tmp_path_factory) -> LoadedModel:
    return load_model(str(save_base(request.param, tmp_path_factory.mktemp(request.param))))


def test_a_raw_prompt_is_the_text_and_its_last_token_the_texts_own(base: LoadedModel) -> None:
    own = transformers.AutoTokenizer.from_pretrained(base.location)
    ends = {own.eos_token_id} if "<eos>" in own.get_vocab() else set()

    @settings(max_examples=200, deadline=None)
    @given(texts, texts)
    def holds(text: str, other: str) -> None:
        cut = (own(t, split_special_tokens=True)["input_ids"] for t in (text, other))
        expected = [[i for i in ids if i not in ends] for ids in cut]
        prompts = [open_prompt(base, text, False), reply_prompt(base, other, False)]
        assert [prompt.replace(BREAK, "") for prompt in prompts] == [text, other]
        inputs = process(base, prompts, None)
        for ids, mask, want in zip(*inputs.values(), expected, strict=True):
            assert ids[mask == 1].tolist() == want and mask[-1] == 1

    assert (base.prompt, base.changes, base.identity.prompt) == ("raw", {"prompt": "raw"}, "raw")
    holds()
    chat = [{"role": "user", "content": "Mary"}, {"role": "assistant", "content": " the box"}]
    assert open_prompt(base, chat, False) == "Mary\n\n the box"
