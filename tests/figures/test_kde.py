"""Densities and clusters stand where they were planted, on directions fitted on train."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from sally_anne.core.errors import FigureError
from sally_anne.core.run import Head
from sally_anne.core.store import ActivationStore
from sally_anne.figures import kde, style
from sally_anne.figures.config import FiguresConfig
from sally_anne.figures.draw import draw

pytestmark = pytest.mark.integration

# Written out here: a figure that takes another group's colour is wrong, whatever its legend shows.
GREEN, ORANGE, BLUE, PINK = "#009e73", "#e69f00", "#0072b2", "#cc79a7"


def held_out(folder) -> tuple[pd.DataFrame, np.ndarray]:
    """Items and activations of head 0 that are shown, from the store itself."""
    store = ActivationStore.open(folder / "activations")
    shown = (store.items["split"] != "train").to_numpy()
    return store.items[shown], store.read(layers=[0])[:, 0, 0].numpy()[shown].astype(float)


def dots(axis) -> dict[str, np.ndarray]:
    """Where the points of each colour are, by its hex code."""
    found: dict[str, list] = {}
    for one in axis.collections:
        if type(one).__name__ == "PathCollection":
            places = np.asarray(one.get_offsets())
            colours = np.resize(one.get_facecolor(), (len(places), 4))
            for colour, place in zip(colours, places, strict=True):
                found.setdefault(to_hex(colour), []).append(place)
    return {colour: np.array(places) for colour, places in found.items()}


def legend(figure: Figure) -> dict[str, Any]:
    """The legend's pictures by their words."""
    (one,) = figure.legends
    words = [text.get_text() for text in one.get_texts()]
    return dict(zip(words, one.legend_handles, strict=True))


def middle(axis, colour: str, column: int) -> float:
    """Where the filled density of a colour has its middle, along x (0) or y (1)."""
    (one,) = [c for c in axis.collections if to_hex(c.get_facecolor()[0]) == colour]
    outline = one.get_paths()[0].vertices
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
    paths = draw(FiguresConfig(planted, kind=("kde",), label=label))
    items, z = held_out(planted)
    (figure,) = saved
    panels = {a.get_label(): a for a in figure.axes}
    joint, top, right = panels["joint"], panels["top"], panels["right"]
    table = pd.read_parquet(paths[2])
    points = dots(joint)
    assert set(points) == {GREEN, ORANGE}
    for value, colour, expected in ((True, GREEN, true), (False, ORANGE, false)):
        rows = (items[label] == value).to_numpy()
        np.testing.assert_allclose(
            points[colour][:, 0], z[rows, axis] - (9.0, 22.0)[axis], atol=1e-5
        )
        # The other axis is the third coordinate, either way up; it tells nothing.
        turned = np.sign(points[colour][0, 1] / z[rows, 2][0])
        np.testing.assert_allclose(points[colour][:, 1], turned * z[rows, 2], atol=1e-4)
        saved_rows = table.loc[table[label] == value, ["_x", "_y"]]
        np.testing.assert_allclose(points[colour], saved_rows, atol=1e-9)
        assert middle(top, colour, 0) == pytest.approx(expected, abs=1.0)
        assert middle(right, colour, 1) == pytest.approx(saved_rows["_y"].mean(), abs=3.0)
    for panel in (joint, top):
        dashed = [line for line in panel.lines if line.get_linestyle() == "--"]
        assert [line.get_xdata()[0] for line in dashed] == [pytest.approx(boundary)]
    # Every sample stands on the side of the boundary that its label says.
    assert (points[GREEN][:, 0] > boundary).all() and (points[ORANGE][:, 0] < boundary).all()
    symbol = {"y_p": "Y_p", "y_o": "Y_o"}[label]
    handles = legend(figure)
    for words, colour, marker in (("true", GREEN, "o"), ("false", ORANGE, "^")):
        handle = handles[f"{symbol} {words} (n = 24)"]
        assert (to_hex(handle.get_color()), handle.get_marker()) == (colour, marker)
    assert "accuracy 1.000, AUC 1.000" in figure.get_suptitle().replace("\u00a0", " ")


