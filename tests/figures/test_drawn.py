"""A run and a sweep with planted numbers: what is drawn, read from the artists, is known by hand.

Colours are written out here: a figure that takes another group's is wrong, whatever its legend
says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from safetensors.numpy import save_file

from sally_anne.figures import clusters, heatmap, kde, sweep
from tests.made_run import CONFIG, ROWS, make_items, write_store

pytestmark = pytest.mark.integration

GREEN, ORANGE, BLUE, PINK, RED, GREY = (
    *("#009e73", "#e69f00", "#0072b2", "#cc79a7", "#d55e00", "#7f7f7f"),
)
CORNERS = {(True, True): (7, 5), (False, False): (-9, -1), (True, False): (3, -3)}
CORNERS[False, True] = (-5, 7)


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they are when they are saved."""
    found: list[Figure] = []

    def keep(figure: Figure, kind: str, metadata: Any) -> bytes:
        if kind == "png":
            figure.draw_without_rendering()
            found.append(figure)
        return b""

    monkeypatch.setattr("sally_anne.figures.style._picture", keep)
    return found


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """One layer of two heads; each (Y_p, Y_o) has a place of its own in head 0.

    Samples lie at x = 10, y = 20 and a corner from there, a little scattered in the held-out ones.
    Y_p's probe is 2 x - 18, so it says 0.5 at x = 9; Y_o's is 4 y - 84, at y = 21. The third
    coordinate varies most and tells nothing; the fourth is the same for all.
    """
    items = make_items({"train": 8, "validation": 6, "test": 6})
    labels = items[["y_p", "y_o"]].itertuples(index=False)
    places = np.array([CORNERS[bool(p), bool(o)] for p, o in labels], dtype=float)
    z = np.zeros((len(items), 1, 2, 4), dtype="float32")
    draw = np.random.default_rng(0)
    held = (items["split"] != "train").to_numpy()
    z[:, 0, 0, :2] = places + [10, 20]
    z[held, 0, 0, :2] += draw.uniform(-0.5, 0.5, (held.sum(), 2))
    z[:, 0, 0, 2] = np.tile([-40, -20, 20, 40], len(items) // 4)[draw.permutation(len(items))]
    z[~held, 0, 0, 2] = np.repeat([-40, 40], 16)  # as often with every label
    z[:, 0, 1, 0] = draw.normal(size=len(items))
    accuracies = {"train": (1.0, 0.5), "validation": (0.96, 0.51), "test": (0.93, 0.54)}
    heads = pd.DataFrame({"layer": [0, 0], "head": [0, 1]})
    for shift, label in ((0.0, "y_p"), (0.03, "y_o")):
        for split, values in accuracies.items():
            heads[f"{label}_{split}_accuracy"] = [value + shift for value in values]
        heads[f"{label}_rank"] = [1, 2]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"config": CONFIG, "results": {}}))
    write_store(folder / "activations", items, z)
    heads.to_parquet(folder / "heads.parquet")
    probes = {
        "y_p.coef": np.array([[[2, 0, 0, 0], [1, 0, 0, 0]]], dtype="float32"),
        "y_p.intercept": np.array([[-18, 0]], dtype="float32"),
        "y_o.coef": np.array([[[0, 4, 0, 0], [0, 1, 0, 0]]], dtype="float32"),
        "y_o.intercept": np.array([[-84, 0]], dtype="float32"),
    }
    save_file(probes, folder / "probes.safetensors")
    return folder


