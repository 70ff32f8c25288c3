"""Models without a chat template: texts as they are, whatever the tokenizer puts around them."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from sally_anne.cli import main
from sally_anne.core.console import Console
from sally_anne.core.errors import ModelError, ProbingError
from sally_anne.data.pairs import ContrastPair
from sally_anne.data.samples import Sample
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.tasks import load_items
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.identity import ModelIdentity
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import BREAK, raw_ids
from sally_anne.models.prompts import open_prompt, process, reply_prompt
from sally_anne.probing.interchange import answer_ids, effects_of, read_pair

gguf: Any = pytest.importorskip("gguf")
pytestmark = pytest.mark.integration

CORPUS = ["Sally puts the ball in the red box. Anne is in the garden.", "Mary has the basket."] * 9
# Class, marks, and what the tokenizer puts around a text: as Qwen2, Llama and Gemma have it, the
# last with an end that Gemma's can have.
BASES = {
    "qwen2": ([], ""),
    "llama": (["<unk>", "<s>", "</s>"], "<s> $A"),
    "gemma3_text": (["<pad>", "<eos>", "<bos>"], "<bos> $A <eos>"),
}
# More of which GGUF files say less than their config: head width, scale of queries, positions.
CLASSES = BASES | {"qwen3": BASES["qwen2"], "gemma2": BASES["gemma3_text"], "llama3": ([], "")}
CLASSES["gemma2_27b"] = BASES["gemma3_text"]
PIECES = ["Mary", " ", "box", "the", ".", "\n", "é", "猫", "<", "s>", "x", "  ", "Anne ", "\t", "?"]
texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)


def save_base(name: str, folder: Path) -> Path:
    """A random model of a class with a tokenizer made here: byte-level, or as sentencepiece's."""
    marks, around = CLASSES[name]
    made = Tokenizer(BPE(byte_fallback=bool(marks)))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if marks:
        made.normalizer = normalizers.Replace(" ", "▁")
        scheme = "first" if name == "llama" else "never"
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
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
    named = {m.strip("<>/"): m for m in CLASSES[name][0]}
    special = {"bos": named.get("bos") or ("<s>" if marks else None), "unk": named.get("unk")}
    special |= {"eos": "<eos>" if "eos" in named else "</s>" if marks else None}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, **{f"{role}_token": mark for role, mark in special.items() if mark}
    )
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": len(tokenizer)}
    sizes |= {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    sizes |= {"query_pre_attn_scalar": 8} if name.startswith("gemma") else {}
    if name == "gemma2_27b":  # whose scale is no head's width
        sizes |= {"num_hidden_layers": 46, "hidden_size": 64, "query_pre_attn_scalar": 16}
    if name == "llama3":
        rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 16.0, "low_freq_factor": 1.0}
        rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
        sizes |= {"rope_parameters": rope, "max_position_embeddings": 16384}
    torch.manual_seed(0)
    kind = "llama" if name == "llama3" else name.removesuffix("_27b")
    config = transformers.AutoConfig.for_model(kind, **sizes)
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


