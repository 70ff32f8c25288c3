"""The training loop: levels that rise as their loss falls; resumable at any step.

Every step draws its documents from a generator seeded by (seed, stage, step), so a run that was
interrupted goes on as if it had not been.
"""

from __future__ import annotations

import csv
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedTokenizerFast
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from sally_anne.core.files import write_atomic
from sally_anne.experiments.train_tiny.documents import RIGHT, WRONG, Document

# What a level hands to the model, and how the model's output is scored: the loss to minimise, and
# the loss on the targets alone.
Batch = tuple[dict[str, Any], Callable[[Any], tuple[Tensor, float]]]
CHECKPOINT = "checkpoint.safetensors"
CURVE = "loss.csv"


@dataclass(frozen=True)
class Level:
    """One step of the curriculum.

    Attributes:
        name: shown in the loss curve.
        batch: draws a batch.
        goal: mean target loss (nats, over ten of its batches) at which the next level begins.
        most: steps after which the next level begins anyway; the last level runs exactly these.
    """

    name: str
    batch: Callable[[random.Random], Batch]
    goal: float
    most: int


@dataclass(frozen=True)
class Settings:
    """Numbers of the optimisation.

    ``bfloat16`` is for products only, weights stay float32; without AVX-512 it is slower.
    """

    seed: int = 0
    learning_rate: float = 1.5e-3
    weight_decay: float = 0.01
    warm_up: int = 50
    bfloat16: bool = torch.backends.cpu.get_cpu_capability() == "AVX512"
    review_share: float = 1 / 3
    review_depth: int = 3
    checkpoint_every: int = 100


_PRECISE = "sdpa_float32"


def attend_in_float32(model: Any) -> None:
    """Attention in float32 inside autocast: on a CPU its backward pass in bfloat16 is slower."""

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *mask: Any, **options: Any
    ) -> tuple[Tensor, None]:
        with torch.autocast("cpu", enabled=False):
            whole = query.float(), key.float(), value.float()
            return sdpa_attention_forward(module, *whole, *mask, **options)

    AttentionInterface.register(_PRECISE, attention)
    AttentionMaskInterface.register(_PRECISE, sdpa_mask)
    model.set_attn_implementation(_PRECISE)


@dataclass
class _Progress:
    step: int = 0
    level: int = 0
    since: int = 0
    seconds: float = 0.0
    recent: list[float] = field(default_factory=list)


