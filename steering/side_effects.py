"""``sally-anne side-effects``: what else a vector changes, in neutral prompts and in any task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sally_anne.data.items import Setting
from sally_anne.harness.protocols import Baseline
from sally_anne.models.options import ModelOptions
from sally_anne.steering.sweep import own_name

NEUTRAL = Path(__file__).parent / "neutral_prompts.txt"


@dataclass(frozen=True)
class SideEffectsConfig(ModelOptions):
    """Measure what a steering vector changes beside what it is for.

    Attributes:
        vector: folder of a steering vector, or user/name[@revision] on a hub.
        alpha: strength; the vector's own by default.
        tasks: what is asked with and without the vector: a task of ``sally-anne evaluate``, with
            its order after a colon (gridtom:initial), or with its folder after an equals sign
            (bigtom=FOLDER). One's own are asked as there: mine.jsonl, package.module:NAME.
        prompts: file with one neutral prompt a line; our own by default.
        prompting: ways to put the questions that are measured beside steering, on the same items:
            cot, simtom, few-shot, as of ``sally-anne evaluate``.
        setting: GridToM: frames and text, frames, or text.
        limit: only so many stories of each task, drawn as in ``sally-anne evaluate``.
        out: folder; named after vector and model by default. An existing one is resumed.
        batch_size: prompts that go through the model together.
        max_new_tokens: length of a reply; by default 16 to neutral prompts, and what a task needs.
        allow_mismatch: steer a model that the vector was not fitted on.
    """

    vector: Path
    alpha: float | None = None
    tasks: tuple[str, ...] = ("gridtom:1", "gridtom:initial")
    prompts: Path = NEUTRAL
    prompting: tuple[Baseline, ...] = ()
    setting: Setting = "multimodal"
    limit: int | None = 50
    out: Path | None = None
    batch_size: int = 8
    max_new_tokens: int | None = None
    allow_mismatch: bool = False

    @property
    def folder(self) -> Path:
        """Where the measurement is kept."""
        if self.out is not None:
            return self.out
        parts = [Path(self.model).name or "model", own_name(self.vector)]
        if self.alpha is not None:
            parts.append(f"alpha{self.alpha:g}")
        return Path("runs") / "side-effects" / "-".join(parts)
