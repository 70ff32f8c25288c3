"""``sally-anne films``: which films are worth questions on mental states, by their synopses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sally_anne.harness.config import DEFAULT_BATCH, EndpointOptions, run_folder
from sally_anne.models.options import ModelOptions


@dataclass(frozen=True)
class FilmsConfig(ModelOptions, EndpointOptions):
    """Rank films by how social a model takes them to be, from their synopses.

    Attributes:
        data: films, one a line of JSON: title, synopsis (films without one are not ranked), and if
            you like id, which may be left out where titles differ.
        out: run folder; named after the options by default. An existing one is resumed, also with
            more films.
        batch_size: prompts that go through the model together, or requests that are made to an
            endpoint at once.
    """

    data: Path
    out: Path | None = None
    batch_size: int = DEFAULT_BATCH

    @property
    def folder(self) -> Path:
        return run_folder(self, "films", [self.data.stem])