def test_clusters_stand_where_they_were_planted(planted, saved) -> None:
    paths = draw(FiguresConfig(planted, kind=("clusters",)))
    items, z = held_out(planted)
    (figure,) = saved
    left, right = figure.axes
    colours = {(1, 1): GREEN, (0, 0): ORANGE, (1, 0): BLUE, (0, 1): PINK}
    points, handles = dots(left), legend(figure)
    for (y_p, y_o), colour in colours.items():
        rows = ((items["y_p"] == bool(y_p)) & (items["y_o"] == bool(y_o))).to_numpy()
        np.testing.assert_allclose(points[colour], z[rows, :2] - [9.0, 22.0], atol=1e-5)
        words = f"Y_p {str(bool(y_p)).lower()}, Y_o {str(bool(y_o)).lower()} (n = 12)"
        assert to_hex(handles[words].get_facecolor()[0]) == colour
    # Lines: Y_p's is solid and upright at x = 9, Y_o's dashed and level at y = 21.
    solid, dashed = left.lines
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
    assert [solid.get_xy1()[0], solid.get_xy2()[0]] == pytest.approx([0.0, 0.0], abs=1e-6)
    assert [dashed.get_xy1()[1], dashed.get_xy2()[1]] == pytest.approx([-1.0, -1.0], abs=1e-6)
    # On validation 0.96 and 0.99, and 0.51 and 0.54.
    assert "L0H0" in left.get_title() and "0.96" in left.get_title()
    assert "L0H1" in right.get_title() and "0.54" in right.get_title()
    table = pd.read_parquet(paths[2])
    sensitive = table[table["head"] == 0]
    logit = sensitive["_y_p_a"] * sensitive["_x"] + sensitive["_y_p_c"]
    np.testing.assert_array_equal(logit > 0, sensitive["y_p"])


def test_directions_never_see_the_samples_shown(run, saved, make_run) -> None:
    config = FiguresConfig(run.folder, kind=("kde",), label="y_p", split="train", layer=4, head=3)
    first = pd.read_parquet(draw(config)[2])
    # the same train samples, other held-out ones
    other = make_run(name="other", groups={"train": 25, "validation": 2, "test": 3})
    config = FiguresConfig(other.folder, kind=("kde",), label="y_p", split="train", layer=4, head=3)
    second = pd.read_parquet(draw(config)[2])
    np.testing.assert_allclose(first[["_x", "_y"]], second[["_x", "_y"]], atol=1e-9)


def test_head_label_and_directions_can_be_chosen(run, saved) -> None:
    choice = {"label": "y_o", "layer": 1, "head": 2, "directions": "pca", "split": "test"}
    paths = draw(FiguresConfig(run.folder, kind=("kde",), **choice))
    assert paths[0].name == "kde_y_o_L1H2_pca_test.png"
    table = pd.read_parquet(paths[2])
    z = run.z[:, 1, 2].astype("float64")
    train, test = ((run.items["split"] == name).to_numpy() for name in ("train", "test"))
    center = z[train].mean(axis=0)
    parts = np.linalg.svd(z[train] - center, full_matrices=False)[2][:2]
    np.testing.assert_allclose(
        np.abs(table[["_x", "_y"]]), np.abs((z[test] - center) @ parts.T), atol=1e-6
    )
    for wrong in ({"layer": 1}, {"layer": 9, "head": 0}, {"label": "other"}):
        with pytest.raises(FigureError):
            draw(FiguresConfig(run.folder, kind=("kde",), **wrong))


