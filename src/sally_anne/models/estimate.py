"""What a run needs, worked out before it: tokens, memory and disk, each with its formula."""

from __future__ import annotations

import json
import math
import time
from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, get_args

import torch
import transformers
from torch import nn

from sally_anne.core.console import Console, print_table
from sally_anne.core.errors import ModelError
from sally_anne.core.processes import first_gpu, here
from sally_anne.hooks.geometry import Geometry, find_geometry, o_projs
from sally_anne.hooks.identity import weight_files
from sally_anne.models.families import check_senses, family_of
from sally_anne.models.loading import LoadedModel, check_frame_options, load_model
from sally_anne.models.options import CATALOGUE, Dtype, ModelOptions
from sally_anne.models.processor import RAW, TextProcessor, showing_of
from sally_anne.models.prompts import Prompt
from sally_anne.models.videos import context_of, side_of, video_size, words_of

# Bytes of a number of a linear layer; 64 numbers of 4 bits share a scale in float32.
QUANTIZED = {"8bit": 1, "4bit": 0.5 + 4 / 64}
# Whose weights are unpacked in loading or in the first pass, at least without a GPU.
_UNPACKED = (None, "compressed-tensors", "fp8", "mxfp4")
# Published vocabularies cut some words in two; chat layouts add a system message.
TEXT_FACTOR, TEXT_MORE = 1.1, 20


@dataclass(frozen=True)
class Figure:
    """One line of a plan: a value in the unit of its name, as it is shown, and its formula."""

    name: str
    value: float
    text: str
    formula: str


def exact(name: str, value: int, formula: str) -> Figure:
    """A figure that is a count."""
    return Figure(name, value, f"{value:,}", formula)


def in_bytes(name: str, value: float, formula: str) -> Figure:
    """A figure in bytes, shown by powers of a thousand, as disks are sold."""
    power = min(4, int(math.log(max(value, 1), 1000)))
    text = f"{value / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
    return Figure(name, value, text, formula)


@dataclass(frozen=True)
class Load:
    """One batch: tokens of contexts that are prefilled, and of the ends of rows that go on.

    ``patches`` are of all the contexts' frames, the ``reply`` is written at most, and ``later`` are
    ends of more rows that go on from the same contexts, no more of them at once.
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


class Counter:
    """Counts tokens and patches as a processor makes them; of a mere description with a stretch."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded, self.exact = loaded, not isinstance(loaded, PublishedModel)
        self.factor, self.more = (1.0, 0) if self.exact else (TEXT_FACTOR, TEXT_MORE)

    def ending(self, tokens: Sequence[int]) -> int:
        """Tokens of an ending, which the tokenizer has cut."""
        return math.ceil(len(tokens) * self.factor)

    def context(self, text: Prompt, shape: tuple[int, ...] | None) -> tuple[int, int]:
        """Tokens and patches of a laid out text and of frames ``[F, height, width, 3]`` or none."""
        video, patches = video_size(self.loaded, shape[:3]) if shape else (0, 0)
        words = words_of(self.loaded, text, shape is not None)
        return math.ceil(words * self.factor) + self.more + video, patches

    def each(self, name: str, tokens: Sequence[int]) -> Figure:
        """Tokens of a sample or prompt, over all of them."""
        mean, how = sum(tokens) / len(tokens), "by the model's own tokenizer and processor"
        if not self.exact:
            how = f"text estimated, as the vocabulary is not here: x {self.factor:g} + {self.more}"
        spread = f"{min(tokens):,} to {max(tokens):,}, {mean:,.1f} on average"
        return Figure(name, mean, spread, how)


