"""A GridToM story as a film strip: what each perspective sees, and who believes what when.

    sally-anne story --index 17 --order 2 --gif
    sally-anne story --maps

A row for each perspective (what is masked for it is dark grey), below them, at the four frames that
bound the stages, where the participant is, where the protagonist believes it is, and where the
participant thinks that the protagonist believes it is; then what is asked, and how the statements
are labelled. As in the paper's figures 3 and 8 to 14. Nothing is fitted, and no model runs.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sally_anne.core.errors import ChoiceError
from sally_anne.core.files import write_atomic
from sally_anne.core.options import Natural, Seed
from sally_anne.data.gridtom.contrasts import build
from sally_anne.data.gridtom.load_video import PERSPECTIVE_FOLDERS, FolderVideo
from sally_anne.data.gridtom.plot import PLOTS, Condition
from sally_anne.data.gridtom.records import (
    BeliefCase,
    Order,
    StoryRecord,
    StorySet,
    beliefs_at_nodes,
)
from sally_anne.data.gridtom.render import (
    FPS,
    HEIGHT,
    PERSPECTIVES,
    WIDTH,
    Perspective,
    key_frames,
)
from sally_anne.data.gridtom.stories import DEFAULT_SEED, generated, open_stories
from sally_anne.figures import style
from sally_anne.figures.command import file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

# What the places in a triple of `beliefs` say.
WHO = ("participant is in", "protagonist believes", "participant thinks\nthat it believes")
CELL = 1.15  # inches of a frame's width
WORDS = 4.4  # inches of the captions beside the frames
SIZE = 7.0  # points of questions, and of captions unless they are long
LINE = 1.32 / 72  # inches of a line for each point
MAPS_IN_A_ROW = 9
# Pixels: above the pictures, below them, and between two.
HEAD, FOOT, GAP = 44, 68, 12
NUMBER = np.array([65536, 256, 1])  # a colour as one number


@dataclass(frozen=True)
class StoryConfig:
    """Draw a GridToM story: its frames from each perspective, who believes what, what is asked."""

    index: Natural = 0
    """Number of the story; those of generated stories in which the participant returns are 648
    above those of their twins."""
    order: Order = 1
    """1: where does the protagonist believe the participant is? 2: what does the participant think
    that the protagonist believes?"""
    first: Condition = "FB"
    """Whether the protagonist's belief is true (TB) or false (FB)."""
    second: Condition = "FB"
    """The same of what the participant thinks that it believes; of order 2 alone."""
    gif: bool = False
    """Write the whole film, too, as an animated GIF."""
    maps: bool = False
    """Draw the first frame of one story of each map instead."""
    data: Path | None = None
    """Folder in GridToM's release layout; stories are generated if none is given."""
    seed: Seed = DEFAULT_SEED
    """Of generated stories."""
    out: Path = Path("runs") / "story"
    """Folder to write to."""


def draw(config: StoryConfig) -> list[Path]:
    """Draw and save the strip, and the film if it is asked for; return the paths written.

    Raises:
        ChoiceError: there is no story of this number; says which there are.
        BenchmarkError: the folder is damaged, or has no questions of this order.
    """
    stories = (
        generated(config.seed, plots=PLOTS) if config.data is None else open_stories(config.data)
    )
    if config.maps:
        return _draw_maps(stories, config.out)
    if config.index not in stories.indices:
        low, high = min(stories.indices), max(stories.indices)
        raise ChoiceError(
            f"--index {config.index}: {stories.source} has {len(stories)} stories, numbers {low} "
            f"to {high}"
        )
    record = stories.story(config.index)
    second = config.second if config.order == 2 else None
    case = record.case(config.order, config.first, second)
    order = f"order{config.order}" if config.order == 2 else None
    name = file_name(f"story-{config.index}", (order, None), (config.first, None), (second, None))
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


def condition_of(case: BeliefCase) -> str:
    """TB or FB; of second order first/second."""
    return case.first if case.second is None else f"{case.first}/{case.second}"


