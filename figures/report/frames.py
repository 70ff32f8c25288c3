"""Small film strips of the samples that a page lists: those of which a probe is most or least sure.

They are drawn again from the run's own data, never taken from a model.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

from figures.kde import classes_of, guessed, logits_of
from hooks.saved_run import Run
from sally_anne.benchmarks.samples import Frames
from sally_anne.core.errors import SallyAnneError

# Best heads of each label whose lists have frames, samples in a list, films, and bytes of all.
HEADS, LISTED, FILMS, ROOM = 4, 4, 60, 3_000_000
TALL, GAP, MOST = 96, 2, 8  # pixels; pictures in a strip


def strips_of(run: Run, rows: np.ndarray) -> dict[str, Any]:
    """Strips of samples among ``rows`` of ``run.samples``; empty where nothing was seen.

    Returns:
        ``images``, PNGs in base64, and ``of``, the number of its strip by ``item_id``. Also empty
        if the run's samples cannot be made again from its options, or a film is gone.
    """
    if run.config.get("setting") == "text" or "fingerprint" not in run.saved.get("data", {}):
        return {}
    from probing.sources import reopen

    try:
        samples = reopen(run.folder).data.samples
        images: dict[tuple[str, str], str] = {}
        of: dict[str, int] = {}
        for row in listed(run, rows):
            sample = samples[row]
            # What shares its context with another sample shows the same film.
            film = (sample.group, sample.context or sample.item_id)
            full = len(images) >= FILMS or sum(map(len, images.values())) > ROOM
            if not sample.shows or (film not in images and full):
                continue
            if film not in images:
                images[film] = strip(sample.frames())
            of[sample.item_id] = list(images).index(film)
    except SallyAnneError:
        return {}
    return {"images": list(images.values()), "of": of} if images else {}


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