def needs(
    loaded: LoadedModel, loads: Sequence[Load], quantization: str = "none"
) -> dict[str, Figure]:
    """Tokens and memory (of tensors) of passes in one batch or more; the weights are not read."""
    geometry = find_geometry(loaded.skeleton)
    item = getattr(torch, loaded.dtype).itemsize
    text = loaded.config.get_text_config()
    whole = sum(p.numel() for p in loaded.skeleton.parameters())
    read = sum(sum(map(sum, (load.contexts, load.endings, load.later))) for load in loads)
    limit = context_of(loaded)
    longest = max(max(load.contexts) + max(load.endings, default=0) + load.reply for load in loads)
    weights, how = float(whole * item), "parameters x item"
    stored = getattr(loaded.config, "quantization_config", None) or {}
    packed = weight_files(loaded.location, loaded.hub_revision)
    if packed and stored.get("quant_method") not in _UNPACKED:
        weights, how = float(sum(path.stat().st_size for path in packed)), "as they are stored"
    if quantization in QUANTIZED:
        parts = loaded.skeleton.named_modules()
        # All but the last, which gives the logits.
        linear = (m for n, m in parts if isinstance(m, nn.Linear) and not n.endswith("lm_head"))
        weights -= sum(m.weight.numel() for m in linear) * (item - QUANTIZED[quantization])
        how += f", of linear layers x {QUANTIZED[quantization]:g}"
    column = row_bytes(geometry, 1, item)
    seen, pixels = _tower(loaded.config)
    # Pixels in float32 and as the model takes them; of what follows on films' common beginnings,
    # seven eighths at most, a copy.
    pixels *= 4 + item * ((item < 4) + 7 / 8)
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    inner = max(inner) if isinstance(inner, list) else inner  # one of each layer
    peaks = []
    for load in loads:
        wide, ending = max(load.contexts), max(load.endings, default=0)
        columns = max(wide * len(load.contexts), ending * len(load.endings))
        # What one layer holds at once, at most: of its MLP, and the attention mask.
        layer = columns * 3 * (inner + text.hidden_size) + len(load.contexts) * wide**2
        # Contexts stay while their rows go on with copies.
        kept = wide * len(load.contexts) + (wide + ending + load.reply) * len(load.endings)
        decoder = kept * column + layer * item
        peaks.append(load.patches * pixels + max(decoder, load.patches * seen * item))
    peak = max(peaks)
    device, rate = speed(loaded.dtype)
    least = 2 * whole * read / rate
    above = "of the largest batch: pixels + the larger of (cache of contexts and rows + one layer's"
    above += " MLP + mask) and (vision tower's layer)"
    reads = f"2 x parameters x tokens read, at {rate / 1e12:.3g} TFLOP/s, which a matrix product in"
    reads += f" {loaded.dtype} reaches on {device} now, to a third of it"
    figures = [
        Figure("parameters", whole, f"{whole / 1e9:.3g} billion", "of the config's modules"),
        exact("tokens read", read, "contexts once, and each row's own end"),
        exact("longest row", longest, f"context + end + reply; the model takes {limit}"),
        in_bytes("weights", weights, how),
        in_bytes("cache of a token", column, "2 x L x kv heads x D x item"),
        in_bytes("above the weights", peak, above),
        in_bytes("memory", weights + peak, "weights + above the weights"),
        Figure("seconds of reading", least, f"{least:,.0f} to {3 * least:,.0f}", reads),
    ]
    return {figure.name: figure for figure in figures}


def speed(dtype: str) -> tuple[str, float]:
    """The device that takes a model by default, and FLOPs a second of a large matrix product."""
    device = first_gpu() or "cpu"
    side = 1024 if device == "cpu" else 8192
    factor = torch.randn(side, side, device=device).to(getattr(torch, dtype))
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        # Reading a number waits for the device.
        float((factor @ factor)[0, 0])
        seconds.append(time.perf_counter() - start)
    return device, 2 * side**3 / min(seconds)


def row_bytes(geometry: Geometry, tokens: int, itemsize: int) -> int:
    """Bytes of a row's keys and values in all layers, ``itemsize`` bytes a number."""
    return 2 * geometry.n_layers * geometry.n_kv_heads * geometry.head_dim * tokens * itemsize


