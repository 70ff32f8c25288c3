"""Published models as data (``published.json``), to reckon what a run needs without weights.

Text is cut by a shipped tokenizer of whole words, so its tokens are estimated; a video's are exact.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, get_args

import transformers

from sally_anne.core.errors import ModelError
from sally_anne.models.families import check_videos, family_of
from sally_anne.models.loading import LoadedModel, check_pixels, load_model
from sally_anne.models.options import CATALOGUE, Dtype, ModelOptions
from sally_anne.models.processor import TextProcessor

# Published vocabularies cut some words in two; chat layouts add a system message.
TEXT_FACTOR, TEXT_MORE = 1.1, 20


class PublishedModel(LoadedModel):
    """A model of which everything is known but its weights and vocabulary."""

    parameters: int

    @property
    def model(self) -> Any:  # type: ignore[override]
        raise ModelError(f"model {self.name!r} is here as a description alone, without its weights")


def open_described(options: ModelOptions, videos: bool = False) -> LoadedModel:
    """A model whose weights are not needed: of the hub's catalogue models the description."""
    # What another machine may have, this one need not.
    here = {"device_map": None, "attn_implementation": None, "quantization": "none"}
    opening = options.opening() | here
    name, dtype, pixels = options.model, options.dtype, options.max_pixels
    if dtype not in get_args(Dtype) or _entry(name) is None:
        return load_model(**opening, videos=videos)
    loaded = open_published(name, dtype)
    if videos:
        check_videos(loaded.family, name)
    if pixels is not None:
        check_pixels(loaded.family, name, pixels)
        loaded.changes["max_pixels"] = str(pixels)
    return loaded


def open_published(name: str, dtype: str = "auto") -> PublishedModel:
    """The description of a catalogue model that is not shipped, by its name or hub id."""
    found = _entry(name)
    if found is None:
        raise ModelError(f"model {name!r} is not described; its files are needed")
    name, entry = found
    options = dict(entry["config"])
    config = transformers.AutoConfig.for_model(options.pop("model_type"), **options)
    loaded = PublishedModel(
        name=name,
        source=CATALOGUE[name].source,
        revision="published",
        family=family_of(config.model_type, name),
        dtype=entry["dtype"] if dtype == "auto" else dtype,
        config=config,
        processor=_processor(entry),
        location=CATALOGUE[name].source,
    )
    loaded.processor.tokenizer.padding_side = "left"
    loaded.parameters = entry["parameters"]
    return loaded


def _entry(name: str) -> tuple[str, dict[str, Any]] | None:
    everything = json.loads((files("sally_anne.models") / "published.json").read_text())
    for known, entry in everything.items():
        if name in (known, CATALOGUE[known].source):
            return known, entry
    return None


def _processor(entry: dict[str, Any]) -> Any:
    """The true processor class with the true sizes, and a shipped tokenizer."""
    folder = CATALOGUE[entry["tokenizer"]].source
    marks = {"extra_special_tokens": entry["marks"]} if "marks" in entry else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **marks)
    described = entry.get("processor")
    if described is None:
        return TextProcessor(tokenizer)
    eyes = {}
    for part in ("image_processor", "video_processor"):
        settings = dict(described[part])
        eyes[part] = getattr(transformers, settings.pop("class"))(**settings)
    return getattr(transformers, described["class"])(
        tokenizer=tokenizer,
        chat_template=tokenizer.chat_template,
        **eyes,
        **described.get("options", {}),
    )
