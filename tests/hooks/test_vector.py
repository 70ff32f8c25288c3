"""A vector is checked when it is made, and adds alpha * sigma * theta."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import EditError, PositionError, SteeringError
from sally_anne.hooks.edit import Edit, Gate

strengths = st.floats(-50, 50)


def test_what_it_says_of_itself(make) -> None:
    vector = make()
    assert (vector.k, vector.width, vector.alpha) == (3, 8, 2.0)
    assert (vector.direction, vector.site) == ("logistic", "head_out")
    assert vector.positions == "last_prompt+generated"


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"heads": (), "theta": torch.ones(0, 8), "sigma": torch.ones(0)}, "at least one head"),
        ({"theta": torch.ones(2, 8)}, r"theta \[3, D\] and sigma \[3\], got \[2, 8\] and \[3\]"),
        ({"theta": torch.ones(3)}, r"got \[3\] and \[3\]"),
        ({"sigma": torch.ones(3, 1)}, r"got \[3, 8\] and \[3, 1\]"),
        ({"heads": ((0, 1), (0, 3), (0, 1))}, "named twice"),
        ({"heads": ((0, 1), (0, 3), (3, 0))}, "L3H0 is not among 3 layers of 4 heads"),
        ({"heads": ((0, 1), (0, 4), (2, 0))}, "L0H4 is not among"),
        ({"heads": ((0, 1), (-1, 3), (2, 0))}, "L-1H3 is not among"),
        ({"sigma": torch.tensor([1.0, -0.5, 1.0])}, "sigma of L0H3 is -0.5"),
        ({"sigma": torch.tensor([1.0, 1.0, float("nan")])}, "sigma of L2H0 is nan"),
        ({"site": "z"}, "'z': choose one of head_out, attn_out, resid"),
        ({"alpha": float("inf")}, "alpha must be finite, got inf"),
        ({"alpha": float("nan")}, "alpha must be finite, got nan"),
    ],
)
def test_parts_that_do_not_belong_together(make, changes, match: str) -> None:
    with pytest.raises(SteeringError, match=match):
        make(**changes)


@pytest.mark.parametrize("value", [0.0, 2.0, float("nan"), float("inf")])
def test_directions_are_unit_vectors(make, value: float) -> None:
    theta = make().theta.clone()
    theta[1] = 0
    theta[1, 0] = value
    with pytest.raises(SteeringError, match="theta of L0H3 is not a unit vector"):
        make(theta=theta)


def test_unknown_positions(make) -> None:
    with pytest.raises(PositionError, match="'last'"):
        make(positions="last")


def test_a_head_that_never_varies_may_have_no_width(make) -> None:
    delta = make(sigma=torch.tensor([0.0, 1.0, 1.0])).delta()
    assert not delta[2, 1].any() and delta[0, 3].any()


def test_delta_by_hand(make) -> None:
    vector = make()
    delta = vector.delta()
    assert delta.shape == (3, 4, 8) and delta.dtype == torch.float32
    expected = torch.zeros(3, 4, 8, dtype=torch.float64)
    for (layer, head), theta, sigma in zip(vector.heads, vector.theta, vector.sigma, strict=True):
        expected[layer, head] = 2.0 * sigma * theta
    assert torch.equal(delta, expected.float())
    for (layer, head), sigma in zip(vector.heads, vector.sigma, strict=True):
        assert float(delta[layer, head].norm()) == pytest.approx(2.0 * float(sigma))


def test_delta_with_a_strength_of_its_own(make) -> None:
    vector = make()
    assert torch.equal(vector.delta(5), vector.with_alpha(5.0).delta())
    assert torch.equal(vector.delta(torch.tensor(5.0)), vector.delta(5.0))
    assert not vector.delta(0).any()
    assert vector.alpha == 2.0


def test_delta_with_a_strength_for_each_row(make) -> None:
    vector = make()
    rows = vector.delta(torch.tensor([0.0, 1.0, -3.0]))
    assert rows.shape == (3, 3, 4, 8)
    for row, alpha in zip(rows, (0.0, 1.0, -3.0), strict=True):
        assert torch.equal(row, vector.delta(alpha))


def test_strengths_are_checked(make) -> None:
    vector = make()
    for wrong in (float("nan"), float("-inf"), torch.tensor([1.0, float("inf")])):
        with pytest.raises(SteeringError, match="finite"):
            vector.delta(wrong)
    with pytest.raises(SteeringError, match=r"one a row, not \[2, 2\]"):
        vector.delta(torch.ones(2, 2))
    with pytest.raises(SteeringError, match="finite"):
        vector.with_alpha(float("nan"))


@settings(deadline=None)
@given(strengths, strengths)
def test_delta_is_linear_in_alpha(make, a: float, b: float) -> None:
    vector = make()
    unit = vector.delta(1.0).double()
    torch.testing.assert_close(vector.delta(a).double(), a * unit, rtol=1e-6, atol=1e-30)
    together = vector.delta(a).double() + vector.delta(b).double()
    torch.testing.assert_close(vector.delta(a + b).double(), together, rtol=1e-6, atol=1e-5)
    assert torch.equal(vector.delta(-a), -vector.delta(a))
    rows = vector.delta(torch.tensor([a, b], dtype=torch.float64))
    assert torch.equal(rows, torch.stack([vector.delta(a), vector.delta(b)]))


@settings(deadline=None)
@given(st.floats(0, 50), st.integers(0, 2))
def test_delta_moves_along_theta_by_alpha_sigmas(make, alpha: float, i: int) -> None:
    vector = make()
    layer, head = vector.heads[i]
    along = vector.delta(alpha)[layer, head].double() @ vector.theta[i]
    assert float(along) == pytest.approx(alpha * float(vector.sigma[i]), rel=1e-6, abs=1e-30)


def test_top_keeps_the_best_heads(make) -> None:
    vector = make()
    best = vector.top(2)
    assert best.heads == ((2, 1), (0, 3))
    assert torch.equal(best.theta, vector.theta[:2]) and torch.equal(best.sigma, vector.sigma[:2])
    assert (best.alpha, best.n_layers, best.fitted) == (2.0, 3, vector.fitted)
    delta = vector.delta()
    delta[2, 0] = 0
    assert torch.equal(best.delta(), delta)
    assert vector.top(3).heads == vector.heads
    for wrong in (0, 4, -1):
        with pytest.raises(SteeringError, match=f"K = {wrong}: this vector has 3 heads"):
            vector.top(wrong)


def test_fits_its_own_model(make, skeleton) -> None:
    geometry = make().check(skeleton())
    assert (geometry.n_layers, geometry.n_heads, geometry.head_dim) == (3, 4, 8)


@pytest.mark.parametrize(
    ("shape", "named"),
    [((2, 4, 8), "2 x 4 x 8"), ((3, 8, 8), "3 x 8 x 8"), ((3, 4, 16), "3 x 4 x 16")],
)
def test_another_geometry_is_refused(make, skeleton, shape, named: str) -> None:
    model = skeleton(*shape)
    for use in (make().check, make().apply):
        with pytest.raises(SteeringError) as caught:
            use(model)
        assert "3 layers x 4 heads x 8" in str(caught.value)
        assert f"LlamaForCausalLM has {named} at head_out" in str(caught.value)


def test_width_is_that_of_the_site(make, skeleton) -> None:
    model = skeleton(width=16)  # slices of hidden / H are 8 wide, heads 16
    make(site="resid").check(model)
    with pytest.raises(SteeringError, match="x 16 at head_out"):
        make().check(model)


def test_apply_edits_as_it_says(make, skeleton) -> None:
    vector, model = make(site="attn_out", positions="generated"), skeleton()
    edit = vector.apply(model)
    assert isinstance(edit, Edit)
    assert (edit.site, edit.positions, edit.layers) == ("attn_out", "generated", (0, 2))
    assert torch.equal(edit.values[0, 0], vector.delta())
    rows = torch.tensor([1.0, 0.0])
    assert torch.equal(vector.apply(model, rows).values[:, 0], vector.delta(rows))
    assert vector.apply(model, 0.0).layers == ()


def test_apply_passes_a_gate_on(make, skeleton) -> None:
    gate = Gate(0, 0, torch.ones(8), 0.0)
    assert make().apply(skeleton(), gate=gate).gate is gate
    with pytest.raises(EditError, match="reads layer 1, but layer 0 is edited"):
        make().apply(skeleton(), gate=Gate(1, 0, torch.ones(8), 0.0))


def test_its_own_gate_is_applied(make, skeleton) -> None:
    own, other = Gate(0, 1, torch.ones(8), 0.5), Gate(0, 0, torch.ones(8), 0.0)
    vector = make(gate=own)
    assert vector.apply(skeleton()).gate is own
    assert vector.apply(skeleton(), gate=other).gate is other
    assert vector.top(1).with_alpha(0.5).gate is own
    assert make(gate=own).describe() == vector.describe() != make(gate=other).describe()
    assert vector.describe() != make().describe()
    with pytest.raises(SteeringError, match="the gate reads layer 1, but layer 0 is steered"):
        make(gate=Gate(1, 0, torch.ones(8), 0.0))
