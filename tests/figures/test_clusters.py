"""The cluster plot: points on the side their probe predicts, counts and areas as said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from sally_anne.core.errors import ChoiceError
from sally_anne.figures import clusters, style
from sally_anne.figures import plane as lines
from sally_anne.hooks.geometry import Head

pytestmark = pytest.mark.integration


def panel_of(run, layer: int, head: int, role: str = "sensitive") -> clusters.Panel:
    shown = (run.items["split"] != "train").to_numpy()
    z = run.z[:, layer, head].astype("float64")
    probes = {
        label: (
            run.probes[f"{label}.coef"][layer, head].astype("float64"),
            float(run.probes[f"{label}.intercept"][layer, head]),
        )
        for label in ("y_p", "y_o")
    }
    return clusters.head_panel(
        role, Head(layer, head), z[~shown], z[shown], run.items[shown], probes
    )


def drawn(panels):
    with style.look():
        figure = clusters.clusters_figure(panels, "held-out", ["model"])
        figure.draw_without_rendering()
    return figure


def test_the_saved_table_holds_points_and_boundaries_of_both_heads(run, numbers_only) -> None:
    paths = clusters.draw(clusters.ClustersConfig(run.folder))
    assert [path.name for path in paths] == ["clusters.png", "clusters.pdf", "clusters.parquet"]
    table = pd.read_parquet(paths[2])
    points = table[table["kind"] == "point"]
    assert dict(points.groupby("panel").size()) == {"sensitive": 100, "insensitive": 100}
    left = points[points["panel"] == "sensitive"]
    assert set(zip(left["layer"], left["head"], strict=True)) == {(4, 3)}  # planted
    assert list(left["item_id"]) == list(run.items["item_id"][run.items["split"] != "train"])
    better = run.heads[["y_p_validation_accuracy", "y_o_validation_accuracy"]].max(axis=1)
    right = points[points["panel"] == "insensitive"].iloc[0]
    chosen = (run.heads["layer"] == right["layer"]) & (run.heads["head"] == right["head"])
    assert better[chosen].iloc[0] == better.min()
    assert (table[table["panel"] == "sensitive"]["kind"] == "boundary_y_p").sum() == 2


def test_ends_of_a_saved_boundary_have_probability_one_half(run) -> None:
    table = clusters.plotted_table([panel_of(run, 4, 3)])
    z = run.z[:, 4, 3].astype("float64")
    origin = z[(run.items["split"] == "train").to_numpy()].mean(axis=0)
    w = {label: run.probes[f"{label}.coef"][4, 3].astype("float64") for label in ("y_p", "y_o")}
    u = w["y_p"] / np.linalg.norm(w["y_p"])
    v = w["y_o"] - (w["y_o"] @ u) * u
    v /= np.linalg.norm(v)
    for label in ("y_p", "y_o"):
        ends = table[table["kind"] == f"boundary_{label}"]
        assert len(ends) == 2
        for x, y in zip(ends["x"], ends["y"], strict=True):
            logit = w[label] @ (origin + x * u + y * v) + run.probes[f"{label}.intercept"][4, 3]
            assert 1 / (1 + np.exp(-logit)) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(("layer", "head"), [(4, 3), (3, 0), (0, 0)])
def test_each_point_stands_on_the_side_that_its_probe_predicts(run, layer, head) -> None:
    panel = panel_of(run, layer, head)
    z = run.z[(run.items["split"] != "train").to_numpy(), layer, head].astype("float64")
    points = panel.points[["x", "y"]].to_numpy()
    for label in ("y_p", "y_o"):
        coef = run.probes[f"{label}.coef"][layer, head].astype("float64")
        logits = z @ coef + float(run.probes[f"{label}.intercept"][layer, head])
        np.testing.assert_allclose(lines.values(panel.boundaries[label], points), logits, atol=1e-6)
        right = ((logits > 0) == panel.points[label]).mean()
        assert panel.accuracy(label) == pytest.approx(right)


def test_the_accuracy_said_is_that_of_the_head_table(run, numbers_only) -> None:
    paths = clusters.draw(clusters.ClustersConfig(run.folder, split="test"))
    table = pd.read_parquet(paths[2])
    assert set(table["split"].dropna()) == {"test"}
    items = run.items[run.items["split"] == "test"]
    z = run.z[items.index, 4, 3].astype("float64")
    train = run.z[(run.items["split"] == "train").to_numpy(), 4, 3].astype("float64")
    probes = {
        label: (
            run.probes[f"{label}.coef"][4, 3].astype("float64"),
            float(run.probes[f"{label}.intercept"][4, 3]),
        )
        for label in ("y_p", "y_o")
    }
    panel = clusters.head_panel("sensitive", Head(4, 3), train, z, items, probes)
    row = run.heads[(run.heads["layer"] == 4) & (run.heads["head"] == 3)].iloc[0]
    for label in ("y_p", "y_o"):
        assert panel.accuracy(label) == pytest.approx(row[f"{label}_test_accuracy"])


def test_the_insensitive_head_has_probes_with_weights(make_run, numbers_only) -> None:
    run = make_run(layers=2, heads=3)

    def shown(*zeros: tuple[str, int, int]) -> list[tuple[int, int]]:
        probes = {name: tensor.copy() for name, tensor in run.probes.items()}
        for label, layer, head in zeros:
            probes[f"{label}.coef"][layer, head] = 0.0
        save_file(probes, run.folder / "probes.safetensors")
        table = pd.read_parquet(clusters.draw(clusters.ClustersConfig(run.folder))[2])
        chosen = table.drop_duplicates("panel").set_index("panel")[["layer", "head"]]
        return [tuple(chosen.loc[panel]) for panel in ("sensitive", "insensitive")]

    left, first = shown()
    _, second = shown(("y_p", *first))
    assert second not in (left, first)
    _, third = shown(("y_p", *first), ("y_o", *second))
    assert third not in (left, first, second)
    every = [("y_p", layer, head) for layer in range(2) for head in range(3)]
    assert shown(*every) == [left, first]


def test_heads_can_be_asked_for(run, numbers_only) -> None:
    config = clusters.ClustersConfig(run.folder, sensitive=(1, 2), insensitive=(0, 7), split="all")
    paths = clusters.draw(config)
    assert paths[0].name == "clusters_l1h2_l0h7_all.png"
    table = pd.read_parquet(paths[2])
    heads = table[["panel", "layer", "head"]].drop_duplicates().to_records(index=False).tolist()
    assert heads == [("sensitive", 1, 2), ("insensitive", 0, 7)]
    with pytest.raises(ChoiceError, match="no L1H99"):
        clusters.draw(clusters.ClustersConfig(run.folder, sensitive=(1, 99)))


def test_the_picture_is_labelled_and_counts_conditions(run) -> None:
    figure = drawn([panel_of(run, 4, 3), panel_of(run, 0, 0, "insensitive")])
    left, right = figure.axes
    assert left.get_xlabel() == "along θ of the $Y_p$ probe"
    assert left.get_ylabel() == "along θ of the $Y_o$ probe, part ⊥ θ of $Y_p$"
    assert left.get_title().startswith(
        "sensitive: L4H3\nas asked\nshown: $Y_p$ 0.99 right, $Y_o$ 1.00 right"
    )
    assert right.get_title().startswith("insensitive: L0H0\n")
    # The points fill their frame.
    for axis, panel in ((left, panel_of(run, 4, 3)), (right, panel_of(run, 0, 0))):
        for name, ends in (("x", axis.get_xlim()), ("y", axis.get_ylim())):
            assert np.ptp(panel.points[name]) > 0.88 * np.ptp(ends)
            assert ends[0] < panel.points[name].min() and panel.points[name].max() < ends[1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "$Y_p$ = 1, $Y_o$ = 1 (TB: n = 25)",
        "$Y_p$ = 0, $Y_o$ = 0 (TB: n = 25)",
        "$Y_p$ = 1, $Y_o$ = 0 (FB: n = 25)",
        "$Y_p$ = 0, $Y_o$ = 1 (FB: n = 25)",
        "$Y_p$ probe at 0.5",
        "$Y_o$ probe at 0.5",
    ]
    assert figure.get_suptitle() == "held-out samples (N = 100)\nmodel"


def test_areas_are_tinted_as_both_probes_predict(run) -> None:
    from matplotlib.colors import to_rgb

    panel = panel_of(run, 4, 3)
    axis = drawn([panel]).axes[0]
    assert len(axis.patches) == 4
    for patch in axis.patches:
        middle = patch.get_xy()[:-1].mean(axis=0, keepdims=True)
        predicted = tuple(
            int(lines.values(panel.boundaries[label], middle)[0] > 0) for label in ("y_p", "y_o")
        )
        assert to_rgb(patch.get_facecolor()) == to_rgb(style.CLUSTER_COLOURS[predicted])


def test_mixed_conditions_and_empty_clusters_are_counted_as_they_are() -> None:
    points = pd.DataFrame(
        {"y_p": [True] * 3, "y_o": [True] * 3, "condition": ["FB", "TB", "TB"], "x": 0.0, "y": 0.0}
    )
    text = clusters.cluster_text
    assert text(points, ("y_p", "y_o"), (1, 1)) == "$Y_p$ = 1, $Y_o$ = 1 (TB: n = 2, FB: n = 1)"
    assert text(points, ("y_p", "y_o"), (0, 1)) == "$Y_p$ = 0, $Y_o$ = 1 (n = 0)"


def test_four_conditions_of_second_order_fit_in_the_legend(run) -> None:
    panel = panel_of(run, 4, 3)
    names = ["TB/TB", "TB/FB", "FB/TB", "FB/FB"]
    panel.points["condition"] = [names[(i // 4) % 4] for i in range(len(panel.points))]
    assert clusters.cluster_text(panel.points, panel.labels, (1, 1)) == (
        "$Y_p$ = 1, $Y_o$ = 1 (TB/TB: n = 7, TB/FB: n = 6,\nFB/TB: n = 6, FB/FB: n = 6)"
    )
    figure = drawn([panel, panel])
    box = figure.legends[0].get_tightbbox()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0


def test_a_boundary_far_away_is_said_and_not_drawn(run) -> None:
    panel = panel_of(run, 4, 3)
    panel.boundaries["y_o"] = (0.0, 1.0, -1e6)
    axis = drawn([panel]).axes[0]
    assert [text.get_text() for text in axis.texts] == ["$Y_o$ boundary lies outside"]
    assert len(axis.lines) == 1
    assert (clusters.plotted_table([panel])["kind"] == "boundary_y_o").sum() == 0


def test_probes_without_weights_and_flat_activations_are_drawn_with_notes(run) -> None:
    items = run.items.iloc[:8]
    flat = np.ones((8, 5))
    probes = {"y_p": (np.zeros(5), 0.0), "y_o": (np.zeros(5), 0.0)}
    panel = clusters.head_panel("sensitive", Head(0, 0), flat, flat, items, probes)
    axis = drawn([panel]).axes[0]
    assert "probe has no weights" in axis.texts[0].get_text()
    assert axis.get_title().endswith("shown: no probe has weights")
    assert axis.patches[:] == [] and len(axis.lines) == 0
    assert panel.accuracy("y_p") is None
    assert len(clusters.plotted_table([panel])) == 8


def test_nothing_is_cut(run) -> None:
    figure = drawn([panel_of(run, 4, 3), panel_of(run, 0, 0)])
    boxes = [artist.get_tightbbox() for artist in [*figure.axes, *figure.legends]]
    for box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
    assert boxes[0].x1 <= boxes[1].x0 + 1