def train(
    model: nn.Module,
    levels: Sequence[Level],
    folder: Path,
    settings: Settings,
    stage: str,
    report: Callable[[str], None] = print,
) -> None:
    """Train until the last level's steps are done; goes on from a checkpoint in ``folder``.

    Args:
        model: takes the level's inputs; its output is what the level scores.
        levels: the curriculum, easiest first.
        folder: receives the checkpoint and the loss curve.
        settings: optimiser and schedule.
        stage: name that seeds the documents.
        report: called with a line of progress now and then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        betas=(0.9, 0.95),
    )
    progress = _resume(model, optimiser, folder)
    _cut_curve(folder / CURVE, progress.step)
    model.train()
    last = len(levels) - 1
    started = time.monotonic() - progress.seconds
    begun_at = progress.step
    with (folder / CURVE).open("a", newline="") as curve:
        writer = csv.writer(curve)
        while not (progress.level == last and progress.since >= levels[last].most):
            rng = random.Random(f"{settings.seed}/{stage}/{progress.step}")
            current = progress.level
            shown = current
            if current and rng.random() < settings.review_share:
                shown = rng.randint(max(0, current - settings.review_depth), current - 1)
            rate = _rate(progress, levels[last].most if current == last else None, settings)
            for group in optimiser.param_groups:
                group["lr"] = rate
            inputs, score = levels[shown].batch(rng)
            with torch.autocast("cpu", torch.bfloat16, enabled=settings.bfloat16):
                output = model(**inputs)
            loss, target = score(output)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            progress.step += 1
            progress.seconds = time.monotonic() - started
            writer.writerow(
                [progress.step, levels[shown].name, f"{target:.5f}", f"{progress.seconds:.1f}"]
            )
            if shown == current:
                progress.since += 1
                # Batches without targets say nothing of the level.
                if not math.isnan(target):
                    progress.recent = [*progress.recent[-9:], target]
            mean = sum(progress.recent) / max(1, len(progress.recent))
            if progress.step % 20 == 0:
                curve.flush()
                report(
                    f"{stage} step {progress.step} ({progress.seconds:.0f} s) level "
                    f"{levels[current].name} ({progress.since}): target loss {mean:.3f}"
                )
            level = levels[current]
            learned = len(progress.recent) >= 10 and progress.since >= 15 and mean < level.goal
            if current < last and (learned or progress.since >= level.most):
                report(
                    f"{stage} step {progress.step}: level {level.name} "
                    f"{'learned' if learned else 'NOT learned'} after {progress.since} steps"
                )
                progress.level, progress.since, progress.recent = current + 1, 0, []
            if progress.step % settings.checkpoint_every == 0:
                curve.flush()
                _save(model, optimiser, progress, folder)
    # A finished stage is left as it is: another family may be reading it.
    if progress.step > begun_at:
        _save(model, optimiser, progress, folder)


def _rate(progress: _Progress, final_steps: int | None, settings: Settings) -> float:
    """Warm-up, constant, and in the last level a linear fall over its final two thirds."""
    rate = settings.learning_rate * min(1.0, (progress.step + 1) / settings.warm_up)
    if final_steps:
        left = 1 - progress.since / final_steps
        rate *= max(0.03, min(1.0, 1.5 * left))
    return rate


def _save(
    model: nn.Module, optimiser: torch.optim.Optimizer, progress: _Progress, folder: Path
) -> None:
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        tensors[f"model.{name}"] = parameter.detach()
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"optimiser.{key}.{name}"] = value.detach().clone()
    about = {"progress": json.dumps(asdict(progress))}
    write_atomic(folder / CHECKPOINT, save(tensors, about))


def _resume(model: nn.Module, optimiser: torch.optim.Optimizer, folder: Path) -> _Progress:
    path = folder / CHECKPOINT
    if not path.exists():
        return _Progress()
    with safe_open(path, "pt") as stored:
        progress = _Progress(**json.loads(stored.metadata()["progress"]))
        keys = stored.keys()
        for name, parameter in model.named_parameters():
            parameter.data.copy_(stored.get_tensor(f"model.{name}"))
            state = {
                key: stored.get_tensor(f"optimiser.{key}.{name}")
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"optimiser.{key}.{name}" in keys
            }
            if state:
                optimiser.state[parameter] = state
    return progress


def _cut_curve(path: Path, step: int) -> None:
    """Drop rows after the checkpoint: their steps will be made again."""
    if not path.exists():
        path.write_text("step,level,target_loss,seconds\n")
        return
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines[1:] if line.endswith("\n") and int(line.split(",")[0]) <= step]
    path.write_text("".join([lines[0], *kept]))


# Layers (counted from 1) from which truth is read as well, and the weight of that loss.
EARLY_EXITS, EXIT_WEIGHT = (4, 5, 6), 0.3


@dataclass(frozen=True)
class TextBatch:
    """Right-padded documents; causal attention never looks at what follows, so no mask is needed.

    Attributes:
        ids: ``[B, T]`` token ids.
        weights: ``[B, T]`` loss weight of predicting each token; 0 on padding.
        truths: ``[B, T]`` id of the verdict that is to be known where a token is predicted, or -1.
    """

    ids: Tensor
    weights: Tensor
    truths: Tensor


def encode(
    tokenizer: PreTrainedTokenizerFast, documents: Sequence[Document], longest: int | None = None
) -> TextBatch:
    """Tokenise documents piece by piece (words cross none), cut after ``longest`` tokens."""
    texts = [piece.text for document in documents for piece in document]
    cut = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    right, wrong = tokenizer(f"{RIGHT} {WRONG}", add_special_tokens=False)["input_ids"]
    rows: list[list[Tensor]] = []
    for document in documents:
        ids: list[int] = []
        weights: list[float] = []
        truths: list[int] = []
        for piece in document:
            tokens = next(cut)
            ids += tokens
            weights += [piece.weight] * len(tokens)
            truths += [-1] * len(tokens)
            if piece.truth is not None:
                truths[-len(tokens)] = right if piece.truth else wrong
        rows.append([torch.tensor(row[:longest]) for row in (ids, weights, truths)])
    empty = (tokenizer.pad_token_id, 0.0, -1)
    columns = zip(*rows, strict=True)
    padded = [pad_sequence([*c], True, pad) for c, pad in zip(columns, empty, strict=True)]
    return TextBatch(*padded)


def score_text(
    batch: TextBatch, unembed: Callable[[Tensor], Tensor] | None = None
) -> Callable[[Any], tuple[Tensor, float]]:
    """Scoring of a model's output on ``batch``.

    Args:
        batch: what the model was given.
        unembed: from the residual stream ``[..., hidden]`` to logits ``[..., V]``. With it, truth
            is also read, as the word of its verdict, after the layers :data:`EARLY_EXITS`: so it
            is in the stream before the last layers, which can then read it.

    Returns:
        From an output with ``logits [B, T, V]`` (and ``hidden_states``) to the loss, and the mean
        over targets (weight 1) alone, in nats.
    """
    entropy_of = torch.nn.functional.cross_entropy

    def score(output: Any) -> tuple[Tensor, float]:
        entropy = entropy_of(
            output.logits[:, :-1].float().transpose(1, 2), batch.ids[:, 1:], reduction="none"
        )
        weights = batch.weights[:, 1:]
        marked = weights == 1
        target = entropy.detach()[marked].mean().item() if marked.any() else float("nan")
        loss = (entropy * weights).sum() / weights.sum()
        judged = batch.truths[:, 1:] >= 0
        if unembed is not None and judged.any():
            words = batch.truths[:, 1:][judged]
            for layer in EARLY_EXITS:
                logits = unembed(output.hidden_states[layer][:, :-1][judged])
                loss = loss + EXIT_WEIGHT / len(EARLY_EXITS) * entropy_of(logits.float(), words)
        return loss, target

    return score
