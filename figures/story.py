"""A GridToM story as a film strip: what each perspective sees, and who believes what when.

A row for each perspective (what is masked for it is dark grey), below them, at the four frames that
bound the stages, where the participant is, where the protagonist believes it is, and where the
participant thinks that the protagonist believes it is; then the question, and how the statements
are labelled. As in the paper's figures 3 and 8 to 14. Nothing is fitted, and no model runs.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.patches import Rectangle
from minigrid.core.constants import COLORS
from PIL import Image, ImageDraw, ImageFont

from sally_anne.core.errors import FigureError
from sally_anne.core.files import write_atomic
from sally_anne.data.gridtom.plot import PERSPECTIVES, PLOTS, Perspective
from sally_anne.data.gridtom.release import PERSPECTIVE_FOLDERS, FolderVideo, open_stories
from sally_anne.data.gridtom.render import FPS, HEIGHT, WIDTH, key_frames
from sally_anne.data.gridtom.samples import build
from sally_anne.data.gridtom.stories import (
    BeliefCase,
    StoryRecord,
    StorySet,
    beliefs_at_nodes,
    generated,
)
from sally_anne.figures import style
from sally_anne.figures.config import StoryConfig

# What the places in a triple of beliefs say.
WHO = ("participant is in", "protagonist believes", "participant thinks\nthat it believes")
CELL = 1.15  # inches of a frame's width
TEXT = 4.4  # inches of the captions to the right of the frames
LETTER = 0.0078  # inches of a letter's width for each point of its size, on average
LINE = 1.32 / 72  # inches of a line for each point
MAPS_IN_A_ROW = 9
HEAD, FOOT, GAP = 44, 68, 12  # pixels above a film's pictures, below them, and between two


def draw(config: StoryConfig) -> list[Path]:
    """Draw and save the strip, and the film if it is asked for; return the paths written.

    Raises:
        FigureError: there is no story of this number; says which there are.
        BenchmarkError: the folder is damaged, or has no questions of this order.
    """
    if config.data is None:
        stories = generated(config.seed, plots=PLOTS)
    else:
        stories = open_stories(config.data)
    if config.maps:
        return _draw_maps(stories, config.out)
    if config.index not in stories.indices:
        low, high = min(stories.indices), max(stories.indices)
        raise FigureError(
            f"--index {config.index}: {stories.source} has {len(stories)} stories, numbers {low} "
            f"to {high}"
        )
    record = stories.story(config.index)
    second = config.second if config.order == 2 else None
    case = record.case(config.order, config.first, second)
    order = ["order2"] if config.order == 2 else []
    name = "_".join([f"story-{config.index}", *order, config.first, *filter(None, [second])])
    with style.look():
        figure = story_figure(record, case, stories.source)
        paths = style.save(figure, config.out, name, story_table(record, case))
    if config.gif:
        paths.append(film(record, case, config.out / f"{name}.gif"))
    return paths


def story_table(record: StoryRecord, case: BeliefCase) -> pd.DataFrame:
    """The beliefs shown: a row a node, with its ``frame``, and who holds the participant where."""
    names = ["reality", "protagonist", "participant"]
    table = pd.DataFrame(beliefs_at_nodes(record, case), columns=names)
    table.insert(0, "frame", case.nodes)
    return table


def seen_by(case: BeliefCase) -> list[Perspective]:
    """The perspectives of which there are frames; a release may lack some."""
    video = case.video
    return [
        perspective
        for perspective in PERSPECTIVES
        if not isinstance(video, FolderVideo)
        or (video.folder / PERSPECTIVE_FOLDERS[perspective]).is_dir()
    ]


def story_figure(record: StoryRecord, case: BeliefCase, source: str) -> Figure:
    """The strip: rows of frames with captions, beliefs, and the question below."""
    ticks = key_frames(case.nodes)
    left, gap, tall, size = 1.35, 0.06, CELL * HEIGHT / WIDTH, 7.0
    across = len(ticks) * (CELL + gap)
    top, band = 0.85, 0.36 * len(WHO)
    width = left + across + TEXT + 0.3
    question = _question(record, case, round((left + across) / LETTER / size))
    beliefs = top + len(PERSPECTIVES) * (tall + gap) + 0.08
    height = beliefs + band + 0.2 + LINE * size * (question.count("\n") + 1)
    figure = style.new_figure(width, height)

    def axes(x: float, y: float, wide: float, high: float) -> Axes:
        """An area by its upper left corner, in inches from that of the figure."""
        return figure.add_axes((x / width, 1 - (y + high) / height, wide / width, high / height))

    def write(x: float, y: float, text: str, **more: Any) -> None:
        place: dict[str, Any] = {"va": "top", "fontsize": size, "linespacing": 1.3} | more
        figure.text(x / width, 1 - y / height, text, **place)

    there = seen_by(case)
    for row, perspective in enumerate(PERSPECTIVES):
        y = top + row * (tall + gap)
        write(left - 0.1, y + tall / 2, perspective, ha="right", va="center", fontsize=8.5)
        caption, points = _fitted(case.captions[perspective], tall)
        write(left + across + 0.12, y, caption, fontsize=points)
        if perspective not in there:
            write(left, y + tall / 2, "this release has no frames of this perspective", color="0.4")
            continue
        for column, image in enumerate(case.frames(perspective)):
            panel = axes(left + column * (CELL + gap), y, CELL, tall)
            panel.imshow(image, interpolation="none")
            panel.set_label(f"{perspective} {ticks[column]}")
            panel.set_axis_off()
    for column, tick in enumerate(ticks):
        node = column % 2 == 0
        text = f"frame {tick}\n" + (f"end of stage {column // 2}" if node and column else "")
        bold = {"fontweight": "bold" if node else "normal", "fontsize": 7.5}
        x = left + column * (CELL + gap) + CELL / 2
        write(x, top - 0.05, text, ha="center", va="bottom", **bold)
    write(left + across + 0.12, top - 0.05, "the story from this perspective", va="bottom")
    _draw_beliefs(axes(left, beliefs, across - gap, band), record, case, len(ticks))
    write(0.12, beliefs + band + 0.1, question)
    initial = " ".join(
        f"({number}) {one.question} Right: {' and '.join(one.answer)}."
        for number, one in enumerate(record.initial, start=1)
    )
    letters = round(TEXT / LETTER / size)
    write(left + across + 0.12, beliefs, textwrap.fill(f"Initial beliefs: {initial}", letters))
    parts = [f"order {case.order}", f"belief {case.condition}"]
    parts += [record.map] if record.map else []
    parts += ["the participant returns"] if record.plot == "return" else []
    a, b = record.cast[:2]
    subject = f"story {record.index}: participant {a}, protagonist {b}"
    style.heading(figure, [*parts, source], subject)
    return figure


def _draw_beliefs(panel: Axes, record: StoryRecord, case: BeliefCase, columns: int) -> None:
    """A row for each who believes, with the room's colour under the frame of each node."""
    side = CELL / (CELL + 0.06)
    for node, held in enumerate(beliefs_at_nodes(record, case)):
        for row, place in enumerate(held):
            wrong = is_wrong(held, row)
            ground, ink = tint(place)
            edge: dict[str, Any] = {"edgecolor": style.RING if wrong else "0.6"}
            edge |= {"linewidth": 2.2 if wrong else 0.6, "zorder": 2 if wrong else 1}
            corner = (2.0 * node, row + 0.08)
            panel.add_patch(Rectangle(corner, side, 0.84, facecolor=ground, **edge))
            font: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5, "color": ink}
            words = f"{place} (wrong)" if wrong else place
            panel.text(corner[0] + side / 2, row + 0.5, words, **font)
    panel.set(xlim=(0, columns - 1 + side), ylim=(len(WHO), 0), xticks=[])
    panel.set_yticks([row + 0.5 for row in range(len(WHO))], labels=WHO)
    panel.tick_params(length=0, labelsize=7.0)
    panel.spines[:].set_visible(False)


