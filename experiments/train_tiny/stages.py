"""The stages of training in order, ending with a folder that ``from_pretrained`` loads."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from experiments.train_tiny import curve, seeing
from experiments.train_tiny.config import TrainConfig
from experiments.train_tiny.decoder import HIDDEN, train_decoder
from experiments.train_tiny.families import build_model, build_processor
from experiments.train_tiny.multimodal import Cinema
from experiments.train_tiny.trainer import CURVE, Settings, train
from experiments.train_tiny.vocabulary import build_tokenizer


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
    finished = folder / f"tiny-{config.family}"
    model.eval().save_pretrained(finished)
    processor.save_pretrained(finished)
    stages = {
        "decoder": root / "decoder" / CURVE,
        "seeing": folder / "seeing" / CURVE,
        "talking": folder / "talking" / CURVE,
        **{stage: folder / stage / CURVE for stage, _ in ends},
    }
    for stage, path in stages.items():
        shutil.copyfile(path, finished / f"loss-{stage}.csv")
    curve.draw(stages, finished / "loss.png")
    return finished
