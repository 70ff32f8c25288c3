"""A page in one file: figures by plotly, tables by pandas, and words that are shown as words.

The page holds one copy of plotly.js and names every script by its hash in a content security policy
that permits nothing else, no network either: words of samples, models or replies cannot act in it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image
from plotly.offline import get_plotlyjs

from sally_anne.core.files import write_atomic

SCRIPT = re.compile(r"<script[^>]*>(.*?)</script>", re.DOTALL)
TALL, MOST = 96, 8  # pixels of a strip's height, pictures in it


@dataclass(frozen=True)
class Page:
    """What a page shows, whatever kind of run it is of.

    Attributes:
        parts: stand below the title, joined by dots.
        sections: by their headings, lists of HTML made by the functions of this module.
        conclusions: sentences that follow the first, which is the result.
        badges: short words with a tone each, ``good``, ``bad`` or ``plain``.
        commands: what each next command does, and the command.
        numbers, heads: what an index over several runs shows: estimates, a table of heads.
    """

    title: str
    parts: Sequence[str]
    sentence: str
    repeat: str
    sections: Mapping[str, Sequence[str]]
    conclusions: Sequence[str] = ()
    badges: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    heads: pd.DataFrame | None = None

    def html(self) -> str:
        """The page."""
        loader = PackageLoader("sally_anne.figures", ".")
        room = Environment(
            loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        plotly = get_plotlyjs()
        body = "".join(part for parts in self.sections.values() for part in parts)
        hashes = (
            hashlib.sha256(script.encode()).digest() for script in (plotly, *SCRIPT.findall(body))
        )
        allowed = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in hashes)
        known = json.dumps(self.facts, indent=1, default=str)
        template = room.get_template("page.html")
        return template.render(page=self, plotly=plotly, allowed=allowed, facts=known)

    def write(self, path: Path) -> Path:
        """Write the page wholly or not at all; return its path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, self.html().encode())
        return path


def plot(figure: go.Figure, height: int, **layout: Any) -> str:
    """A figure of plotly as HTML that needs the page's copy of plotly.js."""
    margin = {"l": 60, "r": 20, "t": 50, "b": 50}
    figure.update_layout(template="plotly_white", height=height, margin=margin, dragmode=False)
    figure.update_layout(paper_bgcolor="rgba(0,0,0,0)", **layout)
    config = {"displayModeBar": False, "responsive": True}
    # plotly's own id is random; the same figure gives the same page.
    name = hashlib.sha256(figure.to_json().encode()).hexdigest()[:16]
    options = {"full_html": False, "include_plotlyjs": False, "div_id": f"plot-{name}"}
    drawing = figure.to_html(config=config, **options)
    return f'<div class="scroll">{drawing}</div>'


def literal(words: Any) -> str:
    """Words in which plotly sees no markup of its own."""
    return html.escape(str(words), quote=False)


def table(rows: pd.DataFrame, caption: str, most: int = 1000) -> str:
    """The first rows of a table, with all of them as a file to take."""
    note = f" (the first {most} of {len(rows)} rows)" if len(rows) > most else ""
    data = base64.b64encode(rows.to_csv(index=False).encode()).decode()
    name = re.sub(r"\W+", "-", caption)[:40].strip("-") or "table"
    link = f'<a download="{name}.csv" href="data:text/csv;base64,{data}">CSV</a>'
    body = rows.head(most).to_html(
        index=False, border=0, na_rep="–", float_format=lambda value: f"{value:.3g}", classes=""
    )
    title = f"<caption>{html.escape(caption + note)} <span>{link}</span></caption>"
    return f'<div class="scroll">{body.replace("<thead>", f"{title}<thead>", 1)}</div>'


def details(summary: str, *parts: str, name: str = "", is_open: bool = False) -> str:
    """What opens at a click; of those with one ``name`` one at a time."""
    group = f' name="{html.escape(name)}"' if name else ""
    start = f"<details{group}{' open' if is_open else ''}><summary>{html.escape(summary)}</summary>"
    return f"{start}{''.join(parts)}</details>"


def words(text: str, kind: str = "hint") -> str:
    """A paragraph."""
    return f'<p class="{kind}">{html.escape(text)}</p>'


def picture(png: bytes, about: str) -> str:
    """A PNG."""
    data = base64.b64encode(png).decode()
    return f'<img src="data:image/png;base64,{data}" alt="{html.escape(about)}">'


def strip(frames: np.ndarray, about: str) -> str:
    """Some frames ``uint8 [F, height, width, 3]`` next to each other, small."""
    places = np.linspace(0, len(frames) - 1, min(MOST, len(frames))).round().astype(int)
    sheet = Image.fromarray(np.concatenate(frames[places], axis=1))
    across = max(1, round(sheet.width * TALL / sheet.height))
    buffer = io.BytesIO()
    # In all their colours: of a palette the small shapes, which are the agents, would lose theirs.
    sheet.resize((across, TALL), Image.Resampling.BOX).save(buffer, "PNG", optimize=True)
    return picture(buffer.getvalue(), about)


def percent(estimate: Mapping[str, Any]) -> str:
    """A share and, where it has one, its interval, in %."""
    value, low, high = (estimate.get(end) for end in ("value", "low", "high"))
    if value is None or math.isnan(value):
        return "–"
    text = f"{100 * value:.1f}"
    known = low is not None and high is not None and not math.isnan(low)
    return f"{text} [{100 * low:.1f}, {100 * high:.1f}]" if known else text  # type: ignore[operator]