def is_wrong(held: Sequence[str], row: int) -> bool:
    """Whether a belief is not what it is about: reality, or the protagonist's belief."""
    return row > 0 and held[row] != held[row - 1]


def tint(place: str) -> tuple[tuple[float, ...], str]:
    """The colour of a room (grey: the corridor) and that of words on it."""
    colour = np.array(COLORS[place]) / 255 if place in COLORS else np.full(3, 0.85)
    dark = float(colour @ [0.3, 0.59, 0.11]) < 0.5
    return tuple(map(float, colour)), "white" if dark else "black"


def _question(record: StoryRecord, case: BeliefCase, letters: int) -> str:
    """The belief question with its answer, and each statement with its labels as in the probes."""
    question = case.question
    lines = [
        f"Question: {question.question}",
        f"Choose one: {' or '.join(question.options)}. Right: {question.answer}.",
    ]
    for sample in build([record], {record.index: "test"}, case.order, "matched", "text"):
        if sample.tags["condition"] == case.condition:
            labels = ", ".join(
                f"{style.symbol(label)} {str(value).lower()}"
                for label, value in sample.labels.items()
            )
            lines.append(f"Statement ({labels}): {sample.text.rsplit('Belief: ', 1)[1]}")
    return "\n".join(textwrap.fill(line, letters) for line in lines)