def row_bytes_by_device(model: Any, tokens: int) -> dict[torch.device, int]:
    """What a row's cache takes on each device that holds layers of ``model``."""
    places: Tally[torch.device] = Tally()
    for o_proj in o_projs(model):
        # Offloaded weights are nowhere, and computed with where accelerate brings them.
        brought = getattr(getattr(o_proj, "_hf_hook", None), "execution_device", None)
        held = (*o_proj.parameters(), *o_proj.buffers())
        place: Any = held[0].device if brought is None else brought
        places[torch.device(place)] += 1
    geometry = find_geometry(model)
    whole = row_bytes(geometry, tokens, model.dtype.itemsize)
    return {device: whole * n // geometry.n_layers for device, n in places.items()}


def _tower(config: Any) -> tuple[float, int]:
    """Numbers that a layer of the vision tower holds for a patch, and those of a patch itself."""
    tower = getattr(config, "vision_config", None)
    if tower is None:
        return 0, 0
    width = getattr(tower, "embed_dim", None) or getattr(tower, "hidden_size", None) or 1024
    inner = getattr(tower, "intermediate_size", None) or width * getattr(tower, "mlp_ratio", 4)
    return 3 * (inner + width), 3 * side_of(tower) ** 2 * getattr(tower, "temporal_patch_size", 1)


def disk(samples: int, layers: int, heads: int, width: int, dtype: str) -> Figure:
    """What the activations of so many samples take in a store."""
    item = getattr(torch, dtype).itemsize
    how = f"N x L x H x D x item = {samples:,} x {layers} x {heads} x {width} x {item}"
    return in_bytes("activations on disk", samples * layers * heads * width * item, how)


def show(console: Console, name: str, figures: Sequence[Figure]) -> dict[str, Figure]:
    """Print a plan, by the first process alone. Gives it by name."""
    if here().first:
        rows = [(figure.name, figure.text, figure.formula) for figure in figures]
        title = f"{name}: nothing is computed or written"
        print_table(console, title, ("figure", "value", "formula"), rows)
    return {figure.name: figure for figure in figures}


class PublishedModel(LoadedModel):
    """A model of which everything is known but its weights and vocabulary."""

    parameters: int

    @property
    def model(self) -> Any:  # type: ignore[override]
        raise ModelError(f"model {self.name!r} is here as a description alone, without its weights")


def open_described(options: ModelOptions, videos: bool = False) -> LoadedModel:
    """A model whose weights are not needed: of the hub's catalogue models the description."""
    asked, dtype = options.model, options.dtype
    every = json.loads((files("sally_anne.models") / "published.json").read_text())
    name = next((known for known in every if asked in (known, CATALOGUE[known].source)), None)
    if dtype not in get_args(Dtype) or name is None:
        # What another machine may have, this one need not.
        here = {"device_map": None, "attn_implementation": None, "quantization": "none"}
        return load_model(**options.opening() | here, videos=videos)
    entry, source = every[name], CATALOGUE[name].source
    config = transformers.AutoConfig.for_model(**entry["config"])
    family, processor = family_of(config.model_type, name), _processor(entry)
    dtype = entry["dtype"] if dtype == "auto" else dtype
    known = family, showing_of(family, processor), dtype, config, processor, source
    loaded = PublishedModel(name, source, "published", *known)
    loaded.parameters = entry["parameters"]
    given = {"max_pixels": options.max_pixels, "crop": options.crop}
    loaded.changes |= {option: str(value) for option, value in given.items() if value}
    check_senses(loaded, videos)
    check_frame_options(loaded)
    if options.prompt == RAW:
        loaded.prompt = loaded.changes["prompt"] = RAW
    return loaded


def _processor(entry: dict[str, Any]) -> Any:
    """The true processor class with the true sizes, and a shipped tokenizer."""
    folder = CATALOGUE[entry["tokenizer"]].source
    marks = {"extra_special_tokens": entry["marks"]} if "marks" in entry else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left", **marks)
    described = entry.get("processor")
    if described is None:
        return TextProcessor(tokenizer)
    how = {"tokenizer": tokenizer, "chat_template": tokenizer.chat_template}
    for part in {"image_processor", "video_processor"} & described.keys():
        settings = dict(described[part])
        how[part] = getattr(transformers, settings.pop("class"))(**settings)
    return getattr(transformers, described["class"])(**how, **described.get("options", {}))
