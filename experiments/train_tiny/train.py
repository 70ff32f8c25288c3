"""The stages of training, ending with a folder that ``from_pretrained`` loads, and their loop.

Both families start from one text decoder, as the full-size models start from a language model. It
has the shape of a Llama decoder; Qwen2's is the same with biases, which then start at zero.

Every step draws its documents from a generator seeded by (seed, stage, step), so a run that was
interrupted goes on as if it had not been.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from sally_anne.core.errors import ModelError, OptionError
from sally_anne.core.files import reading, write_atomic
from sally_anne.core.folder import claims, save_config
from sally_anne.experiments.config import TrainConfig
from sally_anne.experiments.train_tiny import documents, looking
from sally_anne.experiments.train_tiny.conversations import (
    FILMED,
    VideoData,
    checked,
    mixed,
    narrated,
    single,
)
from sally_anne.experiments.train_tiny.documents import Batch, Level, encode, score_text
from sally_anne.models import tiny
from sally_anne.models.loading import load_model

CHECKPOINT, CURVE = "checkpoint.safetensors", "loss.csv"
EVERY, WARM_UP = 100, 50
# Share of steps that go back to one of so many levels before the current one.
REVIEW_SHARE, REVIEW_DEPTH = 1 / 3, 3
# For products only, weights stay float32; without AVX-512 it is slower.
BFLOAT16 = torch.backends.cpu.get_cpu_capability() == "AVX512"
# Stories in a batch, and the token after which a document is cut; two cores pay for every token.
STORIES, LONGEST = 20, 300
# Decoder layers of the finished models, and learning rates: of the decoder, once it is that deep,
# and of the tower.
DEPTH, RATE, LATE_RATE, SEEING_RATE = 8, 1.5e-3, 1e-3, 5e-3
# A step of LLaVA's small tower takes a tenth of the time.
SEEING_STEPS = {"qwen2-vl": 800, "llava-next-video": 1200}
_PRECISE = "sdpa_float32"


def decoder_levels(tokenizer: transformers.PreTrainedTokenizerFast) -> list[Level]:
    # Batch, goal and most steps of each level; the caps keep the whole within two hours.
    numbers = 3 * [(256, 0.2, 2500)] + [(96, 0.2, 780), (96, 0.25, 150), (48, 0.25, 200)]
    plan: list[tuple[str, documents.Maker, int, float, int]] = [
        *((f"facts-{i}", partial(documents.facts, level=i), *n) for i, n in enumerate(numbers)),
        ("looking-up", documents.looking_up, STORIES, 0.12, 110),
        ("completing", documents.completing, STORIES, 0.15, 251),
        ("roles", documents.roles, STORIES, 0.15, 300),
        ("judging", documents.judging, STORIES, 0.15, 208),
        ("reasoning", documents.reasoning, STORIES, 0.12, 900),
        ("everything", documents.everything, STORIES, 0.0, 280),
    ]

    def batch(make: documents.Maker, size: int, rng: random.Random) -> Batch:
        encoded = encode(tokenizer, [make(rng) for _ in range(size)], LONGEST)
        return {"input_ids": encoded.ids}, score_text(encoded)

    return [
        Level(name, partial(batch, make, size), goal, most) for name, make, size, goal, most in plan
    ]


@claims("a training of tiny models")
def run(config: TrainConfig) -> Path:
    """Train, or go on training, one family; says and returns the folder of the finished model."""
    folder = config.folder
    save_config(folder, asdict(config))
    tokenizer = tiny.build_tokenizer()
    processor = tiny.build_processor(config.family, tokenizer)
    if config.start:
        loaded = load_model(config.start, device_map="cpu")
        if loaded.processor.tokenizer.get_vocab() != tokenizer.get_vocab():
            raise OptionError(f"--start {config.start} has other words than the stories here")
        model = loaded.model
        if loaded.family.name != config.family:
            model = tiny.build_model(config.family, tokenizer, tiny.decoder_of(model), config.seed)
    else:
        torch.manual_seed(config.seed)
        decoder = transformers.LlamaForCausalLM(tiny.decoder_config())
        attend_in_float32(decoder)
        levels = decoder_levels(tokenizer)
        train(decoder, levels, folder / "decoder", "decoder", config.seed, RATE)
        model = tiny.build_model(config.family, tokenizer, decoder, config.seed)
        torch.manual_seed(config.seed)
        model = tiny.deepen(model, DEPTH)
    attend_in_float32(model)
    data = VideoData(config.family, processor, model)
    reader = looking.FilmReader(model, data)
    levels = looking.levels(looking.Films(data))
    train(reader, levels, folder / "looking", "looking", config.seed, LATE_RATE)
    cells = looking.cell_level(
        data, lambda covered: reader.features(looking.blended(covered)), SEEING_STEPS[config.family]
    )
    looker = looking.Looker(model, config.family)
    train(looker, [cells], folder / "seeing", "seeing", config.seed, SEEING_RATE)
    # From here on the tower stays as it is: it would lose the agents.
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("language_model" in name)
    mixing = [data.level("single", single, 150, 2 * FILMED), data.level("checked", checked, 100)]
    # Who is reliable is learned from words, first with the verdicts said, then without.
    for percent, goal, steps in ((100, 0.04, 300), (30, 0.06, 300), (0, 0.06, 600)):
        batch = partial(data.batch, partial(narrated, marked=percent / 100), "text")
        mixing.append(Level(f"narrated ({percent} % marked)", batch, goal, steps))
    mixing.append(data.level("mixed", mixed, 900))
    train(model, mixing, folder / "mixing", "mixing", config.seed, LATE_RATE)
    finished = folder / f"tiny-{config.family}"
    model.eval().save_pretrained(finished)
    processor.save_pretrained(finished)
    print(f"the model is in {finished}")
    return finished


def attend_in_float32(model: Any) -> None:
    """Attention in float32 inside autocast: on a CPU its backward pass in bfloat16 is slower."""

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *mask: Any, **options: Any
    ) -> tuple[Tensor, None]:
        with torch.autocast("cpu", enabled=False):
            whole = query.float(), key.float(), value.float()
            return sdpa_attention_forward(module, *whole, *mask, **options)

    transformers.AttentionInterface.register(_PRECISE, attention)
    transformers.AttentionMaskInterface.register(_PRECISE, sdpa_mask)
    model.set_attn_implementation(_PRECISE)


class Training:
    """Steps on a model in a folder, kept when asked; what was stopped there goes on.

    ``progress`` has ``step``, ``seconds``, the ``curve`` (CSV), and what a training adds.
    """

    def __init__(
        self,
        weights: Mapping[str, nn.Parameter],
        folder: Path,
        heading: str,
        start: Mapping[str, Any] | None = None,
        **adamw: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.weights, self.folder = weights, folder
        options: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.01} | adamw
        self.optimiser = torch.optim.AdamW(weights.values(), **options)
        self.progress: dict[str, Any] = {"step": 0, "seconds": 0.0, **(start or {})}
        self.progress["curve"] = [f"step,{heading},seconds"]
        if (folder / CHECKPOINT).exists():
            self._resume(folder / CHECKPOINT)
        self._started = time.monotonic() - self.progress["seconds"]

    def step(self, rate: float, *cells: str) -> None:
        """Take one, by gradients that are there; ``cells`` stand in its line of the curve."""
        nn.utils.clip_grad_norm_(self.weights.values(), 1.0)
        self.optimiser.param_groups[0]["lr"] = rate
        self.optimiser.step()
        self.optimiser.zero_grad()
        seconds, step = time.monotonic() - self._started, self.progress["step"] + 1
        self.progress |= {"step": step, "seconds": seconds}
        self.progress["curve"].append(",".join([str(step), *cells, f"{seconds:.1f}"]))

    def keep(self) -> None:
        tensors: dict[str, Tensor] = {}
        for name, parameter in self.weights.items():
            tensors[f"model.{name}"] = parameter.detach()
            for key, value in self.optimiser.state.get(parameter, {}).items():
                tensors[f"optimiser.{key}.{name}"] = value.detach().clone()
        curve = "".join(f"{line}\n" for line in self.progress["curve"])
        write_atomic(self.folder / CURVE, curve.encode())
        kept = save(tensors, {"progress": json.dumps(self.progress)})
        write_atomic(self.folder / CHECKPOINT, kept)

    def _resume(self, path: Path) -> None:
        with reading(path, ModelError, "sally-anne"), safe_open(path, "pt") as stored:
            self.progress |= json.loads(stored.metadata()["progress"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            for name, parameter in self.weights.items():
                parameter.data.copy_(tensors[f"model.{name}"])
                own = {key: f"optimiser.{key}.{name}" for key in ("step", "exp_avg", "exp_avg_sq")}
                if own["step"] in tensors:
                    self.optimiser.state[parameter] = {k: tensors[n] for k, n in own.items()}


def train(
    model: nn.Module,
    levels: Sequence[Level],
    folder: Path,
    stage: str,
    seed: int,
    rate: float,
    falls_after: float = 1 / 3,
) -> None:
    """Train until the last level's steps are done; goes on from a checkpoint in ``folder``.

    The next level begins when one is learned. Documents follow from ``stage`` and ``seed``. In the
    last level the rate falls once a share of its steps is done, ``falls_after``.
    """
    weights = {name: own for name, own in model.named_parameters() if own.requires_grad}
    # The level, its steps, and its last ten losses on targets.
    begin = {"level": 0, "since": 0, "recent": []}
    training = Training(weights, folder, "level,target_loss", begin)
    model.train()
    at, last, begun_at = training.progress, len(levels) - 1, training.progress["step"]
    while not (at["level"] == last and at["since"] >= levels[last].most):
        rng = random.Random(f"{seed}/{stage}/{at['step']}")
        level, shown = levels[at["level"]], at["level"]
        if shown and rng.random() < REVIEW_SHARE:
            shown = rng.randint(max(0, shown - REVIEW_DEPTH), shown - 1)
        inputs, score = levels[shown].batch(rng)
        with torch.autocast("cpu", torch.bfloat16, enabled=BFLOAT16):
            output = model(**inputs)
        loss, target = score(output)
        left = (1 - at["since"] / level.most) / (1 - falls_after)
        share = max(0.03, min(1.0, left if at["level"] == last else 1.0))
        loss.backward()
        warm = min(1.0, (at["step"] + 1) / WARM_UP)
        training.step(rate * warm * share, levels[shown].name, f"{target:.5f}")
        if shown == at["level"]:
            at["since"] += 1
            # Batches without targets say nothing of the level.
            at["recent"] += [] if math.isnan(target) else [target]
        at["recent"] = at["recent"][-10:]
        mean = sum(at["recent"]) / max(1, len(at["recent"]))
        learned = len(at["recent"]) >= 10 and at["since"] >= 15 and mean < level.goal
        done = at["level"] < last and (learned or at["since"] >= level.most)
        if done or at["step"] % 20 == 0:
            what = "" if not done else "learned" if learned else "NOT learned"
            print(f"{stage}, {level.name}, {at['since']} steps: target loss {mean:.3f} {what}")
        if done:
            at |= {"level": at["level"] + 1, "since": 0, "recent": []}
        if at["step"] % EVERY == 0:
            training.keep()
    # A finished stage is left as it is.
    if at["step"] > begun_at:
        training.keep()
