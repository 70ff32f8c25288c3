"""Trains a LoRA adapter with which a published model answers belief questions: the recipe.

Plain stories of :mod:`sally_anne.data.datasets` with more plots, and GridToM's in words. Every
story is read once, with several questions behind it that do not see each other; the loss is on the
first token of their answers alone. So are belief, reality and the place at first asked of the same
words, and of people who know and who do not: no habit answers them all.
"""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from sally_anne.core.errors import ModelError
from sally_anne.data.datasets import ASKED, PLOTS, Lists, part, stories
from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.narration import question_of
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.stories import StoryRecord, context_text

# For training alone, as PLOTS are told: in false and in true belief.
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


class Asked(NamedTuple):
    """A question on a story, its answer, and what it is about; ``kind`` is TB or FB of beliefs."""

    kind: str
    text: str
    answer: str


class Told(NamedTuple):
    """A story, of a plot or of GridToM, and its questions."""

    text: str
    asked: list[Asked]
    plot: str


def plain(seed: int, lists: Lists) -> Iterator[Told]:
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
                asked = [
                    Asked(condition, ASKED["belief"].format(**w), believed[condition]),
                    Asked("reality", ASKED["reality"].format(**w), end),
                    Asked("initial", ASKED["initial"].format(**w), start),
                ]
                if train:
                    of_third = ASKED["belief"].format(**(w | {"a": w["c"]}))
                    of_mover = ASKED["belief"].format(**(w | {"a": w["b"]}))
                    asked += [
                        Asked(f"third {third}", of_third, believed[third]),
                        Asked("mover TB", of_mover, end),
                    ]
                made.append(Told(own.text(condition, start, plots), asked, plot))
        rng.shuffle(made)
        yield from made


def grid(seed: int, split: str) -> Iterator[Told]:
    """GridToM's stories in words without end, those for training from maps of other seeds."""
    rng, records = random.Random(f"adapter/grid/{seed}"), list(_records(split))
    while True:
        made = [told for record in records for told in _grid(record, rng)]
        rng.shuffle(made)
        yield from made


def _records(split: str) -> Iterator[StoryRecord]:
    tested = open_stories(None, 0)
    chosen = samples.choose_stories(tested)
    if split != "train":
        yield from (tested.story(i) for i, name in chosen.items() if name == split)
        return
    kept = {tested.identity(i).content for i, name in chosen.items() if name != "train"}
    for seed in GRIDS:
        of_seed = open_stories(None, seed)
        for i, name in samples.choose_stories(of_seed).items():
            if name == "train" and of_seed.identity(i).content not in kept:
                yield of_seed.story(i)


def _grid(record: StoryRecord, rng: random.Random) -> Iterator[Told]:
    for case in record.cases(1):
        rooms = [rng.sample(case.question.options, 2) for _ in range(2)]
        real = question_of(case.cast, case.reality, 0)
        ways = (
            (case.condition, samples.belief_question(case, rooms[0]), case.question.answer),
            (
                "reality",
                f"{real.question} Choose one: {rooms[1][0]} or {rooms[1][1]}.",
                real.answer,
            ),
            *(("initial", q.question, q.answer[0]) for q in record.initial[1:]),
        )
        asked = [Asked(kind, f"Question: {words} Answer:", answer) for kind, words, answer in ways]
        yield Told(context_text(record, case, "omniscient", "text"), asked, "gridtom")


class Batch(NamedTuple):
    """Stories with their questions: ``[B, T]``, the mask ``[B, 1, T, T]``, and Q questions."""

    ids: Tensor
    positions: Tensor
    mask: Tensor
    row: Tensor
    last: Tensor
    answer: Tensor
    kinds: list[str]


def batch_of(told: Sequence[Told], tokenizer: Any, dtype: torch.dtype) -> Batch:
    """Each question goes on from its story, and sees no other question."""
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    rows, asked = [], []
    for i, story in enumerate(told):
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
    kinds = [question.kind for story in told for question in story.asked]
    row, last, answer = torch.tensor(asked).T
    return Batch(tokens, places, mask[:, None], row, last, answer, kinds)


def logits(model: Any, batch: Batch) -> Tensor:
    """Of what follows each question, float32 ``[Q, V]``."""
    how = {"position_ids": batch.positions, "attention_mask": batch.mask, "use_cache": False}
    hidden = model.model(input_ids=batch.ids, **how).last_hidden_state
    return model.lm_head(hidden[batch.row, batch.last]).float()


