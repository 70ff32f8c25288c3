"""The place where a statement ends, in the layouts of published models, whatever its words are."""

from __future__ import annotations

import datetime
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import peft
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing

import sally_anne as sa
from sally_anne.core import hub
from sally_anne.core.errors import ModelError
from sally_anne.core.folder import RUN_FILE
from sally_anne.hooks.identity import ModelIdentity
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.options import ModelOptions
from sally_anne.models.processor import Unknown, unknown_words
from sally_anne.models.prompts import encode, open_prompt, reply_prompt

pytestmark = pytest.mark.integration

# How a turn of each role is written, as the models of the catalogue have it: before and after.
LAYOUTS = {
    "chatml": ("<|im_start|>{role}\n", "<|im_end|>\n"),
    "llama3": ("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>"),
    "gemma": ("<start_of_turn>{role}\n", "<end_of_turn>\n"),
    "mistral": ("[INST] ", "[/INST]"),
    "llava": ("{role}: ", " "),
}
# Words that stand in the marks, and letters of options.
HARD = ["end", "d", "e", "i", "n", "_", "|", "<", ">", "im", "im_end", "turn", "of", "eot", "id"]
HARD += ["INST", "I", "/", "user", "assistant", "a", "b", "C", " ", "\n", ".", "é", "猫", "{{ x }}"]
texts = st.lists(st.sampled_from(HARD), min_size=1, max_size=6).map("".join)


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Callable[..., LoadedModel]:
    """Opens a random Llama of the shipped vocabulary with a chat template of one's own."""
    folder = tmp_path_factory.mktemp("llama")
    tokenizer = load_model("tiny-qwen2-vl").processor.tokenizer
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": len(tokenizer)}
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)

    def make(template: str) -> LoadedModel:
        (folder / "chat_template.jinja").write_text(template)
        return load_model(str(folder))

    return make


def template(name: str, content: str = "m['content']") -> str:
    before, after = (part.replace("{role}", "{{ m['role'] }}") for part in LAYOUTS[name])
    opened = "{% if add_generation_prompt %}OPEN{% endif %}"
    return f"{{% for m in messages %}}{before}{{{{ {content} }}}}{after}{{% endfor %}}{opened}"


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_prompt_ends_with_the_statement_in_every_layout(reader, name: str) -> None:
    loaded = reader(template(name))
    before = LAYOUTS[name][0]

    @settings(max_examples=200, deadline=None)
    @given(st.lists(texts, min_size=1, max_size=3))
    def holds(said: list[str]) -> None:
        roles = ("user", "assistant", "user")
        chat = [{"role": r, "content": t} for r, t in zip(roles, said, strict=False)]
        expected = "".join(
            before.format(role=turn["role"]) + turn["content"] + LAYOUTS[name][1] for turn in chat
        )
        assert open_prompt(loaded, chat, False) == expected.removesuffix(LAYOUTS[name][1])

    holds()


def test_a_template_that_trims_is_read_and_one_that_rewrites_is_refused(reader) -> None:
    trims = reader(template("chatml", "m['content'] | trim"))
    assert open_prompt(trims, " end ", False).endswith("user\nend")
    rewrites = reader(template("chatml", "m['content'] | upper"))
    with pytest.raises(ModelError, match="'Belief: end'"):
        open_prompt(rewrites, "Belief: end", False)


def test_a_run_that_goes_on_tomorrow_tells_the_day_on_which_it_began(reader, tmp_path) -> None:
    loaded = reader("{% set f = '%d %b %Y' %}{{ strftime_now(f) }} " + template("chatml"))
    day = datetime.date.today()
    assert loaded.changes["date"] == day.isoformat()
    assert reply_prompt(loaded, "red", False).startswith(f"{day:%d %b %Y} ")

    class Options(ModelOptions):
        folder = tmp_path

    (tmp_path / RUN_FILE).write_text(json.dumps({"kind": "a run", "begun": "2026-01-05"}))
    later = load_model(**Options(model=loaded.location).opening())
    assert reply_prompt(later, "red", False).startswith("05 Jan 2026 ")
    assert later.changes["date"] == "2026-01-05"
    assert "date" not in reader(template("chatml")).changes


