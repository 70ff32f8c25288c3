"""Trains a LoRA adapter with which a published model answers belief questions: the recipe.

Plain stories of :mod:`sally_anne.data.datasets` with more plots, and GridToM's in words. Every
story is read once, with several questions behind it that do not see each other; the loss is on the
first token of their answers alone. So are belief, reality and the place at first asked of the same
words, and of people who know and who do not: no habit answers them all.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from sally_anne.core.errors import ModelError
from sally_anne.data.datasets import ASKED, PLOTS, Lists, Question, part, stories
from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.narration import question_of
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.stories import StoryRecord, context_text
from sally_anne.experiments.train_tiny.train import Training

# For training alone, as PLOTS are written: in false and in true belief.
MORE_PLOTS = {
    "returns": (
        "{a} leaves the {room}. {move} {a} comes back.",
        "{a} leaves the {room}. {a} comes back. {move}",
    ),
    "walks": ("{a} goes for a walk. {move}", "{move} {a} goes for a walk."),
    "upstairs": ("{a} walks upstairs. {move}", "{move} {a} walks upstairs."),
    "eyes": ("{a} closes both eyes. {move}", "{move} {a} closes both eyes."),
    "watches": ("{c} watches and {a} looks away. {move}", "{a} watches and {c} looks away. {move}"),
    "awake": ("{a} sleeps and {c} is awake. {move}", "{c} sleeps and {a} is awake. {move}"),
    "notices": (
        "{move} {c} notices it and {a} does not.",
        "{move} {a} notices it and {c} does not.",
    ),
    "told": (
        "{a} and {c} go out. {move} {b} tells {c} about it, but not {a}.",
        "{a} and {c} go out. {move} {b} tells {a} about it, but not {c}.",
    ),
    "reads": (
        "{a} and {c} go home. {move} {c} reads a note about it. {a} never reads it.",
        "{a} and {c} go home. {move} {a} reads a note about it. {c} never reads it.",
    ),
    "learns": (
        "{a} and {c} walk away. {move} Later {c} learns this. {a} does not learn this.",
        "{a} and {c} walk away. {move} Later {a} learns this. {c} does not learn this.",
    ),
    "outside": (
        "{a} waits outside while {c} waits inside. {move}",
        "{c} waits outside while {a} waits inside. {move}",
    ),
}
# In these the third person is there all the time.
ALWAYS = ("leaves", "sleeps", "calls", "returns", "walks", "upstairs", "eyes")
# Seeds of the GridToM stories for training; what those of seed 0 say is tested.
GRIDS = range(1, 7)
KINDS = ("TB", "FB", "reality", "initial")
# Stories a step; steps between two looks at held-out stories, how many, and where training stops:
# where TB and FB are above it in both held-out sets.
STORIES = {"plain": 16, "gridtom": 4}
EVERY, LOOK, TARGET, RATE = 30, 48, 0.9, 1e-3


class Asked(NamedTuple):
    """A question on a story, its answer, and what it is about; ``kind`` is TB or FB of beliefs."""

    kind: str
    text: str
    answer: str


class Story(NamedTuple):
    text: str
    asked: list[Asked]
    plot: str


def plain(seed: int, lists: Lists) -> Iterator[Story]:
    """Stories in plain sentences without end; beliefs are asked of all three people in training."""
    rng, train = random.Random(f"adapter/{seed}"), lists == "train"
    plots = {name: PLOTS[name] for name in part(list(PLOTS), lists)}
    plots |= MORE_PLOTS if train else {}
    names = list(plots)
    while True:
        made = []
        for story in stories(240, rng.randrange(10**9), lists):
            plot = rng.choice(names)
            for condition in ("TB", "FB"):
                start, end = rng.sample(story.places, 2)
                w = {**story.words, "start": start, "end": end}
                opening, closing = (rng.sample((start, end), 2)[0] == start for _ in range(2))
                own = story._replace(plot=plot, opening=opening, closing=closing)
                believed = {"TB": end, "FB": start}
                third = "TB" if plot in ALWAYS or condition == "FB" else "FB"
                # Kind; form, and of whom it is asked; answer.
                ways: list[tuple[str, Question, str, str]]
                ways = [(condition, "belief", "a", believed[condition])]
                ways += [("reality", "reality", "a", end), ("initial", "initial", "a", start)]
                if train:
                    ways += [(f"third {third}", "belief", "c", believed[third])]
                    ways += [("mover TB", "belief", "b", end)]
                asked = [
                    Asked(kind, ASKED[form].format(**(w | {"a": w[who]})), answer)
                    for kind, form, who, answer in ways
                ]
                made.append(Story(own.text(condition, start, plots), asked, plot))
        rng.shuffle(made)
        yield from made


def grid(seed: int, split: str) -> Iterator[Story]:
    """GridToM's stories in words without end, those for training from maps of other seeds."""
    rng, tested = random.Random(f"adapter/grid/{seed}"), open_stories(None, 0)
    chosen = samples.choose_stories(tested)
    records = [tested.story(i) for i, name in chosen.items() if name == split]
    if split == "train":
        kept = {tested.identity(i).content for i, name in chosen.items() if name != "train"}
        records = [
            of_seed.story(i)
            for of_seed in (open_stories(None, other) for other in GRIDS)
            for i, name in samples.choose_stories(of_seed).items()
            if name == "train" and of_seed.identity(i).content not in kept
        ]
    while True:
        made = [_grid(case, record, rng) for record in records for case in record.cases(1)]
        rng.shuffle(made)
        yield from made


