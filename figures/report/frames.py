"""Small film strips of the samples that a page lists: those of which a probe is most or least sure.

They are drawn again from the run's own data, never taken from a model. Of a GridToM story there is
also what the other perspectives see, and who believes what when.
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from sally_anne.core.errors import SallyAnneError
from sally_anne.data.gridtom.contrasts import Scene, plots_of
from sally_anne.data.gridtom.stories import open_stories
from sally_anne.data.samples import Frames
from sally_anne.figures.kde import classes_of, guessed, logits_of
from sally_anne.figures.story import WHO, seen_by, story_table
from sally_anne.hooks.saved_run import Run

if TYPE_CHECKING:
    from sally_anne.data.gridtom.records import StorySet

# Best heads of each label whose lists have frames, samples in a list, films, and bytes of all.
HEADS, LISTED, FILMS, ROOM = 4, 4, 60, 3_000_000
TALL, GAP, MOST = 96, 2, 8  # pixels; pictures in a strip


def strips_of(run: Run, rows: np.ndarray) -> dict[str, Any]:
    """Strips of samples among ``rows`` of ``run.samples``; empty where nothing was seen.

    Returns:
        ``images``, PNGs in base64, and ``of``, the number of its strip by ``item_id``; ``stories``,
        by this number what :func:`story_of` gives. Also empty if the run's samples cannot be made
        again from its options, or a film is gone.
    """
    if run.config.get("setting") == "text" or "fingerprint" not in run.saved.get("data", {}):
        return {}
    from sally_anne.probing.sources import reopen

    try:
        opened = reopen(run.folder)
        samples, how = opened.data.samples, opened.probing
        told = None
        if isinstance(samples[0].video, Scene):
            told = open_stories(how.data, how.data_seed, plots_of(how.contrast))
        images: dict[tuple[str, str], str] = {}
        of: dict[str, int] = {}
        stories: dict[int, Any] = {}
        room = 0
        for row in listed(run, rows):
            sample = samples[row]
            # What shares its context with another sample shows the same film.
            film = (sample.group, sample.context or sample.item_id)
            full = len(images) >= FILMS or room > ROOM
            if not sample.shows or (film not in images and full):
                continue
            if film not in images:
                if told is not None and isinstance(sample.video, Scene):
                    found = stories[len(images)] = story_of(sample.video, told)
                    room += sum(len(image) for _, image in found["others"])
                images[film] = strip(sample.frames())
                room += len(images[film])
            of[sample.item_id] = list(images).index(film)
    except SallyAnneError:
        return {}
    return {"images": list(images.values()), "of": of, "stories": stories} if images else {}


def story_of(scene: Scene, told: StorySet) -> dict[str, Any]:
    """Of a scene's story the perspective ``shown``, strips of the ``others``, and the ``beliefs``.

    These are rows: who, and what they hold at each of the ``frames`` that bound the stages.
    """
    case = scene.case
    others = [one for one in seen_by(case) if one != scene.perspective]
    frames, *held = story_table(told.story(case.story), case).T.to_numpy().tolist()
    return {
        "shown": scene.perspective,
        "others": [[one, strip(case.frames(one))] for one in others],
        "frames": frames,
        "beliefs": [[who, *places] for who, places in zip(WHO, held, strict=True)],
    }


def listed(run: Run, rows: np.ndarray) -> list[int]:
    """The samples, rows of ``run.samples``, that stand in the lists of the best heads, each once.

    Held-out ones: the most certain that are told rightly, and wrongly, and the least certain.
    """
    items, found = run.samples, []
    held_out = rows[(items["split"] != "train").to_numpy()[rows]]
    for place in range(HEADS):
        for label in run.labels:
            ranked = run.ranked(label)
            if place >= len(ranked):
                continue
            layer, head = (int(ranked.iloc[place][name]) for name in ("layer", "head"))
            values = items[label]
            logits = logits_of(run, label, layer, head, run.head_activations(layer, head))
            classes = classes_of(values)
            truth = np.array([classes.index(value) for value in values])
            right = (guessed(logits, values) == truth)[held_out]
            first = np.sort(logits, axis=1)
            surest = np.argsort(first[:, -2] - first[:, -1], kind="stable")
            order = surest[np.isin(surest, held_out)]
            is_right = np.isin(order, held_out[right])
            found += [*order[is_right][:LISTED], *order[~is_right][:LISTED], *order[::-1][:LISTED]]
    return list(dict.fromkeys(map(int, found)))


def strip(frames: Frames) -> str:
    """Frames ``uint8 [F, height, width, 3]`` beside each other, small, as a PNG in base64."""
    from PIL import Image

    places = np.linspace(0, len(frames) - 1, min(MOST, len(frames))).round().astype(int)
    tall, wide = frames.shape[1:3]
    across = max(1, round(wide * TALL / tall))
    sheet = Image.new("RGB", (len(places) * (across + GAP) - GAP, TALL), "white")
    for number, frame in enumerate(frames[places]):
        small = Image.fromarray(frame).resize((across, TALL), Image.Resampling.BOX)
        sheet.paste(small, (number * (across + GAP), 0))
    buffer = io.BytesIO()
    # In all their colours: of a palette the small shapes, which are the agents, would lose theirs.
    sheet.save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