@pytest.fixture
def adapted(reader, tmp_path) -> tuple[Path, Path, LoadedModel]:
    """A model's folder, that of a LoRA adapter for it, and the model."""
    base = reader(template("chatml"))
    torch.manual_seed(1)
    config = peft.LoraConfig(
        r=4, lora_alpha=64, target_modules=["v_proj", "o_proj"], init_lora_weights=False
    )
    model = transformers.LlamaForCausalLM.from_pretrained(base.location)
    peft.get_peft_model(model, config).save_pretrained(tmp_path / "adapter")
    return Path(base.location), tmp_path / "adapter", base


def states(loaded: LoadedModel) -> torch.Tensor:
    """Activations of one prompt."""
    words = ["the red agent", "the blue agent", "the green agent"]
    samples = sa.samples(words, {"fits": [True, False, True]}, list("abc"))
    return torch.as_tensor(sa.extract(loaded, samples).x)


def test_an_adapter_is_merged_wherever_it_lies(adapted, tmp_path) -> None:
    folder, adapter, base = adapted
    both = tmp_path / "both"
    both.mkdir()
    for path in (*folder.iterdir(), *adapter.glob("adapter_*")):
        (both / path.name).write_bytes(path.read_bytes())
    given = load_model(str(folder), adapter=str(adapter))
    opened = [given, load_model(str(both)), load_model(str(adapter))]
    plain = transformers.LlamaForCausalLM.from_pretrained(folder)
    merged = peft.PeftModel.from_pretrained(plain, adapter).merge_and_unload().state_dict()
    for loaded in opened:
        for name, weight in loaded.model.state_dict().items():
            assert torch.equal(weight, merged[name]), name
        assert loaded.identity.fingerprint == given.identity.fingerprint
        assert loaded.identity.fingerprint != base.identity.fingerprint
        assert loaded.changes["adapter"]
    assert not torch.allclose(states(given), states(base))
    # What it lacks would stay random, and what the model lacks would be dropped.
    stored = load_file(adapter / "adapter_model.safetensors")
    for old, new in (("layers.0", "layers.7"), ("base_model.model.", "")):
        odd = {name.replace(old, new): weight for name, weight in stored.items()}
        save_file(odd, adapter / "adapter_model.safetensors")
        with pytest.raises(ModelError, match="of one of them alone"):
            _ = load_model(str(folder), adapter=str(adapter)).model
    # A model to which peft's own wrapper was given is another one, too.
    save_file(stored, adapter / "adapter_model.safetensors")
    wrapped = peft.PeftModel.from_pretrained(plain, adapter)
    assert ModelIdentity.of_module(wrapped).fingerprint != base.identity.fingerprint


def test_without_peft_an_adapter_is_refused_by_name(adapted, monkeypatch) -> None:
    folder, adapter, _ = adapted
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for options in ({"name": str(adapter)}, {"name": str(folder), "adapter": str(adapter)}):
        with pytest.raises(ModelError, match="peft"):
            load_model(**options)


def test_a_vector_of_other_weights_is_refused_in_python(adapted) -> None:
    folder, adapter, base = adapted
    samples = sa.samples(
        ["the red agent", "the blue agent"] * 6, {"fits": [True, False] * 6}, list("abcdef") * 2
    )
    x = sa.extract(base, samples)
    probes = sa.HeadProbes(c=1).fit(x.train, label="fits")
    probes.rank(x.validation)
    vector = probes.to_vector(k=2)
    other = load_model(str(folder), adapter=str(adapter))
    with vector.apply(base):
        pass
    with pytest.raises(ModelError, match="another model"):
        vector.apply(other)
    with vector.apply(other, allow_mismatch=True):
        pass
    with pytest.warns(UserWarning, match="nothing was steered"):
        vector.apply(base)


def test_a_hub_that_does_not_answer_is_named_at_once(monkeypatch) -> None:
    monkeypatch.setattr(hub, "answers", lambda: False)
    with pytest.raises(ModelError, match="hf download Qwen/Qwen2-VL-7B-Instruct"):
        load_model("qwen2-vl")


