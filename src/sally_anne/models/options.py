"""Which model, and how it is opened: the names that ``--model`` takes and the shared options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console

from sally_anne.core.console import print_table
from sally_anne.core.errors import ModelError
from sally_anne.core.files import read_object
from sally_anne.core.folder import record_of
from sally_anne.core.processes import place_of
from sally_anne.hooks.identity import GGUF
from sally_anne.models.families import family_of

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Attention = Literal["eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]
Quantization = Literal["none", "8bit", "4bit"]
PromptFrame = Literal["auto", "chat", "raw"]


class Entry(NamedTuple):
    """A hub id or packaged folder, and how it is given frames."""

    source: str
    note: str
    frames: str = "frames as one video"

    @property
    def about(self) -> str:
        return f"{self.note}, {self.frames or 'text alone'}"


_TINY = Path(__file__).parent / "tiny"
_SEVEN = "28 layers x 28 heads x 128"
_TRAINED = "trained on grid stories, in words and films"
_TOLD = "planted models are made of it"
_UNSEEN = "frames as one video, though it answers by captions alone"

CATALOGUE: dict[str, Entry] = {
    "tiny-qwen2-vl": Entry(str(_TINY / "tiny-qwen2-vl"), _TRAINED),
    "tiny-llava-next-video": Entry(str(_TINY / "tiny-llava-next-video"), _TRAINED),
    "tiny-qwen2-vl-text": Entry(str(_TINY / "tiny-qwen2-vl-text"), _TOLD, _UNSEEN),
    "tiny-llava-next-video-text": Entry(str(_TINY / "tiny-llava-next-video-text"), _TOLD, _UNSEEN),
    "qwen2-vl": Entry("Qwen/Qwen2-VL-7B-Instruct", _SEVEN),
    "qwen2-vl-2b": Entry("Qwen/Qwen2-VL-2B-Instruct", "28 layers x 12 heads x 128"),
    "llava-next-video": Entry("llava-hf/LLaVA-NeXT-Video-7B-hf", "32 layers x 32 heads x 128"),
    "qwen2.5-vl": Entry("Qwen/Qwen2.5-VL-7B-Instruct", _SEVEN),
    "qwen3-vl": Entry("Qwen/Qwen3-VL-8B-Instruct", "36 layers x 32 heads x 128"),
    "llava-onevision": Entry("llava-hf/llava-onevision-qwen2-7b-ov-hf", _SEVEN),
    "internvl3": Entry("OpenGVLab/InternVL3-8B-hf", _SEVEN),
    "gemma3": Entry("google/gemma-3-4b-it", "34 layers x 8 heads x 256", "each frame a picture"),
    "llama3": Entry("meta-llama/Llama-3.1-8B-Instruct", "32 layers x 32 heads x 128", ""),
    "qwen3": Entry("Qwen/Qwen3-8B", "36 layers x 32 heads x 128", ""),
    "smollm2": Entry("HuggingFaceTB/SmolLM2-135M-Instruct", "30 layers x 9 heads x 64", ""),
    "mistral": Entry("mistralai/Mistral-7B-Instruct-v0.3", "32 layers x 32 heads x 128", ""),
}
DEFAULT_MODEL = "tiny-qwen2-vl"
# Where a checkpoint says how it takes pictures.
PICTURES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")


@dataclass(frozen=True)
class ListOptions:
    """The names that --model takes, beside hub ids, folders and GGUF files."""


def list_models(options: ListOptions) -> None:
    """Print the catalogue: each model's source and heads, and the weights that were tried."""
    rows = []
    for name, entry in CATALOGUE.items():
        shipped = entry.source.startswith(str(_TINY))
        where = "shipped" if shipped else entry.source
        tried = "these" if shipped else "published" if name == "smollm2" else "random"
        rows.append((name, f"{where}: {entry.about}; tried with {tried} weights"))
    print_table(Console(), "models with a name", ("name", "what"), rows)
    print("Random weights: small models of the same class, and the full shape without weights.")
    print("Of any other model `sally-anne check --model HUB_ID` says what would be read.")


