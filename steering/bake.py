"""``sally-anne bake``: a checkpoint with a steering vector in its weights, for plain transformers.

The vector acts at ALL positions there, those of the prompt included, even if it was made for
others: weights do not know where a token stands.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.markup import escape

from sally_anne.core.console import Console
from sally_anne.models.options import DEFAULT_MODEL


@dataclass(frozen=True)
class BakeConfig:
    """Write a checkpoint with a steering vector in its weights, which acts at all positions.

    Attributes:
        vector: folder of a steering vector, or user/name[@revision] on a hub.
        out: folder of the checkpoint; must be empty, or not there yet.
        model: catalogue name, hub id or folder.
        alpha: strength, in standard deviations; the vector's own by default.
        dtype: of the weights that are written: auto, float32, bfloat16 or float16.
        revision: branch, tag or commit on the hub.
        allow_mismatch: bake a vector that was fitted on another model.
    """

    vector: Path
    out: Path
    model: str = DEFAULT_MODEL
    alpha: float | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    revision: str | None = None
    allow_mismatch: bool = False


def run(config: BakeConfig) -> None:
    """Read model and vector, write the checkpoint, say what it does."""
    # Heavy libraries are imported here, so that --help answers at once.
    from sally_anne.hooks.vector import SteeringVector
    from sally_anne.models.loading import load_model
    from sally_anne.steering import baking

    baking.check_free(config.out)
    vector = SteeringVector.load(config.vector, allow_mismatch=config.allow_mismatch)
    loaded = load_model(config.model, config.dtype, revision=config.revision)
    folder = baking.bake(loaded, vector, config.alpha, config.out)
    record = json.loads((folder / baking.RECORD).read_text(encoding="utf-8"))
    console = Console()
    for line in (baking.in_words(record), f"the checkpoint is in {folder}"):
        console.print(escape(line), soft_wrap=True)