@torch.no_grad()
def evaluate(model: Any, tokenizer: Any, told: Sequence[Told], size: int = 16) -> dict[str, float]:
    """Share of each kind of question whose answer is the likeliest of all tokens."""
    right = defaultdict(list)
    for i in range(0, len(told), size):
        batch = batch_of(told[i : i + size], tokenizer, model.dtype)
        found = (logits(model, batch).argmax(-1) == batch.answer).tolist()
        for kind, one in zip(batch.kinds, found, strict=True):
            right[kind].append(one)
    return {kind: sum(right[kind]) / len(right[kind]) for kind in KINDS if right[kind]}


def held_out(number: int, seed: int = 10**6, split: str = "validation") -> dict[str, list[Told]]:
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
        every: steps between two looks at held-out stories and two saves.
        target: stops where TB and FB are above it in both held-out sets.
        plain, grid: stories a step, in plain sentences and of GridToM.
        rank: of the adapter, on all projections of attention.
    """

    model: str
    out: Path
    steps: int = 600
    every: int = 50
    target: float = 0.95
    plain: int = 16
    grid: int = 4
    rank: int = 4
    learning_rate: float = 1e-3
    seed: int = 0
    look: int = 96


def run(config: AdapterConfig) -> None:
    """Train, and write ``adapter_model.safetensors`` (bfloat16), its config, and ``log.jsonl``."""
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(config.seed)
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    how = {"dtype": torch.bfloat16, "attn_implementation": "eager"}
    model = AutoModelForCausalLM.from_pretrained(config.model, **how)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    rank, scale = config.rank, 2 * config.rank
    lora = LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=scale, target_modules=targets)
    adapted = get_peft_model(model, lora)
    weights = {n: p for n, p in adapted.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(
        weights.values(), config.learning_rate, (0.9, 0.98), weight_decay=0
    )
    config.out.mkdir(parents=True, exist_ok=True)
    state, log = config.out / "training.safetensors", config.out / "log.jsonl"
    done = 0
    if state.exists():
        kept = load_file(state)
        done = int(kept.pop("step"))
        for name, weight in weights.items():
            weight.data.copy_(kept[name])
            optimizer.state[weight] = {
                key: kept[f"{name}/{key}"] for key in ("step", "exp_avg", "exp_avg_sq")
            }
    told = (plain(config.seed, "train"), grid(config.seed, "train"))
    for source, number in zip(told, (config.plain, config.grid), strict=True):
        next(islice(source, done * number, done * number), None)
    unseen, began = held_out(config.look), time.time()
    losses: dict[str, list[float]] = defaultdict(list)

    def looked(step: int) -> dict[str, dict[str, float]]:
        found = {name: evaluate(model, tokenizer, some) for name, some in unseen.items()}
        row: dict[str, Any] = {"step": step, "seconds": round(time.time() - began)}
        row |= {name: round(sum(some) / len(some), 4) for name, some in losses.items()} | found
        losses.clear()
        print(json.dumps(row), flush=True)
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return found

    if not done:
        looked(0)
    for step in range(done + 1, config.steps + 1):
        rate = min(1.0, step / 10) * (1 - 0.9 * step / config.steps)
        optimizer.param_groups[0]["lr"] = config.learning_rate * rate
        for name, source, number in zip(unseen, told, (config.plain, config.grid), strict=True):
            if number:
                batch = batch_of(list(islice(source, number)), tokenizer, model.dtype)
                loss = cross_entropy(logits(model, batch), batch.answer)
                loss.backward()
                losses[f"{name} loss"].append(loss.item())
        if not all(loss[-1] == loss[-1] for loss in losses.values()):
            raise ModelError(f"the loss is no number at step {step}; lower --learning-rate")
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % config.every == 0 or step == config.steps:
            found = looked(step)
            half = {k: v.bfloat16() for k, v in get_peft_model_state_dict(adapted).items()}
            adapted.save_pretrained(str(config.out))
            save_file(half, config.out / "adapter_model.safetensors", {"format": "pt"})
            kept = {name: weight.data for name, weight in weights.items()}
            for name, weight in weights.items():
                kept |= {f"{name}/{key}": value for key, value in optimizer.state[weight].items()}
            save_file(kept | {"step": torch.tensor(step)}, state)
            if min(some[kind] for some in found.values() for kind in ("TB", "FB")) > config.target:
                break
    (config.out / "recipe.json").write_text(json.dumps(asdict(config), default=str, indent=2))


if __name__ == "__main__":
    import tyro

    run(tyro.cli(AdapterConfig))
