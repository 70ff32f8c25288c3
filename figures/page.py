"""A page in one file that runs no script: tables by pandas, and words that are shown as words.

What opens or is chosen is HTML's own; a content security policy permits neither scripts nor a
network: words of samples, models or replies cannot act in it.
"""

from __future__ import annotations

import base64
import html
import io
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader
from PIL import Image

from sally_anne.core.console import percent
from sally_anne.core.files import write_atomic
from sally_anne.core.options import command_line, flag_name
from sally_anne.core.run import FIRST_TASK
from sally_anne.models.options import ModelOptions

# Pixels of a strip's height, pictures in it, and bytes above which it is a JPEG.
TALL, MOST, HEAVY = 96, 8, 30_000
# Kinds of replies, in their order.
KINDS = "wrong invalid changed right unparsed"
# Options that need not be named.
USUAL = {"setting": "multimodal", "style": "plain", "protocol": "sally-anne", "split_seed": 0}
USUAL |= {"data_seed": 2025, "order": "1"}
# What words of a page mean; those that stand in it are explained in it.
GLOSSARY = {
    "Y_p": "label of a statement: does it fit what the protagonist believes?",
    "Y_o": "the same by the omniscient perspective: does it fit reality?",
    "L4H0": "head 0 of layer 4; both are counted from 0.",
    "null": "what the best of all heads reaches by chance, in 5 % of permuted labels.",
    "readable": "a probe of the head tells the label on held-out samples above the null.",
    "used": "exchanging a head, or a set, within pairs moves the answer more than random ones, by "
    "the floor or more, the interval above zero. A set's verdict is not that of its heads.",
    "used against": "the same with a negative sign: it works against the answer.",
    "pairs": "two inputs that differ in one thing, as the TB and FB version of one story.",
    "logit difference": "logit of the one answer less that of the other, within a pair.",
    "normalised effect": "share of the logit difference that the exchange moves.",
    "TB": "versions of stories in which the belief asked for is true.",
    "FB": "versions in which it is false.",
    "Both": "TB and FB of one story are both right.",
    "invalid": "a reply from which no answer can be read; it counts as wrong.",
    "initial belief": "what was believed before anything moved: steering should leave it.",
    "reality": "where the participant is, whatever anybody believes.",
    "cost": "points of accuracy lost by steering: positive is worse.",
    "alpha": "strength of steering, in standard deviations of each head along its direction.",
    "specific": "the gain is above that of every random direction and set of heads of equal steps.",
}


@dataclass
class Page:
    """What a page shows, whatever kind of run it is of.

    Attributes:
        repeat: the command that makes the run again.
        parts: stand below the title, joined by dots.
        first: HTML that stands above all words.
        conclusions: sentences that follow the first, which is the result.
        badges: short words with a tone each, ``good``, ``bad`` or ``plain``.
        commands: what each next command does, and the command.
        sections: by their headings, lists of HTML made by the functions of this module.
        numbers, heads: what an index over several runs shows: estimates, a table of heads.
    """

    repeat: str
    title: str = ""
    parts: Sequence[str] = ()
    first: str = ""
    sentence: str = ""
    conclusions: list[str] = field(default_factory=list)
    badges: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)
    sections: dict[str, list[str]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    heads: pd.DataFrame | None = None

    def write(self, path: Path) -> Path:
        """Write the page wholly or not at all; return its path."""
        loader = PackageLoader("sally_anne.figures", ".")
        room = Environment(loader=loader, autoescape=True, trim_blocks=True)
        template = room.get_template("page.html")
        text = template.render(page=self, facts="", glossary={}).partition("<body>")[2]
        text = re.sub("<[^>]+>", " ", text)
        glossary = {
            word: meaning
            for word, meaning in GLOSSARY.items()
            if re.search(r"\bL\d+H\d+\b" if word == "L4H0" else rf"\b{word}\b", text, re.I)
        }
        facts = json.dumps(self.facts, indent=1, default=str)
        text = template.render(page=self, facts=facts, glossary=glossary)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode())
        return path


def again(prog: str, config: Mapping[str, Any], names: Sequence[str] = (), **more: Any) -> str:
    """A command with a run's options: those of its model, those named, and more."""
    known = {n: config[n] for n in ModelOptions.__dataclass_fields__ if config.get(n) is not None}
    given = {name: config.get(name) for name in names} | more
    words = (
        f" {flag_name(name)} {shlex.quote(str(value))}"
        for name, value in given.items()
        if value not in (None, USUAL.get(name))
    )
    return command_line(prog, ModelOptions(**known)) + "".join(words)