def story_figure(record: StoryRecord, case: BeliefCase, source: str) -> Figure:
    """The strip: rows of frames with captions beside them, beliefs, and what is asked below."""
    ticks = key_frames(case.nodes)
    left, gap, tall = 1.35, 0.06, CELL * HEIGHT / WIDTH
    across = len(ticks) * (CELL + gap)
    width, top, band = left + across + WORDS + 0.3, 0.85, 0.36 * len(WHO)
    asked, told = _asked(record, case, 72 * (left + across - 0.2)), _initial(record)
    beliefs = top + len(PERSPECTIVES) * (tall + gap) + 0.08
    height = beliefs + band + 0.2 + LINE * SIZE * (asked.count("\n") + 1)
    figure = style.new_figure(width, height, arrange=False)

    def axes(x: float, y: float, wide: float, high: float) -> Axes:
        """An area by its upper left corner, in inches from that of the figure."""
        return figure.add_axes((x / width, 1 - (y + high) / height, wide / width, high / height))

    def say(x: float, y: float, text: str, **more: Any) -> None:
        place: dict[str, Any] = {"va": "top", "fontsize": SIZE, "linespacing": 1.3} | more
        figure.text(x / width, 1 - y / height, text, **place)

    there = seen_by(case)
    for row, perspective in enumerate(PERSPECTIVES):
        y = top + row * (tall + gap)
        say(left - 0.1, y + tall / 2, perspective, ha="right", va="center", fontsize=8.5)
        caption, size = _fitted(case.captions[perspective], tall)
        say(left + across + 0.12, y, caption, fontsize=size)
        if perspective not in there:
            say(left, y + tall / 2, "this release has no frames of this perspective", color="0.4")
            continue
        for column, image in enumerate(case.frames(perspective)):
            panel = axes(left + column * (CELL + gap), y, CELL, tall)
            panel.imshow(image, interpolation="none")
            panel.set_label(f"{perspective} {ticks[column]}")
            panel.set_axis_off()
    for column, tick in enumerate(ticks):
        stage = f"\nend of stage {column // 2}" if column % 2 == 0 and column else ""
        words = f"frame {tick}{stage or chr(10)}"
        x = left + column * (CELL + gap) + CELL / 2
        weight = "bold" if column % 2 == 0 else "normal"
        say(x, top - 0.05, words, ha="center", va="bottom", fontsize=7.5, fontweight=weight)
    say(left + across + 0.12, top - 0.05, "as told from this perspective", va="bottom")
    _draw_beliefs(axes(left, beliefs, across - gap, band), record, case, len(ticks))
    say(0.12, beliefs + band + 0.1, asked)
    say(left + across + 0.12, beliefs, style.paragraph(told, 72 * (WORDS - 0.1), SIZE))
    parts = [f"order {case.order}", f"belief {condition_of(case)}"]
    parts += [record.map] if record.map else []
    parts += ["the participant returns"] if record.plot == "return" else []
    a, b = record.cast[:2]
    subject = f"story {record.index}: participant {a}, protagonist {b}"
    style.heading(figure, [*parts, source], subject)
    return figure


def _draw_beliefs(panel: Axes, record: StoryRecord, case: BeliefCase, columns: int) -> None:
    """A row for each who believes, with the room's colour under the frame of each node."""
    from matplotlib.patches import Rectangle

    side = CELL / (CELL + 0.06)
    for node, held in enumerate(beliefs_at_nodes(record, case)):
        for row, place in enumerate(held):
            wrong = is_wrong(held, row)
            ground, ink = tint(place)
            edge: dict[str, Any] = {"edgecolor": style.RING if wrong else "0.6"}
            edge |= {"linewidth": 2.2 if wrong else 0.6, "zorder": 2 if wrong else 1}
            corner = (2.0 * node, row + 0.08)
            panel.add_patch(Rectangle(corner, side, 0.84, facecolor=ground, **edge))
            words = f"{place} (wrong)" if wrong else place
            style.write(panel, corner[0] + side / 2, row + 0.5, words, 7.5, ink)
    panel.set(xlim=(0, columns - 1 + side), ylim=(len(WHO), 0))
    panel.set_xticks([])
    panel.set_yticks([row + 0.5 for row in range(len(WHO))], labels=WHO)
    panel.tick_params(length=0, labelsize=7.0)
    panel.spines[:].set_visible(False)


