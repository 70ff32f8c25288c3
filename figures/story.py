"""A GridToM story in pictures: what each perspective sees, and who believes what when.

As in the paper's figures 3 and 8 to 14. Nothing is fitted, and no model runs.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

from sally_anne.core.errors import FigureError
from sally_anne.core.files import write_atomic
from sally_anne.core.run import symbol
from sally_anne.data.gridtom import stories
from sally_anne.data.gridtom.plot import PERSPECTIVES, PLOTS, Perspective
from sally_anne.data.gridtom.release import PERSPECTIVE_FOLDERS, open_stories
from sally_anne.data.gridtom.render import FPS, HEIGHT, WIDTH, key_frames
from sally_anne.data.gridtom.samples import build
from sally_anne.data.gridtom.stories import BeliefCase, StoryRecord, generated
from sally_anne.figures import style
from sally_anne.figures.config import StoryConfig

WHO = ["reality", "protagonist", "participant"]
LEGEND = (
    "Below the frames: where the participant is (reality), where the protagonist believes that it "
    "is, and where the participant thinks that the protagonist believes that it is."
)
# Pixels of a line of words, and between pictures; letters in a line below the strip.
LINE, GAP, LETTERS = 20, 12, 215
SMALL, LARGE = (ImageFont.truetype(findfont(style.FONT), size) for size in (13, 19))
MAPS_IN_A_ROW = 9
Views = Mapping[Perspective, np.ndarray]
"""Frames ``uint8 [F, height, width, 3]`` by perspective."""


def run(config: StoryConfig) -> None:
    """Draw, and print the paths."""
    print(*draw(config), sep="\n")


def draw(config: StoryConfig) -> list[Path]:
    """Draw and save; return the paths written. FigureError if there is no story of this number."""
    known = open_stories(config.data) if config.data else generated(config.seed, plots=PLOTS)
    if config.maps:
        return [_write(config.out / "maps.png", [_maps(known)])]
    if config.index not in known.indices:
        low, high = min(known.indices), max(known.indices)
        raise FigureError(f"--index {config.index}: {known.source} has stories {low} to {high}")
    record = known.story(config.index)
    second = config.second if config.order == 2 else None
    case = record.case(config.order, config.first, second)
    version = f"order2_{config.first}_{second}" if second else config.first
    name = f"story-{config.index}_{version}"
    paths = [_write(config.out / f"{name}.png", [strip(record, case)])]
    if config.gif:
        views = {view: case.frames(view, range(case.length)) for view in seen_by(case)}
        film = [picture(record, case, views, tick, tick) for tick in range(case.length)]
        paths.append(_write(config.out / f"{name}.gif", film))
    return paths


def seen_by(case: BeliefCase) -> list[Perspective]:
    """The perspectives of which there are frames; a release may lack some."""
    folder = case.folder
    return [p for p in PERSPECTIVES if folder is None or (folder / PERSPECTIVE_FOLDERS[p]).is_dir()]


def picture(
    record: StoryRecord, case: BeliefCase, views: Views, place: int, tick: int, down: bool = False
) -> Image.Image:
    """Frame ``place`` of each view, next to or below each other, and the beliefs at ``tick``."""
    wide, tall = WIDTH + GAP, HEIGHT + LINE + GAP
    columns, rows = (1, len(views)) if down else (len(views), 1)
    size = (columns * wide + GAP, rows * tall + (2 + len(WHO)) * LINE)
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    stage = max(1, sum(tick > node for node in case.nodes[:3]))
    words = f"story {record.index}, {case.condition}: frame {tick} of {case.length - 1}"
    pen.text((GAP, 2), f"{words}, stage {stage}", "black", SMALL)
    for number, (name, frames) in enumerate(views.items()):
        x, y = (GAP, LINE + number * tall) if down else (GAP + number * wide, LINE)
        pen.text((x, y + 2), name, "black", SMALL)
        image.paste(Image.fromarray(frames[place]), (x, y + LINE))
    passed = max(n for n, node in enumerate(case.nodes) if node <= tick or n == 0)
    held = stories.beliefs_at_nodes(record, case)[passed]
    for row, (who, room) in enumerate(zip(WHO, held, strict=True)):
        wrong = row > 0 and room != held[row - 1]
        corner = (GAP, rows * tall + (1 + row) * LINE)
        text = f"{who}: {room}{' (wrong)' if wrong else ''}"
        pen.text(corner, text, style.RING if wrong else "black", SMALL)
    return image


def strip(record: StoryRecord, case: BeliefCase) -> Image.Image:
    """The key frames next to each other, and all words below."""
    views = {name: case.frames(name) for name in seen_by(case)}
    ticks = key_frames(case.nodes)
    columns = [picture(record, case, views, n, tick, True) for n, tick in enumerate(ticks)]
    wide, tall = columns[0].size
    words = "\n".join(textwrap.fill(line, LETTERS) for line in story_words(record, case))
    height = tall + GAP + 24 * (words.count("\n") + 1)
    image = Image.new("RGB", (wide * len(columns), height), "white")
    for number, column in enumerate(columns):
        image.paste(column, (number * wide, 0))
    ImageDraw.Draw(image).multiline_text((GAP, tall), words, "black", LARGE)
    return image


def story_words(record: StoryRecord, case: BeliefCase) -> list[str]:
    a, b = record.cast[:2]
    lines = [f"Participant {a}, protagonist {b}, {record.map or 'no map'}. {LEGEND}", ""]
    lines += [f"{name}: {caption}" for name, caption in case.captions.items()]
    lines += ["", *(f"{one.question} Right: {' and '.join(one.answer)}." for one in record.initial)]
    question = case.question
    choice = f"Choose one: {' or '.join(question.options)}. Right: {question.answer}."
    lines.append(f"Question: {question.question} {choice}")
    for sample in build([record], {record.index: "test"}, case.order, "matched", "text"):
        if sample.tags["condition"] == case.condition:
            labels = (f"{symbol(n)} {str(v).lower()}" for n, v in sample.labels.items())
            lines.append(f"Statement ({', '.join(labels)}): {sample.text.rsplit('Belief: ', 1)[1]}")
    return lines


def _maps(known: stories.StorySet) -> Image.Image:
    """A contact sheet: the first frame of the lowest story of each map."""
    lowest = {known.identity(index).map: index for index in sorted(known.indices, reverse=True)}
    first = sorted((index, name) for name, index in lowest.items())
    wide, tall = WIDTH + GAP, HEIGHT + LINE + GAP
    rows = -(-len(first) // MAPS_IN_A_ROW)
    image = Image.new("RGB", (min(MAPS_IN_A_ROW, len(first)) * wide, rows * tall), "white")
    for number, (index, name) in enumerate(first):
        y, x = divmod(number, MAPS_IN_A_ROW)
        ImageDraw.Draw(image).text((x * wide, y * tall), f"{name}, story {index}", "black", SMALL)
        frame = known.story(index).case(1, "TB").frames(ticks=[0])[0]
        image.paste(Image.fromarray(frame), (x * wide, y * tall + LINE))
    return image


def _write(path: Path, pictures: list[Image.Image]) -> Path:
    """Write a picture, or several as a film that rests at its end; return the path."""
    more, pause, buffer = {}, round(1000 / FPS), io.BytesIO()
    if len(pictures) > 1:
        times = [pause] * (len(pictures) - 1) + [5 * pause]
        more = {"save_all": True, "append_images": pictures[1:], "duration": times, "loop": 0}
    pictures[0].save(buffer, path.suffix[1:], **more)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, buffer.getvalue())
    return path