def held_out(folder: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Items and activations of head 0 that are shown, from the store itself."""
    from sally_anne.hooks.store import ActivationStore

    store = ActivationStore.open(folder / "activations")
    shown = (store.items["split"] != "train").to_numpy()
    return store.items[shown], store.read(layers=[0])[:, 0, 0].numpy()[shown].astype(float)


def dots(axis) -> dict[str, np.ndarray]:
    """Where the points of each colour are, by its hex code."""
    return {
        to_hex(c.get_facecolor()[0]): np.asarray(c.get_offsets())
        for c in axis.collections
        if type(c).__name__ == "PathCollection"
    }


def legend(figure: Figure) -> dict[str, Any]:
    """The legend's pictures by their words."""
    (found,) = figure.legends
    words = [text.get_text() for text in found.get_texts()]
    return dict(zip(words, found.legend_handles, strict=True))


def heap(axis, colour: str, column: int) -> float:
    """Where the filled density of a colour has its middle, along x (0) or y (1)."""
    (found,) = [
        c
        for c in axis.collections
        if type(c).__name__ != "PathCollection" and to_hex(c.get_facecolor()[0]) == colour
    ]
    outline = found.get_paths()[0].vertices
    height = np.abs(outline[:, 1 - column])
    return float((outline[:, column] * height).sum() / height.sum())


# The mean of the corners is (-1, 2), so the plane's origin is x = 9, y = 22.
@pytest.mark.parametrize(
    ("label", "axis", "boundary", "true", "false"),
    [
        # Theta is x: true at 7 and 3, false at -9 and -5 beyond 10.
        ("y_p", 0, 9.0 - 9.0, (10 + 5) - 9.0, (10 - 7) - 9.0),
        # Theta is y: true at 5 and 7, false at -1 and -3 beyond 20.
        ("y_o", 1, 21.0 - 22.0, (20 + 6) - 22.0, (20 - 2) - 22.0),
    ],
)
def test_densities_stand_where_they_were_planted(
    planted, saved, label, axis, boundary, true, false
) -> None:
    paths = kde.draw(kde.KdeConfig(planted, label=label))
    items, z = held_out(planted)
    (figure,) = saved
    panels = {a.get_label(): a for a in figure.axes}
    joint, top, right = panels["joint"], panels["top"], panels["right"]
    table = pd.read_parquet(paths[2])
    found = dots(joint)
    assert set(found) == {GREEN, ORANGE}
    for value, colour, middle in ((True, GREEN, true), (False, ORANGE, false)):
        own = (items[label] == value).to_numpy()
        wanted = np.stack([z[own, axis] - (9.0, 22.0)[axis], z[own, 2]], axis=1)
        np.testing.assert_allclose(found[colour][:, 0], wanted[:, 0], atol=1e-5)
        # The other axis is the third coordinate, either way up; it tells nothing.
        turned = np.sign(found[colour][0, 1] / wanted[0, 1])
        np.testing.assert_allclose(found[colour][:, 1], turned * wanted[:, 1], atol=1e-4)
        rows = table.loc[table[label] == value, ["x", "y"]]
        np.testing.assert_allclose(found[colour], rows, atol=1e-9)
        # The margins are those of the very coordinate that they stand at.
        assert heap(top, colour, 0) == pytest.approx(middle, abs=1.0)
        assert heap(right, colour, 1) == pytest.approx(rows["y"].mean(), abs=3.0)
        width = right.collections[0].get_paths()[0].vertices[:, 1]
        assert np.ptp(width) > 60  # of the third coordinate, not of the first
    for panel in (joint, top):
        dashed = [line for line in panel.lines if line.get_linestyle() == "--"]
        assert [line.get_xdata()[0] for line in dashed] == [pytest.approx(boundary)]
    # Every sample stands on the side of the boundary that its label says.
    assert (found[GREEN][:, 0] > boundary).all() and (found[ORANGE][:, 0] < boundary).all()
    words = {"y_p": "$Y_p$", "y_o": "$Y_o$"}[label]
    shown = legend(figure)
    assert {w: to_hex(h.get_color()) for w, h in shown.items()} == {
        f"{words} true (n = 24)": GREEN,
        f"{words} false (n = 24)": ORANGE,
        "probe at 0.5": "#404040",
    }
    assert [shown[f"{words} {w} (n = 24)"].get_marker() for w in ("true", "false")] == ["o", "^"]


def test_clusters_stand_where_they_were_planted(planted, saved) -> None:
    clusters.draw(clusters.ClustersConfig(planted))
    items, z = held_out(planted)
    (figure,) = saved
    left, right = figure.axes
    colours = {(1, 1): GREEN, (0, 0): ORANGE, (1, 0): BLUE, (0, 1): PINK}
    found = dots(left)
    assert set(found) == set(colours.values())
    for (y_p, y_o), colour in colours.items():
        own = ((items["y_p"] == bool(y_p)) & (items["y_o"] == bool(y_o))).to_numpy()
        np.testing.assert_allclose(found[colour], z[own, :2] - [9.0, 22.0], atol=1e-5)
    # Lines: Y_p's is solid and upright at x = 9, Y_o's dashed and level at y = 21.
    lines = {line.get_linestyle(): np.array(line.get_data()) for line in left.lines}
    assert set(lines) == {"-", "--"}
    np.testing.assert_allclose(lines["-"][0], 0.0, atol=1e-6)
    np.testing.assert_allclose(lines["--"][1], -1.0, atol=1e-6)
    # The ground has the colour of the cluster that both probes predict there.
    for patch in left.patches:
        x, y = patch.get_xy()[:-1].mean(axis=0)
        assert to_hex(patch.get_facecolor()) == colours[int(x > 0), int(y > -1)]
    assert len(left.patches) == 4
    # On validation 0.96 and 0.99, and 0.51 and 0.54.
    assert left.get_title() == (
        "sensitive: L0H0\nworse label is best of all heads (validation 0.96)\n"
        "shown: $Y_p$ 1.00 right, $Y_o$ 1.00 right"
    )
    assert right.get_title().startswith(
        "insensitive: L0H1\nbetter label is worst of all heads (validation 0.54)\n"
    )
    shown = legend(figure)
    conditions = {(bool(p), bool(o)): name for p, o, name in ROWS}
    for cluster, colour in colours.items():
        y_p, y_o = cluster
        name = conditions[bool(y_p), bool(y_o)]
        handle = shown.pop(f"$Y_p$ = {y_p}, $Y_o$ = {y_o} ({name}: n = 12)")
        assert to_hex(handle.get_color()) == colour
        (drawn,) = [c for c in left.collections if to_hex(c.get_facecolor()[0]) == colour]
        mark = MarkerStyle(handle.get_marker())
        outline = mark.get_path().transformed(mark.get_transform()).vertices
        np.testing.assert_array_equal(drawn.get_paths()[0].vertices, outline)
    assert {word: handle.get_linestyle() for word, handle in shown.items()} == {
        "$Y_p$ probe at 0.5": "-",
        "$Y_o$ probe at 0.5": "--",
    }


@pytest.mark.parametrize(("split", "sides"), [("validation", (0.96, 0.51)), ("test", (0.93, 0.54))])
def test_the_heatmap_shows_the_planted_accuracies(planted, saved, split, sides) -> None:
    heatmap.draw(heatmap.HeatmapConfig(planted, split=split))
    (figure,) = saved
    panels = figure.axes[:2]
    why = "best: " if split == "validation" else "best on validation:\n"
    count = 24
    for panel, shift, words in zip(
        panels, (0.0, 0.03), ("$Y_p$ (protagonist)", "$Y_o$ (omniscient)"), strict=True
    ):
        cells = [value + shift for value in sides]
        np.testing.assert_allclose(panel.collections[0].get_array(), [cells])
        written = {text.get_position(): text.get_text() for text in panel.texts}
        assert written == {(h, 0): f"{v:.2f}".removeprefix("0") for h, v in enumerate(cells)}
        assert [line.get_xydata().tolist() for line in panel.lines] == [[[0.0, 0.0]]]
        assert panel.get_title() == f"{words}\n{why}L0H0 ({cells[0]:.2f})"
        colours = panel.collections[0].get_facecolor()
        assert colours[0].sum() < colours[1].sum()  # the darker, the further from chance
    bar = figure.axes[-1]
    assert bar.get_ylabel() == f"{split} accuracy\n(N = {count} samples)"


ALPHAS = (-5.0, 5.0)
# Value, low and high in hundredths, by direction, K, alpha and measure.
SWEPT = {
    ("none", 0, 0.0): "TB 90 81 96  FB 40 32 51  Both 35 28 44  invalid 2 0 7",
    ("logistic", 4, -5.0): "TB 70 59 78  FB 30 23 42  Both 22 15 33  invalid 9 4 16",
    ("logistic", 4, 5.0): "TB 85 74 91  FB 62 50 69  Both 57 45 66  invalid 5 1 12",
    ("logistic", 8, -5.0): "TB 55 43 64  FB 20 12 31  Both 11 6 20  invalid 14 8 22",
    ("logistic", 8, 5.0): "TB 80 69 88  FB 77 68 83  Both 71 60 79  invalid 8 3 15",
    ("random", 4, -5.0): "TB 88 80 94  FB 38 30 47  Both 33 25 41  invalid 3 1 8",
    ("random", 4, 5.0): "TB 87 79 93  FB 41 34 52  Both 34 26 43  invalid 4 2 9",
    ("random", 8, -5.0): "TB 83 73 90  FB 36 27 45  Both 30 21 39  invalid 6 2 11",
    ("random", 8, 5.0): "TB 84 75 92  FB 43 35 54  Both 31 24 40  invalid 7 3 13",
    ("random_heads", 8, -5.0): "TB 78 68 86  FB 33 24 43  Both 27 18 37  invalid 10 5 17",
    ("random_heads", 8, 5.0): "TB 79 70 87  FB 46 37 55  Both 37 29 46  invalid 11 6 18",
}


def measured(direction: str, k: int, alpha: float) -> dict[str, tuple[float, float, float]]:
    words = SWEPT[direction, k, alpha].split()
    return {
        words[i]: (int(words[i + 1]) / 100, int(words[i + 2]) / 100, int(words[i + 3]) / 100)
        for i in range(0, len(words), 4)
    }


def test_a_sweep_shows_its_planted_curves_and_bands(tmp_path: Path, saved) -> None:
    rows = [
        {"split": split, "direction": d, "k": k, "alpha": a, "measure": measure, "n": 60}
        | dict(zip(("value", "low", "high"), np.array(numbers) * share, strict=True))
        # The test stories' figures are others; they are not drawn.
        for split, share in (("validation", 1.0), ("test", 0.5))
        for d, k, a in SWEPT
        for measure, numbers in measured(d, k, a).items()
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "sweep.parquet")
    sweep.draw(sweep.SweepConfig(tmp_path))
    (figure,) = saved
    colours = {"TB": GREEN, "FB": ORANGE, "Both": BLUE, "invalid": GREY}
    controls = {"random": PINK, "random_heads": RED}
    assert [axis.get_title() for axis in figure.axes] == ["K = 4", "K = 8"]
    for axis, k in zip(figure.axes, (4, 8), strict=True):
        points = [("logistic", k, -5.0), ("none", 0, 0.0), ("logistic", k, 5.0)]
        curves = {to_hex(line.get_color()): line for line in axis.lines}
        bands = {
            to_hex(band.get_facecolor()[0], keep_alpha=False): band for band in axis.collections
        }
        assert set(bands) == set(colours.values())
        for measure, colour in colours.items():
            found = [measured(*point)[measure] for point in points]
            x, y = curves.pop(colour).get_data()
            assert list(x) == [0, 1, 2] and list(y) == [value for value, _, _ in found]
            # The whole of each interval, and nothing beside it.
            corners = {tuple(corner) for corner in bands[colour].get_paths()[0].vertices}
            assert corners == {
                (place, end) for place, (_, low, high) in enumerate(found) for end in (low, high)
            }
        for control, colour in controls.items():
            if (control, k, 5.0) in SWEPT:
                x, y = curves.pop(colour).get_data()
                ends = [measured(control, k, alpha)["Both"][0] for alpha in ALPHAS]
                assert list(x) == [0, 1, 2] and list(y) == [ends[0], 0.35, ends[1]]
        assert {c: set(line.get_ydata()) for c, line in curves.items()} == {"#000000": {0.35}}
    shown = legend(figure)
    assert {
        word: to_hex(handle.get_color() if hasattr(handle, "get_color") else "0.5")
        for word, handle in shown.items()
    } == {
        "TB": GREEN,
        "FB": ORANGE,
        "Both": BLUE,
        "invalid (share of answers)": GREY,
        "Both, random directions": PINK,
        "Both, random heads": RED,
        "Both without steering": "#000000",
        "bands: 95 % intervals": "#808080",
    }
    by_colour = {to_hex(line.get_color()): line for line in figure.axes[1].lines}
    for word, handle in shown.items():
        if word.startswith("bands"):
            continue
        line = by_colour[to_hex(handle.get_color())]
        for part in ("marker", "linestyle", "linewidth"):
            assert getattr(handle, f"get_{part}")() == getattr(line, f"get_{part}")(), word