def is_wrong(held: Sequence[str], row: int) -> bool:
    """Whether a belief is not what it is about: reality, or the protagonist's belief."""
    return row > 0 and held[row] != held[row - 1]


def tint(place: str) -> tuple[tuple[float, ...], str]:
    """The colour of a room (grey: the corridor) and that of words on it."""
    from minigrid.core.constants import COLORS

    colour = np.array(COLORS[place]) / 255 if place in COLORS else np.full(3, 0.85)
    dark = float(colour @ [0.3, 0.59, 0.11]) < 0.5
    return tuple(map(float, colour)), "white" if dark else "black"


def _asked(record: StoryRecord, case: BeliefCase, room: float) -> str:
    """The belief question with its answer, and each statement with its labels as in the probes."""
    question = case.question
    lines = [
        f"Question: {question.question}",
        f"Choose one: {' or '.join(question.options)}. Right: {question.answer}.",
    ]
    samples = build([record], {record.index: "test"}, case.order, "matched", "text")
    for sample in samples:
        if sample.tags["condition"] == condition_of(case):
            said = ", ".join(
                f"{style.symbol(label)} {str(value).lower()}"
                for label, value in sample.labels.items()
            )
            lines.append(f"Statement ({said}): {sample.text.rsplit('Belief: ', 1)[1]}")
    return "\n".join(style.paragraph(line, room, SIZE) for line in lines)


def _fitted(text: str, tall: float) -> tuple[str, float]:
    """A caption in lines, and the points at which it stands beside a frame of so many inches."""
    for size in (SIZE, 6.5, 6.0, 5.5, 5.0):
        lines = style.paragraph(text, 72 * (WORDS - 0.1), size)
        if LINE * size * (lines.count("\n") + 1) <= tall:
            break
    return lines, size


def _initial(record: StoryRecord) -> str:
    return "Initial beliefs: " + " ".join(
        f"({number}) {asked.question} Right: {' and '.join(asked.answer)}."
        for number, asked in enumerate(record.initial, start=1)
    )


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


def first_of_maps(stories: StorySet) -> dict[str, int]:
    """Each map's name, and the lowest number of a story on it."""
    found: dict[str, int] = {}
    for index in sorted(stories.indices):
        found.setdefault(stories.identity(index).map, index)
    return found


def _draw_maps(stories: StorySet, out: Path) -> list[Path]:
    shown = first_of_maps(stories)
    images = [stories.story(i).case(1, "TB").frames(ticks=[0])[0] for i in shown.values()]
    table = pd.DataFrame({"map": list(shown), "story": list(shown.values())})
    with style.look():
        figure = maps_figure(images, list(shown), stories.source)
        return style.save(figure, out, "maps", table)


def maps_figure(images: Sequence[np.ndarray], names: Sequence[str], source: str) -> Figure:
    """A contact sheet of ``images [420, 294, 3]``, each with its name."""
    columns = min(MAPS_IN_A_ROW, len(images))
    rows = -(-len(images) // columns)
    tall = CELL * HEIGHT / WIDTH
    figure = style.new_figure(max(5.0, columns * (CELL + 0.12)), rows * (tall + 0.32) + 0.6)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, image, name in zip(panels, images, names, strict=False):
        panel.imshow(image, interpolation="none")
        panel.set_title(name, fontsize=8)
    style.heading(figure, [source], f"{len(images)} maps, each at the beginning of its first story")
    return figure


def run(config: StoryConfig) -> None:
    """Draw, and print the paths."""
    print(*draw(config), sep="\n")
