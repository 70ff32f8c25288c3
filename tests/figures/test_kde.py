"""The density plot shows held-out samples on directions fitted on train, or says why not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from figures import kde, style
from figures.kde import no_density
from sally_anne.core.errors import ChoiceError

pytestmark = pytest.mark.integration


def drawn(table: pd.DataFrame, **more):
    with style.look():
        figure = kde.kde_figure(table, "y_p", "layer 0, head 0", ["model"], **more)
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
    with pytest.raises(ChoiceError, match="no layer 9, head 0"):
        kde.draw(kde.KdeConfig(run.folder, layer=9, head=0))


def test_the_picture_is_labelled_and_counted() -> None:
    figure = drawn(table_of(cloud(40, 2.0), cloud(30)), boundary=1.0)
    joint = next(a for a in figure.axes if a.get_xlabel())
    assert joint.get_xlabel() == "projection on θ (probe direction)"
    assert joint.get_ylabel() == "projection on θ′ (main direction ⊥ θ)"
    assert legend_words(figure) == ["$Y_p$ true (n = 40)", "$Y_p$ false (n = 30)", "probe at 0.5"]
    assert figure.get_suptitle() == "layer 0, head 0\nmodel"
    assert said(figure) == ""
    points = [len(c.get_offsets()) for c in joint.collections if len(c.get_offsets()) > 1]
    assert points == [40, 30]


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