@given(st.integers(0, 10_000))
def test_boundaries_are_exact_in_the_plane_of_both_probes(seed: int) -> None:
    draw = np.random.default_rng(seed)
    z, first, second = draw.normal(size=(40, 7)), draw.normal(size=7), draw.normal(size=7)
    probes = {"one": (first, 0.3), "two": (second, 0.3)}
    table = kde.cluster_table(Head(0, 0), probes, z, z, pd.DataFrame(index=range(40)))
    for label, (coef, _) in probes.items():
        a, b, c = (table[f"_{label}_{name}"] for name in "abc")
        np.testing.assert_allclose(a * table["_x"] + b * table["_y"] + c, z @ coef + 0.3, atol=1e-9)
        np.testing.assert_allclose(np.hypot(a, b), np.linalg.norm(coef))  # as in all of space


@pytest.mark.parametrize("label", ["x", "y", "kind", "condition", "label", "fits"])
def test_a_label_keeps_its_values_whatever_it_is_called(label: str) -> None:
    random = np.random.default_rng(0)
    z, values = random.normal(size=(40, 3)), np.arange(40) % 2 == 0
    samples = pd.DataFrame({"item_id": range(40), "split": "test", "condition": "TB"})
    samples[label] = values
    plane, boundary = kde.density_plane(z, np.array([1.0, 0.0, 0.0]), 0.0)
    table = plane.table(z, samples, label)
    assert (table[label] == values).all()
    np.testing.assert_allclose(table["_x"], z[:, 0] - z[:, 0].mean())
    figure = kde.kde_figure(table, label, "L0H0", [], boundary)
    (joint,) = (axis for axis in figure.axes if axis.get_label() == "joint")
    assert sum(map(len, dots(joint).values())) == 40
    assert [words.split(" ", 1)[1] for words in legend(figure)][:2] == [
        "true (n = 20)",
        "false (n = 20)",
    ]


def test_every_class_is_drawn_in_the_order_of_its_probe() -> None:
    assert kde.classes_of(pd.Series([10, 9])) == [9, 10]
    figure = of_classes(*(f"c{i}" for i in range(10)))
    (joint,) = (axis for axis in figure.axes if axis.get_label() == "joint")
    assert sum(map(len, dots(joint).values())) == 40 and len(legend(figure)) >= 10


def of_classes(*classes: str) -> Figure:
    values = np.resize(np.array(classes, dtype=object), 40)
    samples = pd.DataFrame({"item_id": range(40), "split": "test", "fits": values})
    z = np.random.default_rng(0).normal(size=(40, 3))
    plane, boundary = kde.density_plane(z, np.array([1.0, 0.0, 0.0]), 0.0)
    with style.look():
        return kde.kde_figure(
            plane.table(z, samples, "fits"), "fits", "L0H0", [classes[0]], boundary
        )


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
@settings(max_examples=400)
def test_a_text_of_any_kind_is_drawn_in_letters_that_there_are(text: str) -> None:
    shown = style.readable(text)
    assert set(shown) - {"\n"} <= style.known_characters() and style.readable(shown) == shown
    assert shown == text or not (text.isascii() and text.isprintable())
    spelt = shown.encode("latin-1", "backslashreplace")
    assert "\\" in text or spelt.decode("unicode_escape") == text


@pytest.mark.parametrize(
    ("classes", "shown"),
    [
        (("$x_1$ & 50%", "no\t"), ["fits $x_1$ & 50% (n = 20)", "fits no\\t (n = 20)"]),
        (("信", "不"), ["fits \\u4e0d (n = 20)", "fits \\u4fe1 (n = 20)"]),
    ],
)
def test_classes_of_any_script_are_readable_in_the_legend(classes, shown, monkeypatch) -> None:
    monkeypatch.setattr(style, "FONTS", [style.FONT])
    style.known_characters.cache_clear()
    figure = of_classes(*classes)
    style.render(figure)
    words = figure.legends[0].get_texts()[:2]
    assert [text.get_text() for text in words] == shown
    assert not any(text.get_parse_math() or text.get_usetex() for text in words)
    style.known_characters.cache_clear()