def as_gguf(folder: Path, file: Path) -> Path:
    """A saved base model in llama.cpp's format, its numbers as they are."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config, kind = model.config, model.config.model_type.removesuffix("_text")
    stretched = config.rope_parameters.get("rope_type") == "llama3"
    file.parent.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(file, kind)
    writer.add_name("made here")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(8)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(5e5 if stretched else 1e4)
    writer.add_vocab_size(config.vocab_size)
    made = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens, merges = tokenizer.convert_ids_to_tokens(range(len(tokenizer))), made["merges"]
    bytewise = not any(token == "<0x00>" for token in tokens)
    writer.add_tokenizer_model("gpt2" if bytewise else "llama")
    writer.add_token_list(tokens)
    kinds = {True: 6, False: 1} | dict.fromkeys(tokenizer.all_special_tokens, 3)
    writer.add_token_types([kinds.get(t, kinds[t.startswith("<0x")]) for t in tokens])
    if bytewise:
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_merges([" ".join(pair) for pair in merges])
    else:
        ranks = {"".join(pair): -float(i) for i, pair in enumerate(merges)}
        writer.add_token_scores([ranks.get(token, -1e4) for token in tokens])
        writer.add_bos_token_id(tokenizer.bos_token_id)
        writer.add_eos_token_id(tokenizer.eos_token_id)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[kind.upper()], config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if kind == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            # llama.cpp turns neighbours, transformers halves.
            weight = weight.unflatten(0, (-1, 2, 4)).transpose(1, 2).flatten(0, 2)
        if kind.startswith("gemma") and name.endswith("norm.weight"):
            weight = weight + 1
        if (known := names.get_name(name, (".weight", ".bias"))) is not None:
            writer.add_tensor(known, weight.contiguous().numpy())
    if stretched:
        turns = model.model.rotary_emb
        plain, _ = turns.compute_default_rope_parameters(config)
        writer.add_tensor("rope_freqs.weight", (plain / turns.inv_freq).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.mark.parametrize("name", CLASSES)
def test_a_gguf_file_is_the_model_that_it_was_written_from(name: str, tmp_path: Path) -> None:
    saved = load_model(str(save_base(name, tmp_path / "saved")))
    file = as_gguf(tmp_path / "saved", tmp_path / "made.gguf")
    found = load_model(str(file))
    assert (found.prompt, found.dtype, found.family) == ("raw", "float32", saved.family)
    said = ["Mary has the box.", "  Anne  is\n here", "猫 é x"]
    ids = [[raw_ids(one, text) for text in said] for one in (found, saved)]
    assert ids[0] == ids[1]
    for row in map(torch.tensor, zip(ids[0])):
        with torch.no_grad():
            assert torch.equal(found.model(row).logits, saved.model(row).logits)
    assert ModelIdentity.of_module(found.model).fingerprint == found.identity.fingerprint != ""
    found.model.save_pretrained(tmp_path / "again")
    assert load_model(str(tmp_path / "again"), processor=str(file)).dtype == "float32"


def test_the_commands_run_a_base_model_of_one_file(tmp_path: Path) -> None:
    file = as_gguf(save_base("qwen2", tmp_path / "saved"), tmp_path / "made.gguf")
    few = "--stories 16 --permutations 9 --pairs 2 --validation-pairs 2 --random-sets 3 --sizes 2"
    for task in ("ioi", "statements"):
        out = ["--model", str(file), "--out", str(tmp_path / task)]
        assert not main(["probe", "--task", task, *out, *few.split(), "--no-figures"])
        saved = json.loads((tmp_path / task / "config.json").read_text())
        assert (saved["config"]["prompt"], saved["config"]["setting"]) == ("raw", "text")
    own, line = tmp_path / "own.jsonl", {"question": "Who is it?", "options": ["Mary", "John"]}
    own.write_text(json.dumps(line | {"answer": "A"}))
    vector = ["--out", str(tmp_path / "vector")]
    assert not main(["steer", "--run", str(tmp_path / "ioi"), "--K", "2", "--alpha", "1", *vector])
    asked = ["--task", str(own), "--steer", vector[1], "--out", str(tmp_path / "asked")]
    assert not main(["evaluate", "--model", str(file), *asked])


def test_what_is_no_one_gguf_file_is_refused_by_name(tmp_path: Path, monkeypatch) -> None:
    file = as_gguf(save_base("llama", tmp_path / "saved"), tmp_path / "made" / "a.gguf")
    first = load_model(str(tmp_path / "made")).identity
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\1\0")
    assert load_model(str(file)).identity.difference(first).startswith("weights")
    with pytest.raises(ModelError, match="--quantization 8bit"):
        load_model(str(file), quantization="8bit")
    copied = load_model(shutil.copy(file, file.with_name("b.gguf"))).identity
    assert copied.fingerprint == load_model(str(file)).identity.fingerprint
    with pytest.raises(ModelError, match="2 GGUF files"):
        load_model(str(tmp_path / "made"))
    with pytest.raises(ModelError, match="no file .*c.gguf"):
        load_model(str(tmp_path / "made" / "c.gguf"))
    (tmp_path / "made" / "d.gguf").write_bytes(file.read_bytes()[:2000])
    with pytest.raises(ModelError, match="d.gguf"):
        load_model(str(tmp_path / "made" / "d.gguf"))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "gguf" else find(n))
    with pytest.raises(ModelError, match="the package gguf"):
        load_model(str(file))


@torch.no_grad()
def gains(loaded: LoadedModel, text: str, ending: str) -> tuple[list[int], torch.Tensor]:
    """Token ids of an ending after a text, and the log-probability of each, read plainly."""
    begun, whole = (raw_ids(loaded, part) for part in (text, text + ending))
    assert whole[: len(begun)] == begun
    said = loaded.model(torch.tensor([whole])).logits[0, len(begun) - 1 : -1].log_softmax(-1)
    own = torch.tensor(whole[len(begun) :])
    return own.tolist(), said.gather(1, own[:, None])[:, 0]


def test_answers_are_scored_by_the_first_token_that_differs(base: LoadedModel) -> None:
    texts = ["Anne puts the ball in", "Sally. Mary is in"]
    a, b = (Sample(f"s{i}", text, group="g", split="test") for i, text in enumerate(texts))
    found = find_geometry(base.model)
    every = torch.ones(1, found.n_layers, found.n_heads, dtype=torch.bool)
    for answers in ((" the red box.", "the red basket"), ("Mary", " John"), ("red", "box")):
        endings = [f" {answer.strip()}" for answer in answers]
        pair = ContrastPair((a, b), answers, "g")
        prompts = read_pair(base, pair, reply=True)
        for prompt, text in zip(prompts, texts, strict=True):
            (first, gain), (second, other) = (gains(base, text, ending) for ending in endings)
            n = next(
                i for i, both in enumerate(zip(first, second, strict=False)) if both[0] != both[1]
            )
            assert answer_ids(base, pair, text) == [first, second]
            assert prompt.answers[0] == (tuple(first[n:]), tuple(second[n:]))
            assert prompt.logit_diff[0] == pytest.approx(float(gain[n] - other[n]), abs=1e-4)
            assert prompt.whole[0] == pytest.approx(float(gain.sum() - other.sum()), abs=1e-4)
        effects = effects_of(base, [pair], True, every)
        assert effects.sets[0, 0] / effects.logit_diff[0] == pytest.approx(1, abs=1e-3)
    with pytest.raises(ProbingError, match="how the other begins"):
        read_pair(base, replace(pair, answers=(" red", "red box")), reply=True)


def test_a_base_model_is_asked_options_and_says_one_line(base: LoadedModel, tmp_path: Path) -> None:
    words = {"question": "Where is it?", "context": "Mary has the ball. "}
    lines = [{**words, "options": ["box", one], "answer": "A"} for one in ("basket", "red box")]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, lines)))
    how = {"task": str(tmp_path / "own.jsonl"), "options": True, "max_new_tokens": 12}
    config = EvalConfig(model=base.location, out=tmp_path / "run", **how)
    table = evaluate(config, console=Console(quiet=True))
    items = load_items(config).items
    for row, item in zip(table.itertuples(), items, strict=True):
        assert "\n" not in row.reply.lstrip()
        said = base.generate(item.text, max_new_tokens=12)
        assert row.reply == said[: len(said) - len(said.lstrip())] + said.lstrip().split("\n")[0]
    kept = [json.loads(line) for line in (tmp_path / "run" / "answers.jsonl").open()]
    assert kept[0]["about"]["prompt"] == "raw"
    for answer, item in zip(kept[1:], items, strict=True):
        expected = [float(gains(base, item.text, f" {o.label}")[1].sum()) for o in item.options]
        assert answer["option_log_probs"] == pytest.approx(expected, abs=1e-4)
