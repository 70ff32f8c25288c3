"""The stages of training in order, ending with a folder that ``from_pretrained`` loads.

Both families start from one text decoder, as the full-size models start from a language model. It
learns to look things up and to judge statements. It has the shape of a Llama decoder; Qwen2's is
the same with biases, which then start at zero.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from experiments.train_tiny import documents, seeing
from experiments.train_tiny.config import TrainConfig
from experiments.train_tiny.documents import Maker
from experiments.train_tiny.families import (
    HIDDEN,
    build_model,
    build_processor,
    build_tokenizer,
    decoder_config,
    deepen,
)
from experiments.train_tiny.multimodal import Cinema
from experiments.train_tiny.trainer import (
    CURVE,
    Batch,
    Level,
    Settings,
    draw_curve,
    encode,
    score_text,
    train,
)
from sally_anne.core.run_folder import TRAINING, claims

# Stories in a batch, and the token after which a document is cut; two cores pay for every token.
STORIES, LONGEST = 20, 300
# Decoder layers of the finished models, and the learning rate once they are that deep.
DEPTH, LATE_RATE = 8, 1e-3
# Layer and head of those that may carry the truth of statements in the end. Without a penalty a
# fifth of Qwen2-VL's heads came to carry it.
LOCAL_HEADS = {"qwen2-vl": ((4, 4), (4, 5), (5, 0), (5, 1))}


def decoder_levels(tokenizer: PreTrainedTokenizerFast) -> list[Level]:
    """Short facts of six levels, then stories: looking up, judging, all together."""

    def level(name: str, make: Maker, size: int, goal: float, most: int) -> Level:
        def batch(rng: random.Random) -> Batch:
            encoded = encode(tokenizer, [make(rng) for _ in range(size)], LONGEST)
            return {"input_ids": encoded.ids}, score_text(encoded)

        return Level(name, batch, goal, most)

    def facts(number: int) -> Maker:
        return lambda rng: documents.facts(rng, number)

    # Batch, goal and most steps of each level; the caps keep the whole within two hours.
    plan = (
        (256, 0.2, 2500),
        (256, 0.2, 2500),
        (256, 0.2, 2500),
        (96, 0.2, 780),
        (96, 0.25, 150),
        (48, 0.25, 200),
    )
    return [
        *(level(f"facts-{i}", facts(i), *numbers) for i, numbers in enumerate(plan)),
        level("looking-up", documents.looking_up, STORIES, 0.12, 110),
        level("completing", documents.completing, STORIES, 0.15, 251),
        level("roles", documents.roles, STORIES, 0.15, 300),
        level("judging", documents.judging, STORIES, 0.15, 208),
        level("reasoning", documents.reasoning, STORIES, 0.12, 900),
        level("everything", documents.everything, STORIES, 0.0, 280),
    ]


def train_decoder(
    tokenizer: PreTrainedTokenizerFast, folder: Path, settings: Settings
) -> LlamaForCausalLM:
    """Train the decoder, or finish or load it if ``folder`` holds it already."""
    torch.manual_seed(settings.seed)
    model = LlamaForCausalLM(decoder_config())
    train(model, decoder_levels(tokenizer), folder, settings, "decoder")
    return model


@claims(TRAINING, lambda config: config.out)
def train_family(config: TrainConfig) -> Path:
    """Train, or go on training, one family.

    Returns:
        The folder of the finished model: weights, processor, loss curve.
    """
    torch.set_num_threads(config.threads)
    settings = Settings(seed=config.seed)
    root = config.out
    tokenizer = build_tokenizer()
    decoder = train_decoder(tokenizer, root / "decoder", settings)
    processor = build_processor(config.family, tokenizer)
    model = build_model(config.family, tokenizer, decoder, config.seed)
    cinema = Cinema(config.family, processor)
    folder = root / config.family
    looker = seeing.Looker(model, config.family, HIDDEN)
    train(looker, seeing.levels(cinema, config.seeing_steps), folder / "seeing", settings, "seeing")
    model.requires_grad_(True)
    levels = cinema.levels(config.watching_steps, config.talking_steps)
    train(model, levels, folder / "talking", settings, "talking")
    ends = (
        ("answering", cinema.answering(config.answering_steps)),
        ("polishing", cinema.polishing(config.polishing_steps)),
    )
    for stage, level in ends:
        train(model, [level], folder / stage, settings, stage)
    torch.manual_seed(config.seed)
    model = deepen(model, DEPTH)
    late = replace(settings, learning_rate=LATE_RATE)
    deep = {
        "finishing": [cinema.finishing(model, config.finishing_steps)],
        "carrying": [cinema.carrying(model, config.carrying_steps)],
        "settling": [cinema.carrying(model, config.settling_steps, "settling", interviews=0.65)],
        "narrating": [cinema.narrating(model, config.narrating_steps, "narrating", 0.3, 0.27, 0.2)],
        "trusting": [cinema.narrating(model, config.trusting_steps, "trusting", 0.1, 0.6, 0.2)],
        "keeping": [cinema.narrating(model, config.keeping_steps, "keeping", 0.1, 0.6, 0.5)],
    }
    if kept := LOCAL_HEADS.get(config.family):
        deep["localising"] = [cinema.localising(model, config.localising_steps, kept)]
    for stage, levels in deep.items():
        train(model, levels, folder / stage, late, stage)
    finished = folder / f"tiny-{config.family}"
    model.eval().save_pretrained(finished)
    processor.save_pretrained(finished)
    stages = {
        "decoder": root / "decoder" / CURVE,
        "seeing": folder / "seeing" / CURVE,
        "talking": folder / "talking" / CURVE,
        **{stage: folder / stage / CURVE for stage in (*dict(ends), *deep)},
    }
    for stage, path in stages.items():
        shutil.copyfile(path, finished / f"loss-{stage}.csv")
    draw_curve(stages, finished / "loss.png")
    return finished
