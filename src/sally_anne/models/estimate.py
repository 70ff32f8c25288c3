"""What a run needs, worked out before it: tokens, memory and arithmetic of passes through a model.

Each figure comes with the formula by which it was worked out, and with where its numbers are from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.markup import escape
from rich.table import Table
from torch import nn

from sally_anne.core.console import Console
from sally_anne.core.processes import here
from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.decoding import ROOM, row_bytes
from sally_anne.models.loading import LoadedModel
from sally_anne.models.published import TEXT_FACTOR, TEXT_MORE, PublishedModel
from sally_anne.models.videos import side_of, video_size, words_of

Source = Literal["given", "measured", "extrapolated", "assumed", "estimated", "exact"]
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
QUANTIZED = {"8bit": 1, "4bit": 0.5}


@dataclass(frozen=True)
class Figure:
    """One line of a plan: a value in the unit of its name, how it was worked out, where it is from.

    Its ``source`` is measured or given if it is a cost taken from outside; exact if it follows from
    counts alone; estimated if a part of it is; extrapolated if it carries a cost to another size.
    """

    name: str
    value: float
    text: str
    formula: str
    source: Source


def exact(name: str, value: int, formula: str) -> Figure:
    """A figure that follows from counts alone."""
    return Figure(name, value, f"{value:,}", formula, "exact")


@dataclass(frozen=True)
class Load:
    """One batch: contexts that are prefilled, and rows that go on from them; numbers of tokens.

    Attributes:
        endings: of each row's own end; none where contexts are whole prompts.
        patches: of all the contexts' frames, as the vision tower takes them.
        reply: written at most.
        later: ends of more rows that go on from the same contexts, no more of them at once.
    """

    contexts: tuple[int, ...]
    endings: tuple[int, ...]
    patches: int = 0
    reply: int = 0
    later: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """Rows that go on from the contexts, all in all."""
        return len(self.endings) + len(self.later)

    @property
    def wide(self) -> int:
        return max(self.contexts)

    @property
    def ending(self) -> int:
        """Tokens of the longest end."""
        return max(self.endings, default=0)

    @property
    def columns(self) -> int:
        """Keys and values in the cache: contexts stay while their rows go on with copies."""
        room = max(ROOM, self.ending, self.reply)
        return self.wide * len(self.contexts) + (self.wide + room) * len(self.endings)


class Counter:
    """Counts tokens and patches as a model's processor makes them.

    Text is cut by the tokenizer; where only a description of the model is here, by a stand-in, and
    numbers are stretched.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self.exact = not isinstance(loaded, PublishedModel)
        self.source: Source = "exact" if self.exact else "estimated"

    def ending(self, tokens: Sequence[int]) -> int:
        """Tokens of an ending, which the tokenizer has cut."""
        return len(tokens) if self.exact else math.ceil(len(tokens) * TEXT_FACTOR)

    def context(self, text: str, shape: tuple[int, ...] | None) -> tuple[int, int]:
        """Tokens and patches of a laid out text and of frames ``[F, height, width, 3]`` or none."""
        video, patches = video_size(self.loaded, shape[:3]) if shape else (0, 0)
        words = words_of(self.loaded, text, shape is not None)
        if not self.exact:
            words = math.ceil(words * TEXT_FACTOR) + TEXT_MORE
        return words + video, patches

    def rule(self) -> str:
        if self.exact:
            return "by the model's own tokenizer and processor"
        videos = sorted(tokens for tokens, _ in self.loaded.video_sizes.values())
        counted = f"videos {', '.join(f'{tokens:,}' for tokens in videos)} by the processor's rules"
        return (
            f"{f'{counted} + ' if videos else ''}text estimated: words and marks x {TEXT_FACTOR:g} "
            f"+ {TEXT_MORE}, as the vocabulary is not here"
        )


def tokens_each(name: str, tokens: Sequence[int], counter: Counter) -> Figure:
    """Tokens of a sample or prompt, over all of them."""
    mean = sum(tokens) / len(tokens)
    spread = f"{min(tokens):,} to {max(tokens):,}, {mean:,.1f} on average"
    return Figure(name, mean, spread, counter.rule(), counter.source)


