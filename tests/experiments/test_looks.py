"""Where heads look: each token's part, and shares that are those of whole attention matrices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sally_anne.core.console import Console
from sally_anne.data.pairs import ContrastPair
from sally_anne.data.samples import Sample
from sally_anne.experiments.config import LooksConfig
from sally_anne.experiments.looks import (
    ASKED,
    FIRST,
    LOST,
    MARKS,
    RANDOM,
    read_knocked_out,
    read_shares,
    run,
    summed_up,
    token_parts,
)
from sally_anne.hooks.edit import Redirect
from sally_anne.models.loading import load_model
from sally_anne.models.prompts import encode, open_prompt, reply_prompt
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.interchange import answer_ids
from sally_anne.probing.pipeline import run as probe

FILM = np.random.default_rng(0).integers(0, 255, (3, 84, 84, 3), dtype=np.uint8)
TEXT = "There are walls. 1. Ann goes.\n2. She sees! Question: Where is Ann? Choose one. Answer:"
SAID = {
    "sentence 1": "there are walls .",
    "sentence 2": "1 . <unk> goes .",
    "sentence 3": "2 . she sees !",
    ASKED: "question : where is <unk> ? choose one . answer :",
}
# Tokens of each step of the film.
STEPS = {"tiny-qwen2-vl": [4, 4], "tiny-llava-next-video": [49] * 3, "llama": []}
STEPS |= {"internvl": [4] * 3, "qwen3-vl": [9, 9]}


@pytest.mark.integration
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("layout", [open_prompt, reply_prompt])
def test_each_token_has_the_part_in_which_it_stands(name, layout, opened):
    loaded = load_model(name) if name.startswith("tiny") else opened(name)
    clips = [FILM] if STEPS[name] else None
    sample = Sample("a", TEXT, video=FILM if clips else None)
    prompt = layout(loaded, TEXT, bool(clips))
    ids = encode(loaded, [prompt], clips)["input_ids"][0].tolist()
    parts = token_parts(loaded, sample, prompt, ids)
    own = pd.Series(ids).groupby(parts, sort=False).agg(list)
    assert {part: loaded.processor.tokenizer.decode(own[part]) for part in SAID} == SAID
    assert [len(own[part]) for part in own.index if part.startswith("frame")] == STEPS[name]
    assert (own[FIRST], parts[0]) == (ids[:1], FIRST)
    assert (parts[-1] == MARKS) == (layout is reply_prompt)


@pytest.mark.integration
@torch.no_grad()
def test_shares_are_those_of_whole_matrices(tmp_path: Path):
    """Read on a shared beginning, and each by itself; and again, where a shard is lost."""
    loaded = load_model("tiny-qwen2-vl")
    texts = [f"There are walls. Belief: The green agent {end}." for end in ("sees", "is in a room")]
    samples = [
        Sample(f"s{n}", text, video=FILM, group="g", context="c", split="test")
        for n, text in enumerate(texts)
    ]
    names, shares = read_shares(loaded, samples, tmp_path / "one", "statement", 8)
    assert names == ["frames 1-2", "frame 3", "sentence 1", ASKED, MARKS, FIRST]
    apart = [replace(sample, context="") for sample in samples]
    found = read_shares(loaded, apart, tmp_path / "other", "statement", 8)[1]
    np.testing.assert_allclose(shares, found, atol=1e-5)
    loaded.model.set_attn_implementation("eager")
    for sample, own in zip(samples, shares, strict=True):
        prompt = open_prompt(loaded, sample.text, True)
        inputs = encode(loaded, [prompt], [FILM])
        whole = torch.stack(loaded.model(**inputs, output_attentions=True).attentions, 1)[0]
        parts = np.array(token_parts(loaded, sample, prompt, inputs["input_ids"][0].tolist()))
        for name, share in zip(names, own.transpose(2, 0, 1), strict=True):
            expected = whole[:, :, -1, parts == name].sum(-1)
            np.testing.assert_allclose(share, expected, atol=1e-5)
    (shard,) = (tmp_path / "one").glob("shard-*")
    before = shard.read_bytes()
    shard.unlink()
    loaded.model.set_attn_implementation("sdpa")
    with pytest.warns(UserWarning, match="computed again"):
        read_shares(loaded, samples, tmp_path / "one", "statement", 8)
    assert shard.read_bytes() == before


@pytest.mark.integration
@torch.no_grad()
def test_what_is_lost_is_what_whole_prompts_lose(tmp_path: Path):
    """Answers that begin alike are told apart by what follows; what was read is not read again."""
    loaded = load_model("tiny-qwen2-vl")
    films = FILM, FILM[::-1].copy()
    samples = [Sample(f"s{n}", TEXT, video=film, group="g") for n, film in enumerate(films)]
    pair = ContrastPair((samples[0], samples[1]), ("the red room", "the blue room"), "g")
    sets = torch.zeros(2, 8, 8, dtype=torch.bool)
    sets[0, 3:5, :4] = True
    asked = [pair], True, ["frame 3"], sets, tmp_path
    (whole,), ((lost,),) = read_knocked_out(loaded, *asked)
    unread: Any = SimpleNamespace(about=loaded.about)
    assert [x.tolist() for x in read_knocked_out(unread, *asked)] == [[whole], [[lost.tolist()]]]
    prompt, found = reply_prompt(loaded, TEXT, True), []
    (the, first, _), (_, second, _) = answer_ids(loaded, pair, prompt)
    for sample in samples:
        inputs = encode(loaded, [prompt], [sample.video])
        ids = inputs["input_ids"][0].tolist()
        away = torch.tensor([p == "frame 3" for p in token_parts(loaded, sample, prompt, ids)])
        for name, end in {"input_ids": the, "attention_mask": 1, "mm_token_type_ids": 0}.items():
            inputs[name] = torch.cat([inputs[name], torch.tensor([[end]])], 1)
        for chosen in (sets[1], sets[0]):
            with Redirect(loaded.model, chosen, away):
                logits = loaded.model(**inputs).logits[0, -1]
            found.append(float(logits[first] - logits[second]))
    expected = found[0] - found[2], found[0] - found[2] - found[1] + found[3], 0
    np.testing.assert_allclose([whole, *lost], expected, atol=1e-4)


def test_planted_looks_stand_above_random_sets():
    """Two of forty heads look at one frame, twice as long in the second version."""
    made = np.random.default_rng(0).uniform(0, 0.1, (12, 2, 40, 2))
    made[:, :, :2, 0] = [[0.4], [0.8]]
    names = ["TB", "FB"], ["best", *map(str, range(40))], ["frame 1", "frame 2"]
    table = summed_up(made, np.arange(12) % 4, names, LooksConfig(Path(), k=2))
    cells = table.set_index(["heads", "part", "side"])
    for side, share in {"TB": 0.4, "FB": 0.8, "FB - TB": 0.4}.items():
        own, random = cells.loc["best", "frame 1", side], cells.loc[RANDOM, "frame 1", side]
        assert own.tolist() == pytest.approx([share] * 3)
        assert random["high"] < share and random["low"] < random["share"] < random["high"]
        other, random = cells.loc["best", "frame 2", side], cells.loc[RANDOM, "frame 2", side]
        assert random["low"] < other["share"] < random["high"]


@pytest.mark.integration
def test_looks_of_a_finished_run(model_folder: Path, tmp_path: Path):
    quiet, folder = Console(quiet=True), tmp_path / "run"
    part = {"stories": 12, "figures": False, "permutations": 0, "patching": False}
    probe(ProbeConfig(model=str(model_folder), setting="video", out=folder, **part), quiet)
    for kind, sides in {"question": ["TB", "FB"], "statement": ["right", "wrong"]}.items():
        config = LooksConfig(folder, kind=kind, pairs=3, k=2, random_sets=5)
        table = run(config, quiet)
        pd.testing.assert_frame_equal(run(config, quiet), table)
        pd.testing.assert_frame_equal(pd.read_parquet(folder / f"looks/{kind}.parquet"), table)
        more = run(replace(config, knock_out=("frame 7", ASKED)), quiet)
        pd.testing.assert_frame_equal(more[more["side"] != LOST], table)
        assert more[more["side"] == LOST]["heads"].nunique() == 2
        sums = table.groupby(["side", "heads"])["share"].sum().unstack("side")
        np.testing.assert_allclose(sums[sides], 1, atol=1e-4)
        np.testing.assert_allclose(sums[f"{sides[1]} - {sides[0]}"], 0, atol=1e-4)
