"""The density plot shows held-out samples on directions fitted on train, or says why not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.errors import ChoiceError
from sally_anne.figures import kde, style
from sally_anne.figures.kde import no_density

pytestmark = pytest.mark.integration


@pytest.fixture
def saved_figure(monkeypatch: pytest.MonkeyPatch) -> list:
    """Figures as they are when they are saved."""
    found: list = []
    monkeypatch.setattr(
        "sally_anne.figures.style._picture", lambda figure, *_: found.append(figure) or b""
    )
    return found


def drawn(table: pd.DataFrame, **more):
    with style.look():
        figure = kde.kde_figure(table, "y_p", "L0H0", ["model"], **more)
        figure.draw_without_rendering()
    return figure


def table_of(true: np.ndarray, false: np.ndarray) -> pd.DataFrame:
    table = pd.DataFrame(np.concatenate([true, false]), columns=["x", "y"])
    table["y_p"] = [True] * len(true) + [False] * len(false)
    return table


def cloud(count: int, centre: float = 0.0) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, 2)) + centre


def said(figure) -> str:
    return "\n".join(text.get_text() for text in figure.axes[2].texts + figure.axes[1].texts)


def legend_words(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_held_out_samples_are_projected_on_theta(run, numbers_only) -> None:
    paths = kde.draw(kde.KdeConfig(run.folder))
    assert [path.name for path in paths] == ["kde.png", "kde.pdf", "kde.parquet"]
    table = pd.read_parquet(paths[2])
    shown = run.items["split"].isin(["validation", "test"]).to_numpy()
    assert list(table["item_id"]) == list(run.items["item_id"][shown])
    assert list(table["y_p"]) == list(run.items["y_p"][shown])
    best = run.heads.loc[run.heads["y_p_rank"] == 1].iloc[0]
    layer, head = int(best["layer"]), int(best["head"])
    z = run.z[:, layer, head].astype("float64")
    theta = run.probes["y_p.coef"][layer, head].astype("float64")
    theta /= np.linalg.norm(theta)
    centre = z[(run.items["split"] == "train").to_numpy()].mean(axis=0)
    np.testing.assert_allclose(table["x"], (z[shown] - centre) @ theta, atol=1e-9)


def test_directions_never_see_the_samples_shown(run, numbers_only, make_run) -> None:
    first = pd.read_parquet(kde.draw(kde.KdeConfig(run.folder, split="train"))[2])
    # the same train samples, other held-out ones
    other = make_run(name="other", groups={"train": 25, "validation": 2, "test": 3})
    config = kde.KdeConfig(other.folder, split="train", layer=4, head=3)
    second = pd.read_parquet(kde.draw(config)[2])
    assert len(first) == len(second) == 100
    train = (run.items["split"] == "train").to_numpy()
    assert np.array_equal(run.z[train], other.z[train[: len(other.z)]])
    np.testing.assert_allclose(first[["x", "y"]], second[["x", "y"]], atol=1e-9)


def test_the_head_label_and_directions_can_be_chosen(run, numbers_only) -> None:
    config = kde.KdeConfig(run.folder, label="y_o", layer=1, head=2, directions="pca", split="test")
    paths = kde.draw(config)
    assert paths[0].name == "kde_y_o_l1h2_pca_test.png"
    table = pd.read_parquet(paths[2])
    assert set(table["split"]) == {"test"} and "y_o" in table
    z = run.z[:, 1, 2].astype("float64")
    train, test = ((run.items["split"] == name).to_numpy() for name in ("train", "test"))
    centre = z[train].mean(axis=0)
    parts = np.linalg.svd(z[train] - centre, full_matrices=False)[2][:2]
    np.testing.assert_allclose(np.abs(table["x"]), np.abs((z[test] - centre) @ parts[0]), atol=1e-6)
    np.testing.assert_allclose(np.abs(table["y"]), np.abs((z[test] - centre) @ parts[1]), atol=1e-6)


def test_a_choice_that_does_not_exist_is_refused(run, numbers_only) -> None:
    with pytest.raises(ChoiceError, match="--layer and --head together"):
        kde.draw(kde.KdeConfig(run.folder, layer=1))
    with pytest.raises(ChoiceError, match="no L9H0"):
        kde.draw(kde.KdeConfig(run.folder, layer=9, head=0))


def test_the_picture_is_labelled_and_counted() -> None:
    figure = drawn(table_of(cloud(40, 2.0), cloud(30)), boundary=1.0)
    joint = next(a for a in figure.axes if a.get_xlabel())
    assert joint.get_xlabel() == "projection on θ (probe direction)"
    assert joint.get_ylabel().splitlines()[0] == "projection on θ′ (main direction ⊥ θ)"
    assert legend_words(figure) == ["$Y_p$ true (n = 40)", "$Y_p$ false (n = 30)", "probe at 0.5"]
    assert figure.get_suptitle() == "L0H0\nmodel"
    assert said(figure) == ""
    points = [len(c.get_offsets()) for c in joint.collections if len(c.get_offsets()) > 1]
    assert points == [40, 30]


def reach_of(figure, colour: str) -> tuple[float, float]:
    """From which x to which the contours and the margin of a colour are drawn."""
    from matplotlib.colors import to_rgb

    panels = {axis.get_label(): axis for axis in figure.axes}
    places = [
        path.vertices[:, 0]
        for lines in panels["joint"].collections
        if type(lines).__name__ == "QuadContourSet" and not lines.filled
        if to_rgb(lines.get_edgecolor()[0]) == to_rgb(colour)
        for path in lines.get_paths()
    ]
    margin = next(line for line in panels["top"].lines if line.get_color() == colour)
    places.append(margin.get_xdata()[np.isfinite(margin.get_ydata())])
    found = np.concatenate(places)
    return float(found.min()), float(found.max())


@pytest.mark.parametrize("gap", [0.4, 1.0, 6.0])
@pytest.mark.parametrize("count", [12, 400])
def test_no_density_crosses_a_boundary_that_all_samples_keep(gap, count) -> None:
    draw = np.random.default_rng(count)
    # The false class in two heaps, one of them far off; the boundary midway in the gap.
    heaps = [draw.uniform(start, start + 3, count) for start in (-14 - gap, -3 - gap)]
    false = np.stack([np.concatenate(heaps), draw.normal(size=2 * count)], axis=1)
    true = np.stack([draw.uniform(gap, gap + 3, count), draw.normal(size=count)], axis=1)
    figure = drawn(table_of(true, false), boundary=0.0)
    assert reach_of(figure, style.TRUE)[0] > 0.0
    assert reach_of(figure, style.FALSE)[1] < 0.0


def test_a_class_in_two_heaps_is_not_smeared_over_the_gap_between_them() -> None:
    heaps = np.concatenate([cloud(100), cloud(100) + [20.0, 0.0]])
    places = np.linspace(-5, 25, kde.GRID)
    density = kde.heap(heaps[:, 0], (-5.0, 25.0)).mean(axis=1)
    assert density[np.abs(places - 10) < 2].max() == 0.0
    assert density[np.abs(places) < 1].max() > 0.05
    # One heap is as wide as another, wherever it lies; the rule of thumb made it ten times so.
    assert kde.spread_of(heaps[:, 0]) < 4 < heaps[:, 0].std()
    assert np.trapezoid(density, places) == pytest.approx(1.0, abs=0.01)


def test_samples_on_the_wrong_side_are_drawn_there() -> None:
    true = np.concatenate([cloud(50, 5.0), cloud(20, -5.0)])
    figure = drawn(table_of(true, cloud(40, -4.0)), boundary=0.0)
    assert reach_of(figure, style.TRUE)[0] < -5.0


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (7.0, 3.0)])
def test_densities_are_the_same_in_any_unit(scale, shift) -> None:
    values = cloud(60)[:, 0]
    first = kde.heap(values, (-4.0, 4.0), -1.5)
    other = kde.heap(
        scale * values + shift, (shift - 4 * scale, shift + 4 * scale), shift - 1.5 * scale
    )
    np.testing.assert_allclose(scale * other, first, atol=1e-9)


def test_the_title_says_accuracy_and_auc_of_what_is_shown(run, saved_figure) -> None:
    kde.draw(kde.KdeConfig(run.folder, layer=1, head=2, split="test"))
    items, z = run.items, run.z[:, 1, 2].astype("float64")
    shown = (items["split"] == "test").to_numpy()
    coef, bias = run.probes["y_p.coef"][1, 2], run.probes["y_p.intercept"][1, 2]
    scores, truth = (z @ coef + bias)[shown], items["y_p"].to_numpy(dtype=bool)[shown]
    pairs = scores[truth][:, None] - scores[~truth]
    auc = ((pairs > 0) + 0.5 * (pairs == 0)).mean()
    accuracy = ((scores > 0) == truth).mean()
    assert f"accuracy {accuracy:.3f}, AUC {auc:.3f}" in saved_figure[0].get_suptitle()
    row = run.heads[(run.heads["layer"] == 1) & (run.heads["head"] == 2)].iloc[0]
    assert accuracy == pytest.approx(row["y_p_test_accuracy"])


def test_the_scale_of_the_second_axis_is_said() -> None:
    points = cloud(200) * [10.0, 1.0]
    figure = drawn(table_of(points[:100], points[100:] + [1.0, 0.0]))
    joint = next(a for a in figure.axes if a.get_xlabel())
    size = joint.bbox.height / np.ptp(joint.get_ylim()), joint.bbox.width / np.ptp(joint.get_xlim())
    said = float(joint.get_ylabel().split("drawn ")[1].split(" times")[0])
    assert said == pytest.approx(size[0] / size[1], rel=0.06)
    assert 5 < said < 20


def test_both_groups_have_contours_and_margins_in_their_colours() -> None:
    from matplotlib.colors import to_rgb

    figure = drawn(table_of(cloud(40, 2.0), cloud(30)))
    panels = {axis.get_label(): axis for axis in figure.axes}
    for side in ("top", "right"):
        colours = {to_rgb(c.get_facecolor()[0]) for c in panels[side].collections}
        assert colours == {to_rgb(style.TRUE), to_rgb(style.FALSE)}
    contours = [c for c in panels["joint"].collections if type(c).__name__ == "QuadContourSet"]
    assert len(contours) == 4  # filled and lines, for each group


def test_a_boundary_outside_the_frame_is_not_in_the_legend() -> None:
    figure = drawn(table_of(cloud(40), cloud(30)), boundary=1e6)
    assert len(legend_words(figure)) == 2


@pytest.mark.parametrize(
    ("false", "reason"),
    [
        (np.empty((0, 2)), "0 samples"),
        (np.ones((1, 2)), "1 sample"),
        (np.eye(2), "2 samples"),
        (np.ones((20, 2)), "no variance"),
        (np.linspace(-1, 1, 20)[:, None] * [1.0, 2.0], "on one line"),
        (np.stack([np.linspace(-1, 1, 20), np.zeros(20)], axis=1), "on one line"),
    ],
)
def test_a_group_without_a_density_is_shown_as_points_with_a_note(false, reason) -> None:
    figure = drawn(table_of(cloud(40), false))
    panels = {axis.get_label(): axis for axis in figure.axes}
    assert said(figure) == f"$Y_p$ false: no density ({reason})"
    contours = [c for c in panels["joint"].collections if type(c).__name__ == "QuadContourSet"]
    assert len(contours) == 2
    offsets = [c.get_offsets() for c in panels["joint"].collections if c not in contours]
    np.testing.assert_array_equal(offsets[1], false)


def test_a_head_whose_activations_never_vary_is_drawn_with_notes(make_run) -> None:
    run = make_run(layers=2, heads=4, strength=np.zeros((2, 4)))
    flat = np.ones((len(run.items), 2))
    table = table_of(flat[:10], flat[10:])
    figure = drawn(table, notes=["the activations do not vary off θ: θ′ is zero"])
    assert said(figure).count("no density (no variance)") == 2
    assert said(figure).startswith("the activations do not vary")


def test_why_points_have_no_density() -> None:
    assert no_density(cloud(3), 1.0) is None
    assert no_density(cloud(50)[:, 0], 1.0) is None
    assert no_density(np.full(50, 3.0), 1.0) == "no variance"
    assert no_density(cloud(2), 1.0) == "2 samples"
    assert no_density(1e-12 * cloud(50), 1.0) == "no variance"


def test_nothing_is_cut() -> None:
    figure = drawn(table_of(cloud(40, 2000.0), cloud(30, -2000.0)), boundary=0.0)
    for artist in [*figure.axes, *figure.legends]:
        box = artist.get_tightbbox()
        if box is not None:
            assert box.x0 >= -1 and box.y0 >= -1
            assert box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
