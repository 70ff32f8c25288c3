"""Every head's samples in its plane and what its probe makes of them, small enough for a page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sally_anne.figures.choose import SPLITS
from sally_anne.figures.clusters import pair_of
from sally_anne.figures.kde import classes_of, guessed, logits_of
from sally_anne.figures.plane import pca_plane, probe_plane
from sally_anne.figures.report.page import packed
from sally_anne.hooks.saved_run import Run

# Bytes that all heads' points may take in a page, and characters that all prompts may.
ROOM, WORDS = 14_000_000, 4_000_000
STEPS = 32767  # of a 16-bit coordinate
SHORTEST = 200  # characters of a prompt
TOLD = ("train", "validation", "test")


def samples_of(run: Run, heads: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Which samples a page has points of, rows of ``run.samples``, and what it says of them.

    Of more than there is room for, as many of each split are left out as of the others, evenly.
    """
    items = run.samples
    most = max(60, int(ROOM / (heads * max(1, len(run.labels)) * 4 * 4 / 3)))
    share = min(1.0, most / len(items))
    rows = []
    for split in TOLD:
        own = np.flatnonzero((items["split"] == split).to_numpy())
        rows.append(own[np.linspace(0, len(own), round(share * len(own)), False).astype(int)])
    kept = np.sort(np.concatenate(rows))
    shown = items.iloc[kept]
    labels: dict[str, Any] = {}
    for label in run.labels:
        values = items[label]
        classes = classes_of(values)
        codes = {value: number for number, value in enumerate(classes)}
        labels[label] = {
            "classes": [
                str(c).lower() if isinstance(c, bool | np.bool_) else str(c) for c in classes
            ],
            "values": [codes[value] for value in shown[label]],
        }
    said: dict[str, Any] = {
        "of": len(items),
        "ids": list(map(str, shown["item_id"])),
        "split": list(map(str, shown["split"])),
        "labels": labels,
        "splits": {name: list(parts) for name, parts in SPLITS.items()},
    }
    if "condition" in shown:
        said["condition"] = list(map(str, shown["condition"]))
    if run.prompts is not None:
        said |= _words(run.prompts.reindex(shown["item_id"]).fillna("").tolist())
    return kept, said


def _words(texts: list[str]) -> dict[str, Any]:
    """Prompts, each once; of long ones the end, at which activations are read."""
    different = list(dict.fromkeys(texts))
    room = max(SHORTEST, WORDS // max(1, len(different)))
    cut = [text if len(text) <= room else f"… {text[-room:]}" for text in different]
    place = {text: number for number, text in enumerate(different)}
    return {"texts": cut, "text": [place[text] for text in texts]}


def points_of(run: Run, table: pd.DataFrame, rows: np.ndarray) -> dict[str, Any]:
    """Of each label, lists over the heads of ``table`` (``layer, head``), in its order.

    ``points``: 16-bit x and y of the samples ``rows`` in turn, as base64; ``scale``: what one step
    is in x and in y; ``line``: a and c of the logit a x + c, in units of x, of binary labels;
    ``confusion``: by split, counts of true class x predicted class, of all samples; ``sure``: of
    labels of more classes, each sample's margin between the first two, and ``guess``, its predicted
    class; ``axes``: which plane it is. Planes are those of the density figure. ``cosine`` is that
    between the directions of the first two labels, in whose plane clusters are.
    """
    items = run.samples
    train = (items["split"] == "train").to_numpy()
    splits = {name: (items["split"] == name).to_numpy() for name in TOLD}
    found: dict[str, Any] = {}
    for label in run.labels:
        binary = len(run.saved.get("labels", {}).get(label, ())) <= 2
        found[label] = {"points": [], "scale": [], "axes": "probe" if binary else "pca"}
        found[label] |= {"confusion": {name: [] for name in TOLD if splits[name].any()}}
        found[label] |= {"line": []} if binary else {"sure": [], "guess": []}
    pair = pair_of(run)
    found["cosine"] = []
    for layer, heads in table.groupby("layer", sort=False)["head"]:
        whole = run.activations([int(layer)])[:, 0].astype("float64")
        for head in heads:
            z = whole[:, int(head)]
            for label in run.labels:
                _head(run, label, int(layer), int(head), z, train, rows, splits, found[label])
            if pair is not None:
                first, second = (run.probe(name, int(layer), int(head))[0] for name in pair)
                lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
                found["cosine"].append(float(first @ second) / lengths if lengths else None)
    return found


def _head(
    run: Run,
    label: str,
    layer: int,
    head: int,
    z: np.ndarray,
    train: np.ndarray,
    rows: np.ndarray,
    splits: dict[str, np.ndarray],
    found: dict[str, Any],
) -> None:
    """Add one head's samples ``z [N, D]`` to what is found of a label."""
    values = run.samples[label]
    classes = classes_of(values)
    truth = np.array([classes.index(value) for value in values])
    logits = logits_of(run, label, layer, head, z)
    guess = guessed(logits, values)
    if "line" in found:
        coef, intercept = run.probe(label, layer, head)
        plane = probe_plane(coef, z[train], truth[train] == 0)
        # Of two classes the second is what the probe calls true; True is the first in colours.
        turn = 1 if values.dtype == bool else -1
        slope, _, offset = plane.line(coef, intercept)
        found["line"].append([turn * slope, turn * offset])
    else:
        plane = pca_plane(z[train], truth[train] == 0)
        first = np.sort(logits, axis=1)
        margin = (first[:, -1] - first[:, -2])[rows]
        found["sure"].append(packed(margin.astype(np.float32)))
        found["guess"].append(packed(guess[rows].astype(np.uint8)))
    xy = plane.project(z[rows])
    reach = np.abs(xy).max(axis=0, initial=0.0)
    steps = np.where(reach > 0, reach / STEPS, 1.0)
    found["points"].append(packed(np.rint(xy / steps).astype(np.int16)))
    found["scale"].append(steps)
    for name, counts in found["confusion"].items():
        own = splits[name]
        table = np.bincount(truth[own] * len(classes) + guess[own], minlength=len(classes) ** 2)
        counts.append(table.tolist())
