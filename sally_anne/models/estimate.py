"""What a run needs, worked out before it: tokens, memory and arithmetic of passes through a model.

Each figure comes with the formula by which it was worked out, and with where its numbers are from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from rich.markup import escape
from rich.table import Table
from torch import nn

from hooks.geometry import find_geometry
from sally_anne.core.console import Console
from sally_anne.core.processes import here
from sally_anne.models.decoding import ROOM, row_bytes
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import process
from sally_anne.models.published import TEXT_FACTOR, TEXT_MORE, PublishedModel

Source = Literal["given", "measured", "extrapolated", "assumed", "estimated", "exact"]
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
QUANTIZED = {"8bit": 1, "4bit": 0.5}


@dataclass(frozen=True)
class Figure:
    """One line of a plan.

    Attributes:
        name: what it is.
        value: in the unit of the name.
        text: the value for people.
        formula: how it was worked out.
        source: measured or given if it is a cost taken from outside; exact if it follows from
            counts alone; estimated if a part of it is; extrapolated if it carries a cost to another
            size; assumed.
    """

    name: str
    value: float
    text: str
    formula: str
    source: Source


@dataclass(frozen=True)
class Load:
    """One batch: contexts that are prefilled, and rows that go on from them.

    Attributes:
        contexts: tokens of each context, frames included.
        endings: tokens of each row's own end; none where contexts are whole prompts.
        patches: of all the contexts' frames, as the vision tower takes them.
        reply: tokens that are then written at most.
        later: ends of more rows that go on from the same contexts, no more of them at once.
    """

    contexts: tuple[int, ...]
    endings: tuple[int, ...]
    patches: int = 0
    reply: int = 0
    later: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens that go through the decoder, padding aside."""
        return sum(self.contexts) + sum(self.endings) + sum(self.later)

    @property
    def padded(self) -> int:
        """The same with padding."""
        return self.wide * len(self.contexts) + self.ending * self.rows

    @property
    def rows(self) -> int:
        """Rows that go on from the contexts, all in all."""
        return len(self.endings) + len(self.later)

    @property
    def wide(self) -> int:
        """Tokens of the longest context."""
        return max(self.contexts)

    @property
    def ending(self) -> int:
        """Tokens of the longest end."""
        return max(self.endings, default=0)


