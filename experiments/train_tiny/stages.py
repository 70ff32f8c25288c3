"""The stages of training in order, ending with a folder that ``from_pretrained`` loads.

Both families start from one text decoder, as the full-size models start from a language model. It
learns to look things up and to judge statements. It has the shape of a Llama decoder; Qwen2's is
the same with biases, which then start at zero.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from sally_anne.core.errors import OptionError
from sally_anne.core.folder import claims, save_config
from sally_anne.experiments.config import TrainConfig
from sally_anne.experiments.train_tiny import documents, looking, videos
from sally_anne.experiments.train_tiny.conversations import checked, mixed, narrated, single
from sally_anne.experiments.train_tiny.trainer import (
    CURVE,
    Batch,
    Level,
    Settings,
    attend_in_float32,
    encode,
    score_text,
    train,
)
from sally_anne.experiments.train_tiny.videos import FILMED, VideoData
from sally_anne.models.loading import load_model
from sally_anne.models.tiny import (
    build_model,
    build_processor,
    build_tokenizer,
    decoder_config,
    decoder_of,
    deepen,
)

# Stories in a batch, and the token after which a document is cut; two cores pay for every token.
STORIES, LONGEST = 20, 300
# Decoder layers of the finished models, and the learning rate once they are that deep.
DEPTH, LATE_RATE = 8, 1e-3
SEEING_RATE = 5e-3
# A step of LLaVA's small tower takes a tenth of the time.
SEEING_STEPS = {"qwen2-vl": 800, "llava-next-video": 1200}
# Numbers of statements and questions before the last one of an interview.
_BRIEF = (0, 0, 0, 1, 2)


def decoder_levels(tokenizer: PreTrainedTokenizerFast) -> list[Level]:
    """Short facts of six levels, then stories: looking up, judging, all together."""
    # Batch, goal and most steps of each level; the caps keep the whole within two hours.
    numbers = (
        *((256, 0.2, 2500), (256, 0.2, 2500), (256, 0.2, 2500)),
        *((96, 0.2, 780), (96, 0.25, 150), (48, 0.25, 200)),
    )
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
def train_family(config: TrainConfig) -> Path:
    """Train, or go on training, one family; says and returns the folder of the finished model."""
    torch.set_num_threads(config.threads)
    settings = Settings(seed=config.seed)
    root, folder = config.out, config.out / config.family
    folder.mkdir(exist_ok=True)
    save_config(folder, asdict(config))
    tokenizer = build_tokenizer()
    processor = build_processor(config.family, tokenizer)
    if config.start:
        loaded = load_model(config.start, device_map="cpu")
        if loaded.processor.tokenizer.get_vocab() != tokenizer.get_vocab():
            raise OptionError(
                f"--start {config.start} has other words than the stories here: "
                "give a tiny model that this command made"
            )
        model = loaded.model
        if loaded.family.name != config.family:
            model = build_model(config.family, tokenizer, decoder_of(model), config.seed)
    else:
        torch.manual_seed(settings.seed)
        decoder = LlamaForCausalLM(decoder_config())
        attend_in_float32(decoder)
        train(decoder, decoder_levels(tokenizer), root / "decoder", settings, "decoder")
        model = build_model(config.family, tokenizer, decoder, config.seed)
        torch.manual_seed(config.seed)
        model = deepen(model, DEPTH)
    attend_in_float32(model)
    data = VideoData(config.family, processor)
    late = Settings(seed=config.seed, learning_rate=LATE_RATE)
    gentle = Settings(seed=config.seed, learning_rate=SEEING_RATE)

    reader = looking.FilmReader(model, data)
    levels = looking.levels(data, model, config.looking_steps)
    if config.looking_steps:
        train(reader, levels, folder / "looking", late, "looking")
    looker = videos.Looker(model, config.family)
    steps = SEEING_STEPS[config.family] if config.seeing_steps is None else config.seeing_steps
    cells = videos.cell_levels(
        data, lambda covered: reader.features(looking.blended(covered)), steps
    )
    if steps:
        train(looker, cells, folder / "seeing", gentle, "seeing")
    # From here on the tower stays as it is: it would lose the agents.
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("language_model" in name)
    most = config.narrating_steps
    mixing = [
        data.level("single", single, config.reading_steps, model, 2 * FILMED),
        data.level("checked", checked, config.checking_steps, model),
        # Who is reliable is learned from words, first with the verdicts said, then without.
        *(
            data.text_level(
                f"narrated ({percent} % marked)",
                partial(narrated, marked=percent / 100),
                goal,
                steps,
                model,
            )
            for percent, goal, steps in ((100, 0.04, most), (30, 0.06, most), (0, 0.06, 2 * most))
        ),
        data.level("mixed", mixed(0.4, _BRIEF, marked=0.1, scenic=3), config.mixing_steps, model),
    ]
    train(model, mixing, folder / "mixing", late, "mixing")
    finished = folder / f"tiny-{config.family}"
    model.eval().save_pretrained(finished)
    processor.save_pretrained(finished)
    curves = {} if config.start else {"decoder": root / "decoder" / CURVE}
    curves |= {stage: folder / stage / CURVE for stage in ("looking", "seeing", "mixing")}
    curves = {stage: path for stage, path in curves.items() if path.exists()}
    for stage, path in curves.items():
        shutil.copyfile(path, finished / f"loss-{stage}.csv")
    print(f"the model is in {finished}")
    return finished
