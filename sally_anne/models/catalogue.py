"""The names that ``--model`` takes, and where their weights are."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One name of the catalogue.

    Attributes:
        source: hub id, or the packaged folder.
        note: one line for humans.
        films: whether it watches films.
    """

    source: str
    note: str
    films: bool = True


def _packaged(name: str) -> str:
    return str(Path(str(files("sally_anne.models"))) / "tiny" / name)


CATALOGUE: dict[str, Entry] = {
    "tiny-qwen2-vl": Entry(_packaged("tiny-qwen2-vl"), "trained on grid stories, shipped, CPU"),
    "tiny-llava-next-video": Entry(
        _packaged("tiny-llava-next-video"), "trained on grid stories, shipped, CPU"
    ),
    "qwen2-vl": Entry("Qwen/Qwen2-VL-7B-Instruct", "28 layers x 28 heads x 128"),
    "qwen2-vl-2b": Entry("Qwen/Qwen2-VL-2B-Instruct", "28 layers x 12 heads x 128"),
    "llava-next-video": Entry("llava-hf/LLaVA-NeXT-Video-7B-hf", "32 layers x 32 heads x 128"),
    "qwen2.5-vl": Entry("Qwen/Qwen2.5-VL-7B-Instruct", "28 layers x 28 heads x 128"),
    "qwen3-vl": Entry("Qwen/Qwen3-VL-8B-Instruct", "36 layers x 32 heads x 128"),
    "llava-onevision": Entry(
        "llava-hf/llava-onevision-qwen2-7b-ov-hf", "28 layers x 28 heads x 128"
    ),
    "internvl3": Entry("OpenGVLab/InternVL3-8B-hf", "28 layers x 28 heads x 128"),
    "gemma3": Entry("google/gemma-3-4b-it", "34 layers x 8 heads x 256, text alone", films=False),
    "llama3": Entry(
        "meta-llama/Llama-3.1-8B-Instruct", "32 layers x 32 heads x 128, text alone", films=False
    ),
    "qwen3": Entry("Qwen/Qwen3-8B", "36 layers x 32 heads x 128, text alone", films=False),
    "mistral": Entry(
        "mistralai/Mistral-7B-Instruct-v0.3", "32 layers x 32 heads x 128, text alone", films=False
    ),
}
DEFAULT_MODEL = "tiny-qwen2-vl"


def describe() -> str:
    """The catalogue, a line a name."""
    return "\n".join(f"  {name:22} {entry.note}" for name, entry in CATALOGUE.items())