def after_sweep(config: Mapping[str, Any], vector: Path) -> str:
    """The command that goes on with the vector that a sweep with these options chose."""
    if config.get("samples") or config.get("task", FIRST_TASK) != FIRST_TASK:
        return again("sally-anne side-effects", config, ("setting",), vector=vector)
    names = ("order", "setting", "style", "protocol", "data", "max_new_tokens", "split_seed")
    return again("sally-anne evaluate", config, (*names, "data_seed"), steer=vector)


def table(rows: pd.DataFrame, caption: str, most: int = 1000) -> str:
    """The first rows of a table, with all of them as CSV."""
    note = f" (the first {most} of {len(rows)} rows)" if len(rows) > most else ""
    data = base64.b64encode(rows.to_csv(index=False).encode()).decode()
    name = re.sub(r"\W+", "-", caption)[:40].strip("-") or "table"
    link = f'<a download="{name}.csv" href="data:text/csv;base64,{data}">CSV</a>'
    body = rows.head(most).to_html(index=False, border=0, na_rep="–", float_format="{:.3g}".format)
    title = f"<caption>{html.escape(caption + note)} <span>{link}</span></caption>"
    return f'<div class="scroll">{body.replace("<thead>", f"{title}<thead>", 1)}</div>'


def bars(rows: pd.DataFrame, caption: str) -> str:
    """Shares ``line, value, low, high, n`` as words and as bars from 0 to 100 %."""
    lines = (
        f'<tr><th scope="row">{html.escape(str(row["line"]))}</th><td>{percent(row)}</td>'
        f'<td>{int(row["n"])}</td><td class="bar"><i style="left:{100 * row["low"]:.1f}%;'
        f'right:{100 - 100 * row["high"]:.1f}%"></i><b style="left:{100 * row["value"]:.1f}%"></b>'
        "</td></tr>"
        for row in rows.to_dict("records")
    )
    head = "<tr><th></th><th>% [95 %]</th><th>n</th><th>0 to 100 %</th></tr>"
    title = f"<caption>{html.escape(caption)}</caption>"
    return f'<table class="bars">{title}{head}{"".join(lines)}</table>'


def tabs(name: str, panels: Mapping[str, str]) -> str:
    """HTML of which one at a time is shown, by what is clicked."""
    parts = (
        f'<input type="radio" name="{name}" id="{name}-{n}"{"" if n else " checked"}>'
        f'<label for="{name}-{n}">{html.escape(label)}</label><div>{panel}</div>'
        for n, (label, panel) in enumerate(panels.items())
    )
    return f'<div class="tabs">{"".join(parts)}</div>'


def details(summary: str, *parts: str, name: str = "", is_open: bool = False) -> str:
    """What opens at a click; of those with one ``name`` one at a time."""
    group = f' name="{html.escape(name)}"' if name else ""
    start = f"<details{group}{' open' if is_open else ''}><summary>{html.escape(summary)}</summary>"
    return f"{start}{''.join(parts)}</details>"


def words(text: str, kind: str = "hint") -> str:
    """A paragraph."""
    return f'<p class="{kind}">{html.escape(text)}</p>'


def facts(known: Mapping[str, str]) -> str:
    pairs = (f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in known.items())
    return f'<dl class="facts">{"".join(pairs)}</dl>'


def filtered(name: str, parts: Sequence[tuple[str, str]]) -> str:
    """Parts, each with its kinds (words), of which those of one kind can be chosen."""
    kinds = sorted({kind for kinds, _ in parts for kind in kinds.split()}, key=KINDS.find)
    inputs = (
        f'<input type="radio" name="{name}" id="{name}-{kind}" class="{kind}"'
        f'{" checked" * (kind == "all")}><label for="{name}-{kind}">{kind}</label>'
        for kind in ["all", *kinds]
    )
    shown = "".join(f'<div class="all {kinds}">{part}</div>' for kinds, part in parts)
    return f'<div class="filter">{"".join(inputs)}{shown}</div>'


def picture(data: bytes, about: str) -> str:
    """A PNG or JPEG, which scrolls where the screen is small."""
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return f'<div class="scroll"><img src="{source}" alt="{html.escape(about)}"></div>'


def strip(frames: np.ndarray, most: int = MOST) -> bytes:
    """Some frames ``uint8 [F, height, width, 3]`` next to each other, small, as PNG or JPEG."""
    places = np.linspace(0, len(frames) - 1, min(most, len(frames))).round().astype(int)
    sheet = Image.fromarray(np.concatenate(frames[places], axis=1))
    across = max(1, round(sheet.width * TALL / sheet.height))
    small = sheet.resize((across, TALL), Image.Resampling.BOX)
    # In all their colours: of a palette the small shapes, which are the agents, would lose theirs.
    png, jpeg = io.BytesIO(), io.BytesIO()
    small.save(png, "PNG", optimize=True)
    small.save(jpeg, "JPEG", quality=80)
    return png.getvalue() if png.tell() < HEAVY else jpeg.getvalue()