def needs(
    loaded: LoadedModel, loads: Sequence[Load], quantization: str = "none"
) -> dict[str, Figure]:
    """Tokens, memory and arithmetic of passes through a model in one batch or more, by name.

    Memory is that of tensors: what libraries take, and scratch space inside kernels, comes on top.
    The weights are not read.
    """
    geometry = find_geometry(loaded.skeleton)
    item = DTYPE_BYTES[loaded.dtype]
    text = loaded.config.get_text_config()
    parameters = list(loaded.skeleton.named_parameters())
    inside = tuple(f"{name}." for name in geometry.layer_names)
    decoder = sum(p.numel() for name, p in parameters if name.startswith(inside) and p.ndim > 1)
    tower = sum(p.numel() for name, p in parameters if "vis" in name and p.ndim > 1)
    count = Counter(loaded).source
    found: dict[str, Figure] = {}

    def put(
        name: str,
        value: float,
        formula: str,
        shown: Callable[[float], str] = "{:,}".format,
        source: Source = count,
    ) -> None:
        found[name] = Figure(name, value, shown(value), formula, source)

    whole = sum(p.numel() for _, p in parameters)
    shown = f"{whole / 1e9:.3g} billion"
    found["parameters"] = Figure("parameters", whole, shown, "of the config's modules", "exact")
    ends = sum(sum(load.endings) + sum(load.later) for load in loads)
    read = ends + sum(sum(load.contexts) for load in loads)
    put("tokens read", read, "contexts once, and each row's own end")
    padded = sum(load.wide * len(load.contexts) + load.ending * load.rows for load in loads)
    put("tokens with padding", padded, "batches are as wide as their longest row")
    most = getattr(text, "max_position_embeddings", None)
    limit = f"; the model takes {most:,}" if most else ""
    longest = max(load.wide + load.ending + load.reply for load in loads)
    put("longest row", longest, f"context + end + reply{limit}")
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
    put("weights", weights, how, in_bytes, "exact")
    column = row_bytes(geometry, 1, item)
    put("cache of a token", column, "2 x L x kv heads x D x item", in_bytes, "exact")
    how = f"(contexts + rows x (context + {ROOM} or more)) x cache of a token, largest batch"
    put("cache", max(load.columns for load in loads) * column, how, in_bytes)
    seen, pixels = _tower(loaded.config)
    # Pixels as the processor leaves them, in float32, and as the model takes them.
    pixels *= 4 if item == 4 else 4 + item
    peak = max(
        load.patches * pixels
        + max(load.columns * column + _decoder_step(load, text) * item, load.patches * seen * item)
        for load in loads
    )
    how = "of a batch: its pixels + the larger of (cache + tokens x 3 x (width + MLP width) x item "
    how += "+ mask) and (patches x the same of the vision tower)"
    put("above the weights", peak, how, in_bytes)
    put("memory", weights + peak, "weights + above the weights", in_bytes)
    squares = sum(len(load.contexts) * load.wide**2 for load in loads)
    patches = sum(load.patches for load in loads)
    written = sum(load.rows * load.reply for load in loads)
    flops = 2.0 * decoder * (padded + written) + 2.0 * tower * patches
    flops += 4.0 * geometry.n_layers * geometry.n_heads * geometry.head_dim * squares
    how = "2 x decoder matrices x tokens + 4 x L x H x D x context^2 + 2 x tower x patches"
    put("FLOPs", flops, how, "{:.2e}".format)
    return found


def _decoder_step(load: Load, text: Any) -> int:
    """Numbers that one layer holds at once, at most: of its MLP, beside the attention mask."""
    columns = max(load.wide * len(load.contexts), load.ending * len(load.endings))
    mask = len(load.contexts) * load.wide**2
    return columns * 3 * (text.intermediate_size + text.hidden_size) + mask


def _tower(config: Any) -> tuple[float, int]:
    """Numbers that a layer of the vision tower holds for a patch, and those of a patch itself."""
    tower = getattr(config, "vision_config", None)
    if tower is None:
        return 0, 0
    width = getattr(tower, "embed_dim", None) or tower.hidden_size
    inner = getattr(tower, "intermediate_size", None) or width * tower.mlp_ratio
    return 3 * (inner + width), 3 * side_of(tower) ** 2 * getattr(tower, "temporal_patch_size", 1)


def disk(samples: int, layers: int, heads: int, width: int, dtype: str) -> Figure:
    """What the activations of so many samples take in a store."""
    item = DTYPE_BYTES[dtype]
    size = samples * layers * heads * width * item
    how = f"N x L x H x D x item = {samples:,} x {layers} x {heads} x {width} x {item}"
    return Figure("activations on disk", size, in_bytes(size), how, "exact")


def show(console: Console, name: str, figures: Sequence[Figure]) -> dict[str, Figure]:
    """Print a plan; of several processes of a launcher only the first does. Gives it by name."""
    title = f"{name}: nothing is computed or written"
    table = Table(title=escape(title), title_justify="left")
    for column in ("figure", "value", "formula", "from"):
        table.add_column(column, overflow="fold")
    for figure in figures:
        table.add_row(*map(escape, (figure.name, figure.text, figure.formula, figure.source)))
    if here().first:
        console.print(table)
    return {figure.name: figure for figure in figures}


def in_bytes(count: float) -> str:
    """Powers of a thousand, as disks are sold."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"