class Counter:
    """Counts tokens and patches as a model's processor makes them.

    A video's tokens depend on nothing but the shape of its frames, so one video of each shape goes
    through the processor. Text is cut by the tokenizer; where only a description of the model is
    here, by a stand-in, and numbers are stretched.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self.exact = not isinstance(loaded, PublishedModel)
        self.source: Source = "exact" if self.exact else "estimated"
        self._videos: dict[tuple[int, ...] | None, tuple[int, int]] = {}

    def ending(self, tokens: Sequence[int]) -> int:
        """Tokens of an ending, which the tokenizer has cut."""
        return len(tokens) if self.exact else math.ceil(len(tokens) * TEXT_FACTOR)

    def context(self, text: str, shape: tuple[int, ...] | None) -> tuple[int, int]:
        """Tokens and patches of a laid out text and of frames ``[F, height, width, 3]`` or none.

        Raises:
            ModelError: the processor drops frames.
        """
        tokenizer = self.loaded.processor.tokenizer
        words = len(tokenizer(text, add_special_tokens=False)["input_ids"])
        if shape not in self._videos:
            clips = None if shape is None else [np.zeros(shape, dtype=np.uint8)]
            inputs = process(self.loaded, [text], clips)
            # Beside the frames also what the processor puts before a text.
            more = int(inputs["attention_mask"].sum()) - words
            self._videos[shape] = more, _patches(self.loaded.config, inputs)
        more, patches = self._videos[shape]
        if not self.exact:
            words = math.ceil(words * TEXT_FACTOR) + TEXT_MORE
        return words + more, patches

    def rule(self) -> str:
        """How tokens are counted."""
        if self.exact:
            return "by the model's own tokenizer and processor"
        videos = sorted(more for shape, (more, _) in self._videos.items() if shape is not None)
        counted = f"videos {', '.join(f'{more:,}' for more in videos)} by the processor's rules + "
        return (
            f"{counted if videos else ''}text estimated: words and marks x {TEXT_FACTOR:g} + "
            f"{TEXT_MORE}, as the vocabulary is not here"
        )


def _patches(config: Any, inputs: dict[str, np.ndarray]) -> int:
    """Patches of the frames that a processor has made ready."""
    pixels = inputs.get("pixel_values_videos", inputs.get("pixel_values"))
    if pixels is None:
        return 0
    if pixels.ndim == 2:  # cut already, a row a patch
        return len(pixels)
    side = _side(config.vision_config)
    *frames, _, height, width = pixels.shape
    return math.prod(frames) * (height // side) * (width // side)


def _side(tower: Any) -> int:
    return tower.patch_size if isinstance(tower.patch_size, int) else tower.patch_size[0]


def tokens_each(name: str, tokens: Sequence[int], counter: Counter) -> Figure:
    """Tokens of a sample or prompt, over all of them."""
    mean = sum(tokens) / len(tokens)
    spread = f"{min(tokens):,} to {max(tokens):,}, {mean:,.1f} on average"
    return Figure(name, mean, spread, counter.rule(), counter.source)


def needs(
    loaded: LoadedModel, loads: Sequence[Load], quantization: str = "none"
) -> dict[str, Figure]:
    """Tokens, memory and arithmetic of passes through a model, by name.

    Memory is that of tensors: what libraries take, and scratch space inside kernels, comes on top.

    Args:
        loaded: the model; its weights are not read.
        loads: all batches, at least one.
        quantization: of its linear layers, as in `sally_anne.models.options`.
    """
    geometry = find_geometry(loaded.skeleton)
    item = DTYPE_BYTES[loaded.dtype]
    text = loaded.config.get_text_config()
    count = Counter(loaded).source
    parameters = list(loaded.skeleton.named_parameters())
    inside = tuple(f"{name}." for name in geometry.layer_names)
    decoder = sum(p.numel() for name, p in parameters if name.startswith(inside) and p.ndim > 1)
    tower = sum(p.numel() for name, p in parameters if "vis" in name and p.ndim > 1)
    found: dict[str, Figure] = {}

    def put(name: str, value: float, shown: str, formula: str, source: Source = count) -> None:
        found[name] = Figure(name, value, shown, formula, source)

    whole = sum(p.numel() for _, p in parameters)
    put("parameters", whole, f"{whole / 1e9:.3g} billion", "of the config's modules", "exact")
    tokens = sum(load.tokens for load in loads)
    put("tokens read", tokens, f"{tokens:,}", "contexts once, and each row's own end")
    padded = sum(load.padded for load in loads)
    put("tokens with padding", padded, f"{padded:,}", "batches are as wide as their longest row")
    longest = max(load.wide + load.ending + load.reply for load in loads)
    most = getattr(text, "max_position_embeddings", None)
    limit = f"; the model takes {most:,}" if most else ""
    put("longest row", longest, f"{longest:,}", f"context + end + reply{limit}")
    weights, how = whole * item, "parameters x item"
    if quantization in QUANTIZED:
        # All but the last, which gives the logits.
        linear = sum(
            module.weight.numel()
            for name, module in loaded.skeleton.named_modules()
            if isinstance(module, nn.Linear) and not name.endswith("lm_head")
        )
        weights -= linear * (item - QUANTIZED[quantization])
        how += f", of linear layers x {QUANTIZED[quantization]:g}"
    put("weights", weights, in_bytes(weights), how, "exact")
    column = row_bytes(geometry, 1, item)
    put("cache of a token", column, in_bytes(column), "2 x L x kv heads x D x item", "exact")
    caches = [_cached(load) * column for load in loads]
    put(
        "cache",
        max(caches),
        in_bytes(max(caches)),
        f"(contexts + rows x (context + {ROOM} or more)) x cache of a token, largest batch",
    )
    peak = max(
        max(cache + _decoder_step(load, text) * item, _tower_step(load, loaded.config) * item)
        # As the processor leaves them, in float32, and as the model takes them.
        + load.patches * _pixels(loaded.config) * (4 if item == 4 else 4 + item)
        for load, cache in zip(loads, caches, strict=True)
    )
    put(
        "above the weights",
        peak,
        in_bytes(peak),
        "of a batch: its pixels + the larger of (cache + tokens x 3 x (width + MLP width) x item + "
        "mask) and (patches x the same of the vision tower)",
    )
    put("memory", weights + peak, in_bytes(weights + peak), "weights + above the weights")
    squares = sum(len(load.contexts) * load.wide**2 for load in loads)
    patches = sum(load.patches for load in loads)
    written = sum(load.rows * load.reply for load in loads)
    flops = 2.0 * decoder * (padded + written) + 2.0 * tower * patches
    flops += 4.0 * geometry.n_layers * geometry.n_heads * geometry.head_dim * squares
    put(
        "FLOPs",
        flops,
        f"{flops:.2e}",
        "2 x decoder matrices x tokens + 4 x L x H x D x context^2 + 2 x tower x patches",
    )
    return found


def _cached(load: Load) -> int:
    """Columns of keys and values: the contexts stay while their rows go on with copies."""
    rows = len(load.endings)
    room = max(ROOM, load.ending, load.reply)
    return load.wide * (len(load.contexts) + rows) + room * rows


def _decoder_step(load: Load, text: Any) -> int:
    """Numbers that one layer holds at once, at most: of its MLP, beside the attention mask."""
    columns = max(load.wide * len(load.contexts), load.ending * len(load.endings))
    mask = len(load.contexts) * load.wide**2
    return columns * 3 * (text.intermediate_size + text.hidden_size) + mask


def _tower_step(load: Load, config: Any) -> int:
    """The same of a layer of the vision tower."""
    if not load.patches:
        return 0
    tower = config.vision_config
    width = getattr(tower, "embed_dim", None) or tower.hidden_size
    inner = getattr(tower, "intermediate_size", None) or width * tower.mlp_ratio
    return load.patches * 3 * (inner + width)


def _pixels(config: Any) -> int:
    """Numbers of one patch."""
    tower = getattr(config, "vision_config", None)
    return 0 if tower is None else 3 * _side(tower) ** 2 * getattr(tower, "temporal_patch_size", 1)


def disk(samples: int, layers: int, heads: int, width: int, dtype: str) -> Figure:
    """What the activations of so many samples take in a store."""
    item = DTYPE_BYTES[dtype]
    size = samples * layers * heads * width * item
    how = f"N x L x H x D x item = {samples:,} x {layers} x {heads} x {width} x {item}"
    return Figure("activations on disk", size, in_bytes(size), how, "exact")


def show(console: Console, loaded: LoadedModel, figures: Iterable[Figure]) -> None:
    """Print a plan on a terminal; of several processes of a launcher only the first does."""
    if not here().first:
        return
    title = f"{loaded.name}: nothing is computed or written"
    table = Table(title=escape(title), title_justify="left")
    for column in ("figure", "value", "formula", "from"):
        table.add_column(column, overflow="fold")
    for figure in figures:
        table.add_row(*map(escape, (figure.name, figure.text, figure.formula, figure.source)))
    console.print(table)


def in_bytes(count: float) -> str:
    """Powers of a thousand, as disks are sold."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"