def reads_only(model: str | Path, processor: str | None = None) -> bool:
    """Whether a model takes no films, as far as its catalogue entry, file or folder says so."""
    for name, entry in CATALOGUE.items():
        if str(model) in (name, entry.source):
            return not entry.frames
    place = Path(model).expanduser()
    if place.suffix == GGUF or (place.is_dir() and any(place.glob(f"*{GGUF}"))):
        return True
    try:
        about = read_object(place / "config.json", ModelError, "save_pretrained")
        named = str(about.get("model_type")), str(model), about.get("architectures") or ()
        if family_of(*named).reads_only:
            return True
        given = place if processor is None else Path(processor).expanduser()
        shown = any((given / name).exists() for name in PICTURES)
        return (given / "tokenizer_config.json").exists() and not shown
    except ModelError:  # of a hub's model it is not known yet; what is wrong is said at loading
        return False


def settle(options: Any, made: bool = False) -> None:
    """Set the setting and prompts of a command that are auto; what is made here is raw text."""
    if made and options.prompt == "auto":
        object.__setattr__(options, "prompt", "raw")
    if options.setting == "auto":
        own = getattr(options, "samples", None) is not None
        text = made or (not own and reads_only(options.model, options.processor))
        object.__setattr__(options, "setting", "text" if text else "multimodal")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and how it is opened.

    Attributes:
        model: a name that `sally-anne models` lists, a hub id, a folder or a GGUF file.
        adapter: a LoRA adapter that is merged into the weights, a folder, a hub id, or
            smollm2-beliefs, which comes with this package; needs peft. Where --model is an adapter
            itself, it is merged into the model that it names.
        processor: where tokenizer and processor are, if not with the model: name, hub id or folder.
        prompt: what stands around a text: chat is the model's chat template; raw is nothing, for
            models that go on with a text, and an answer is what goes on; auto is chat where there
            is a template, else raw.
        date: today, for a chat template that names the day, as 2026-01-31; by default the
            day on which the run began.
        dtype: of the weights: float32, bfloat16, float16, or auto: as they are stored.
        device: where the whole model is put: cpu, cuda, cuda:1 or mps; by default cuda, then mps
            (Apple's), then cpu, the first that is there.
        device_map: as in accelerate, e.g. auto, which spreads a model over GPUs and memory; in the
            place of --device.
        revision: branch, tag or commit on the hub.
        attn_implementation: how attention is computed; transformers' own choice by default.
        quantization: linear layers in 8bit or 4bit, with bitsandbytes where it is installed; none
            leaves all weights in --dtype.
        max_pixels: of a frame, for models that take frames of any size (Qwen's): larger ones are
            scaled down. By default to three quarters of the model's context for all frames
            together; the rest is for words and reply.
        crop: leave frames to a processor that cuts their edges off, as LLaVA-NeXT-Video's does, and
            the released GridToM code; by default they are padded first, so that all is seen.
    """

    model: str = DEFAULT_MODEL
    adapter: str | None = None
    processor: str | None = None
    prompt: PromptFrame = "auto"
    date: str | None = None
    dtype: Dtype = "auto"
    device: str | None = None
    device_map: str | None = None
    revision: str | None = None
    attn_implementation: Attention | None = None
    quantization: Quantization = "none"
    max_pixels: int | None = None
    crop: bool = False

    @property
    def place(self) -> str | None:
        """Where the model is put, as a device map; a ModelError if it is said twice."""
        return place_of(self.device, self.device_map)

    def opening(self) -> dict[str, Any]:
        """The arguments of :func:`sally_anne.models.loading.load_model`."""
        options = self.model_options() | {"device_map": self.place}
        del options["device"]
        if self.date is None and (folder := getattr(self, "folder", None)):
            options["date"] = record_of(folder).get("begun")
        return {"name": options.pop("model")} | options

    def model_options(self, *more: str) -> dict[str, Any]:
        """These options and ``more`` by name, for another command's config."""
        return {name: getattr(self, name) for name in (*ModelOptions.__dataclass_fields__, *more)}