LONG = "There are three rooms. The door is closed. Belief: The red agent is now in the blue room."
SHORT = "Belief: The red agent is now in the green room."


class Sampling:
    """A video processor that drops frames of some clips, whatever it is asked."""

    def __init__(self, wrapped, clips: tuple[int, ...]) -> None:
        self.wrapped, self.clips = wrapped, clips

    def __call__(self, videos, **options):
        kept = [v[::2] if i in self.clips else v for i, v in enumerate(videos)]
        return self.wrapped(videos=kept, **options)

    def __getattr__(self, name: str):
        return getattr(self.wrapped, name)


def frames_in(inputs) -> list[int]:
    if "video_grid_thw" in inputs:
        return [2 * int(t) for t in inputs["video_grid_thw"][:, 0]]
    return [inputs["pixel_values_videos"].shape[1]] * len(inputs["pixel_values_videos"])


def kept(family: str) -> int:
    """Qwen2-VL pads seven frames to four pairs."""
    return 8 if family == "qwen2-vl" else 7


def tokens(loaded, row) -> list[str]:
    return loaded.processor.tokenizer.convert_ids_to_tokens(row.tolist())


def test_settings_that_sample_frames_are_overruled(fresh, clips) -> None:
    fresh.processor.video_processor.do_sample_frames = True
    fresh.processor.video_processor.num_frames = 4
    inputs = encode(fresh, [open_prompt(fresh, SHORT, True)], clips[:1])
    assert frames_in(inputs) == [kept(fresh.family.name)]


def test_a_processor_that_drops_frames_is_refused(fresh, clips) -> None:
    fresh.processor.video_processor = Sampling(fresh.processor.video_processor, (0,))
    message = rf"kept \[4\] frames of \[{kept(fresh.family.name)}\]"
    with pytest.raises(ModelError, match=message):
        encode(fresh, [open_prompt(fresh, SHORT, True)], clips[:1])


@pytest.mark.parametrize("video", [True, False])
def test_open_prompt_ends_with_the_statements_full_stop(loaded, clips, video: bool) -> None:
    prompts = [open_prompt(loaded, text, video) for text in (LONG, SHORT)]
    assert [p.endswith(t) for p, t in zip(prompts, (LONG, SHORT), strict=True)] == [True, True]
    inputs = encode(loaded, prompts, clips if video else None)
    for row, colour in zip(inputs["input_ids"], ("blue", "green"), strict=True):
        assert tokens(loaded, row)[-3:] == [colour, "room", "."]
    assert inputs["attention_mask"][:, -1].tolist() == [1, 1]


def test_reply_prompt_opens_the_assistants_turn(loaded) -> None:
    header = {"qwen2-vl": "<|im_end|>\n<|im_start|>assistant\n", "llava-next-video": " ASSISTANT:"}
    for video in (True, False):
        prompt = reply_prompt(loaded, SHORT, video)
        assert prompt.endswith(SHORT + header[loaded.family.name])
        assert prompt.count("video") == (1 if video else 0)


@pytest.mark.parametrize("in_template", [True, False])
def test_there_is_one_first_token(fresh, in_template: bool) -> None:
    tokenizer = fresh.processor.tokenizer
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    if in_template:
        fresh.processor.chat_template = "{{ bos_token }}" + fresh.processor.chat_template
    inputs = encode(fresh, [open_prompt(fresh, text, False) for text in (LONG, SHORT)], None)
    count = (inputs["input_ids"] == tokenizer.bos_token_id).sum(dim=1)
    assert count.tolist() == [1, 1]


def test_words_that_the_tokenizer_does_not_know_are_counted(loaded) -> None:
    known = "The red agent is in the blue room ."
    texts = [known, known, "The Giraffe is in the room .", "A zebra , a\x1b giraffe .", "zebra"]
    found = unknown_words(loaded, texts)
    assert found == Unknown(
        prompts=3, of=5, tokens=5, examples=("Giraffe", "zebra", "\x1b", "giraffe")
    )
    assert unknown_words(loaded, [known]) == Unknown(0, 1, 0, ())