def _grid(case: Any, record: StoryRecord, rng: random.Random) -> Story:
    rooms, (a, b) = (rng.sample(case.question.options, 2) for _ in range(2))
    real = question_of(case.cast, case.reality, 0)
    ways = [
        (case.condition, samples.belief_question(case, rooms), case.question.answer),
        ("reality", f"{real.question} Choose one: {a} or {b}.", real.answer),
        *(("initial", q.question, q.answer[0]) for q in record.initial[1:]),
    ]
    asked = [Asked(kind, f"Question: {words} Answer:", answer) for kind, words, answer in ways]
    return Story(context_text(record, case, "omniscient", "text"), asked, "gridtom")


class Batch(NamedTuple):
    """Stories with their questions: ``[B, T]``, the mask ``[B, 1, T, T]``, and Q questions."""

    ids: Tensor
    positions: Tensor
    mask: Tensor
    row: Tensor
    last: Tensor
    answer: Tensor
    kinds: list[str]


def batch_of(given: Sequence[Story], tokenizer: Any, dtype: torch.dtype) -> Batch:
    """Each question goes on from its story, and sees no other question."""
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    rows, asked = [], []
    for i, story in enumerate(given):
        ids = encode(story.text)
        n, positions, part = len(ids), list(range(len(ids))), [0] * len(ids)
        for j, question in enumerate(story.asked, 1):
            more = encode(f" {question.text}")
            ids, part = ids + more, part + [j] * len(more)
            positions += range(n, n + len(more))
            asked.append((i, len(ids) - 1, encode(f" {question.answer}")[0]))
        rows.append((ids, positions, part))
    longest = -(-max(len(ids) for ids, *_ in rows) // 16) * 16
    filled = [
        [r[k] + [pad] * (longest - len(r[k])) for r in rows] for k, pad in enumerate((0, 0, -1))
    ]
    tokens, places, parts = map(torch.tensor, filled)
    seen = (parts[:, :, None] == parts[:, None]) | (parts[:, None] == 0)
    seen &= torch.ones(longest, longest, dtype=torch.bool).tril()
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
    kinds = [question.kind for story in given for question in story.asked]
    row, last, answer = torch.tensor(asked).T
    return Batch(tokens, places, mask[:, None], row, last, answer, kinds)


def logits(model: Any, batch: Batch) -> Tensor:
    """Of what follows each question, float32 ``[Q, V]``."""
    how = {"position_ids": batch.positions, "attention_mask": batch.mask, "use_cache": False}
    hidden = model.model(input_ids=batch.ids, **how).last_hidden_state
    return model.lm_head(hidden[batch.row, batch.last]).float()


@torch.no_grad()
def evaluate(
    model: Any, tokenizer: Any, given: Sequence[Story], size: int = 16
) -> dict[str, float]:
    """Share of each kind of question whose answer is the likeliest of all tokens."""
    rows: list[tuple[str, bool]] = []
    for i in range(0, len(given), size):
        batch = batch_of(given[i : i + size], tokenizer, model.dtype)
        found = (logits(model, batch).argmax(-1) == batch.answer).tolist()
        rows += zip(batch.kinds, found, strict=True)
    return pd.DataFrame(rows).groupby(0)[1].mean().reindex(KINDS).dropna().to_dict()


def held_out(number: int, seed: int = 10**6, split: str = "validation") -> dict[str, list[Story]]:
    """Stories of people, things, places and plots that training has not, and of other maps."""
    found = {"plain": list(islice(plain(seed, "held-out"), number))}
    return found | {"gridtom": list(islice(grid(seed, split), number))}


@dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    """How the adapter is trained.

    Attributes:
        model: folder of the model.
        out: folder of the adapter; a run that was stopped goes on there.
        steps: at most so many, over which the learning rate falls to a tenth.
    """

    model: str
    out: Path
    steps: int = 340


def run(config: AdapterConfig) -> None:
    """Train, and write ``adapter_model.safetensors`` (bfloat16), its config, and ``log.jsonl``."""
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    how = {"dtype": torch.bfloat16, "attn_implementation": "eager"}
    model = AutoModelForCausalLM.from_pretrained(config.model, **how)
    modules = ["q_proj", "k_proj", "v_proj", "o_proj"]
    low = LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=modules)
    adapted = get_peft_model(model, low)
    weights = {n: p for n, p in adapted.named_parameters() if p.requires_grad}
    training = Training(weights, config.out, ",".join(STORIES), betas=(0.9, 0.98), weight_decay=0)
    done = training.progress["step"]
    given = {"plain": plain(0, "train"), "gridtom": grid(0, "train")}
    for name, number in STORIES.items():
        next(islice(given[name], done * number, done * number), None)
    unseen = held_out(LOOK)

    def looked() -> float:
        """The least share of right answers to belief questions."""
        found = {name: evaluate(model, tokenizer, some) for name, some in unseen.items()}
        line = json.dumps({"step": training.progress["step"], **found})
        print(line, flush=True)
        with (config.out / "log.jsonl").open("a") as file:
            print(line, file=file)
        return min(some[kind] for some in found.values() for kind in ("TB", "FB"))

    if not done:
        looked()
    for step in range(done + 1, config.steps + 1):
        losses = []
        for name, number in STORIES.items():
            batch = batch_of(list(islice(given[name], number)), tokenizer, model.dtype)
            loss = cross_entropy(logits(model, batch), batch.answer)
            loss.backward()
            losses.append(loss.item())
        if any(map(isnan, losses)):
            raise ModelError(f"the loss is no number at step {step}")
        rate = min(1.0, step / 10) * (1 - 0.9 * step / config.steps)
        training.step(RATE * rate, *(f"{loss:.4f}" for loss in losses))
        if step % EVERY == 0 or step == config.steps:
            right = looked()
            half = {k: v.bfloat16() for k, v in get_peft_model_state_dict(adapted).items()}
            adapted.save_pretrained(str(config.out))
            save_file(half, config.out / "adapter_model.safetensors", {"format": "pt"})
            training.keep()
            if right > TARGET:
                break


if __name__ == "__main__":
    import tyro

    run(tyro.cli(AdapterConfig))
