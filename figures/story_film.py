"""A story's whole film as an animated GIF: every perspective side by side, beliefs below."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from figures.story import WHO, condition_of, is_wrong, seen_by, tint
from sally_anne.benchmarks.gridtom.records import BeliefCase, StoryRecord, beliefs_at_nodes
from sally_anne.benchmarks.gridtom.render import FPS, HEIGHT, WIDTH, Perspective
from sally_anne.core.files import write_atomic

if TYPE_CHECKING:
    from PIL.Image import Image

# Pixels: above the pictures, below them, and between two.
HEAD, FOOT, GAP = 44, 68, 12
NUMBER = np.array([65536, 256, 1])  # a colour as one number


def film(record: StoryRecord, case: BeliefCase, path: Path) -> Path:
    """Write the film, a picture for each of its frames; return its path.

    Below stand the beliefs at the last node that was passed.
    """
    views = {name: case.frames(name, range(case.length)) for name in seen_by(case)}
    drawn = _in_one_palette([_picture(record, case, views, t) for t in range(case.length)])
    pause = round(1000 / FPS)
    times = [pause] * (len(drawn) - 1) + [5 * pause]  # it rests at the end
    buffer = io.BytesIO()
    more: dict[str, Any] = {"save_all": True, "append_images": drawn[1:], "duration": times}
    drawn[0].save(buffer, "GIF", loop=0, optimize=False, **more)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, buffer.getvalue())
    return path


def _in_one_palette(pictures: list[Image]) -> list[Image]:
    """The pictures in the 256 colours that they have most of, others in the nearest of these."""
    from PIL import Image

    counts: Counter[tuple[int, ...]] = Counter()
    for picture in pictures:
        found: Any = picture.getcolors(1 << 12)  # none of them has more colours
        counts.update({colour: n for n, colour in found})
    colours = np.array([colour for colour, _ in counts.most_common()])
    kept = colours[:256]
    # The place in the palette of each colour, by its number.
    places = np.zeros(1 << 24, dtype=np.uint8)
    distances = ((colours[:, None] - kept) ** 2).sum(axis=2)
    places[colours @ NUMBER] = distances.argmin(axis=1)
    drawn = []
    for picture in pictures:
        image = Image.fromarray(places[np.asarray(picture, dtype=np.int32) @ NUMBER], "L")
        image.putpalette(kept.astype(np.uint8).tobytes())
        drawn.append(image)
    return drawn


def _picture(
    record: StoryRecord, case: BeliefCase, views: Mapping[Perspective, np.ndarray], tick: int
) -> Image:
    """One frame: what each sees, its number and stage, and who believes what."""
    from matplotlib.font_manager import findfont
    from PIL import Image, ImageDraw, ImageFont

    large, small = (ImageFont.truetype(findfont("DejaVu Sans"), size) for size in (15, 13))
    wide = len(views) * (WIDTH + GAP) + GAP
    picture = Image.new("RGB", (wide, HEAD + HEIGHT + FOOT), "white")
    pen = ImageDraw.Draw(picture)
    stage = sum(tick > node for node in case.nodes[:3])
    told = f"story {record.index}, {condition_of(case)}: frame {tick} of {case.length - 1}"
    pen.text((GAP, 4), f"{told}, stage {max(1, stage)}", "black", large)
    for number, (name, frames) in enumerate(views.items()):
        x = GAP + number * (WIDTH + GAP)
        pen.text((x, 24), name, "#444444", small)
        picture.paste(Image.fromarray(frames[tick]), (x, HEAD))
    passed = max(n for n, node in enumerate(case.nodes) if node <= tick or n == 0)
    held = beliefs_at_nodes(record, case)[passed]
    part = (wide - GAP) // len(WHO)
    for number, (who, place) in enumerate(zip(WHO, held, strict=True)):
        x, y = GAP + number * part, HEAD + HEIGHT + 6
        pen.text((x, y), who.replace("\n", " "), "#444444", small)
        ground, ink = tint(place)
        box = (x, y + 20, x + part - GAP, y + 42)
        wrong = is_wrong(held, number)
        fill = tuple(round(255 * c) for c in ground)
        edge = "#D55E00" if wrong else "#999999"
        pen.rectangle(box, fill, edge, 3 if wrong else 1)
        pen.text((x + 8, y + 23), f"{place} (wrong)" if wrong else place, ink, small)
    note = f"beliefs at frame {case.nodes[passed]}, the last node"
    pen.text((GAP, HEAD + HEIGHT + 50), note, "#444444", small)
    return picture
