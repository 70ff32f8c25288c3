"""A page in one file: words are escaped, numbers are JSON, and only its own scripts may run.

The page holds plotly.js and names every script by its hash in a content security policy that
permits nothing else, no network either: words of samples, models or replies cannot act in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.core.files import write_atomic

DIGITS = 5  # significant ones of a number in the page


@dataclass(frozen=True)
class Table:
    """A table in words: ``rows`` of cells as they are shown, below a ``caption``."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Page:
    """What a page says, whatever it is of.

    Attributes:
        kind: of the run, the name of its template and script.
        title: its heading; ``parts`` stand below, joined by dots.
        sentence: the result in one sentence; ``verdicts`` follow.
        badges: short words with a tone each, ``good``, ``bad`` or ``plain``.
        warnings: what a reader should know first.
        commands: what each next command does, and the command.
        data: what the scripts draw, JSON but for numpy's arrays and tables.
        tables: shown beside the figures.
        provenance: names and values.
        repeat: the command that does the run again.
    """

    kind: str
    title: str
    parts: Sequence[str]
    sentence: str
    data: Mapping[str, Any]
    verdicts: Sequence[str] = ()
    badges: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    commands: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    provenance: Sequence[tuple[str, str]] = ()
    repeat: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    def html(self) -> str:
        """The page."""
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from plotly.offline import get_plotlyjs

        room = Environment(
            loader=PackageLoader("sally_anne.figures.report", "parts"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        scripts = [get_plotlyjs(), _part("page.js") + _part(f"{self.kind}.js")]
        hashes = [
            base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            for script in scripts
        ]
        return room.get_template(f"{self.kind}.html").render(
            page=self,
            style=_part("page.css"),
            scripts=scripts,
            allowed=" ".join(f"'sha256-{name}'" for name in hashes),
            data=as_json(self.data),
        )

    def write(self, path: Path) -> Path:
        """Write the page wholly or not at all; return its path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, self.html().encode())
        return path


def as_json(value: Any) -> str:
    """JSON that no HTML reader takes for anything else; what is not finite is null."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def packed(values: np.ndarray) -> str:
    """Numbers as little-endian bytes in base64, which a page reads without parsing them."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()


def percent(estimate: Mapping[str, Any], sign: str = "") -> str:
    """A share and, where it has one, its interval, in %; ``sign`` as in a format."""
    if estimate.get("value") is None or math.isnan(estimate["value"]):
        return "–"
    said = f"{100 * estimate['value']:{sign}.1f}"
    if estimate.get("low") is None or math.isnan(estimate["low"]):
        return said
    return f"{said} [{100 * estimate['low']:.1f}, {100 * estimate['high']:.1f}]"


def facts(config: Mapping[str, Any], **more: Any) -> list[tuple[str, str]]:
    """Provenance: what is known beside the options, and the options that are set."""
    known = [*more.items(), *config.items()]
    return [(name, _said(value)) for name, value in known if value not in (None, "", {}, [])]


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_said(one)}" for name, one in value.items())
    return ", ".join(map(_said, value)) if isinstance(value, list | tuple) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return {str(name): _plain(value[name].to_numpy()) for name in value}
    if isinstance(value, np.ndarray):
        return [_plain(one) for one in value.tolist()]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)


def _part(name: str) -> str:
    return (files("sally_anne.figures.report") / "parts" / name).read_text(encoding="utf-8")