def _fitted(text: str, tall: float) -> tuple[str, float]:
    """A caption in lines, and the points at which it stands next to a frame of so many inches."""
    for size in (7.0, 6.5, 6.0, 5.5, 5.0):
        lines = textwrap.fill(text, round(TEXT / LETTER / size))
        if LINE * size * (lines.count("\n") + 1) <= tall:
            break
    return lines, size


def film(record: StoryRecord, case: BeliefCase, path: Path) -> Path:
    """Write the film, a picture for each of its frames; return its path.

    Below stand the beliefs at the last node that was passed.
    """
    views = {name: case.frames(name, range(case.length)) for name in seen_by(case)}
    pictures = [_film_frame(record, case, views, tick) for tick in range(case.length)]
    # One palette for all: the colours that they have most of; others become the nearest of these.
    some = np.concatenate(pictures[:: max(1, len(pictures) // 8)]).reshape(-1, 3)
    colours, counts = np.unique(some, axis=0, return_counts=True)
    palette = colours[np.argsort(-counts)[:256]].astype(int)
    first, *others = (_in_palette(picture, palette) for picture in pictures)
    pause = round(1000 / FPS)
    times = [pause] * len(others) + [5 * pause]  # it rests at the end
    buffer = io.BytesIO()
    more: dict[str, Any] = {"save_all": True, "append_images": others, "duration": times}
    first.save(buffer, "GIF", loop=0, optimize=False, **more)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, buffer.getvalue())
    return path


def _in_palette(picture: np.ndarray, palette: np.ndarray) -> Image.Image:
    """``picture [height, width, 3]`` in the nearest of the colours ``palette [C, 3]``."""
    codes, where = np.unique(picture @ np.array([65536, 256, 1]), return_inverse=True)
    colours = codes[:, None] >> np.array([16, 8, 0]) & 255
    nearest = ((colours[:, None] - palette) ** 2).sum(axis=2).argmin(axis=1).astype(np.uint8)
    image = Image.fromarray(nearest[where.reshape(picture.shape[:2])])
    image.putpalette(palette.astype(np.uint8).tobytes())
    return image


def _film_frame(
    record: StoryRecord, case: BeliefCase, views: dict[Perspective, np.ndarray], tick: int
) -> np.ndarray:
    """One frame, ``uint8 [height, width, 3]``: what each sees, and who believes what."""
    font = ImageFont.truetype(findfont("DejaVu Sans"), 13)
    picture = Image.new("RGB", (len(views) * (WIDTH + GAP) + GAP, HEAD + HEIGHT + FOOT), "white")
    pen = ImageDraw.Draw(picture)
    passed = max(n for n, node in enumerate(case.nodes) if node <= tick or n == 0)
    stage = max(1, sum(tick > node for node in case.nodes[:3]))
    text = f"story {record.index}, {case.condition}: frame {tick} of {case.length - 1}"
    below = f"below: beliefs at frame {case.nodes[passed]}"
    pen.text((GAP, 4), f"{text}, stage {stage}; {below}", "black", font)
    for place, (name, frames) in enumerate(views.items()):
        x = GAP + place * (WIDTH + GAP)
        pen.text((x, 24), name, "black", font)
        picture.paste(Image.fromarray(frames[tick]), (x, HEAD))
    held = beliefs_at_nodes(record, case)[passed]
    for row, (who, room) in enumerate(zip(WHO, held, strict=True)):
        wrong = is_wrong(held, row)
        text = f"{who.replace(chr(10), ' ')}: {room}{' (wrong)' if wrong else ''}"
        corner = (GAP, HEAD + HEIGHT + 4 + 20 * row)
        pen.text(corner, text, style.RING if wrong else "black", font)
    return np.asarray(picture)


def _draw_maps(stories: StorySet, out: Path) -> list[Path]:
    """A contact sheet: the first frame of the lowest story of each map."""
    first: dict[str, int] = {}
    for index in sorted(stories.indices):
        first.setdefault(stories.identity(index).map, index)
    columns = min(MAPS_IN_A_ROW, len(first))
    rows = -(-len(first) // columns)
    tall = CELL * HEIGHT / WIDTH
    with style.look():
        figure = style.new_figure(max(5.0, columns * (CELL + 0.12)), rows * (tall + 0.32) + 0.6)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel in panels:
            panel.set_axis_off()
        for panel, (name, index) in zip(panels, first.items(), strict=False):
            image = stories.story(index).case(1, "TB").frames(ticks=[0])[0]
            panel.imshow(image, interpolation="none")
            panel.set_title(name, fontsize=8)
        words = f"{len(first)} maps, each at the beginning of its first story"
        style.heading(figure, [stories.source], words)
        table = pd.DataFrame({"map": list(first), "story": list(first.values())})
        return style.save(figure, out, "maps", table)


def run(config: StoryConfig) -> None:
    """Draw, and print the paths."""
    print(*draw(config), sep="\n")
