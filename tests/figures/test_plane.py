"""Planes: orthonormal, fitted as said, and boundaries that are exact in activation space."""

from __future__ import annotations

import numpy as np
import pytest

from sally_anne.figures.plane import pca_plane, probe_plane, two_probe_plane

NAMES = ("$Y_p$", "$Y_o$")


@pytest.fixture
def train() -> np.ndarray:
    spread = np.array([1.0, 5.0, 0.5, 2.0, 0.1])
    return np.random.default_rng(0).normal(size=(200, 5)) * spread + 7.0


@pytest.fixture
def truth() -> np.ndarray:
    return np.arange(200) % 2 == 0


def assert_orthonormal(plane) -> None:
    assert plane.u @ plane.u == pytest.approx(1.0)
    assert plane.v @ plane.v == pytest.approx(1.0)
    assert plane.u @ plane.v == pytest.approx(0.0, abs=1e-12)


def test_every_point_of_a_drawn_line_has_probability_one_half(train) -> None:
    rng = np.random.default_rng(1)
    w_p, w_o = rng.normal(size=5), rng.normal(size=5)
    b_p, b_o = 0.7, -3.0
    plane = two_probe_plane(w_p, w_o, train, NAMES)
    assert_orthonormal(plane)
    off_plane = rng.normal(size=5)
    off_plane -= (off_plane @ plane.u) * plane.u + (off_plane @ plane.v) * plane.v
    for weight, bias in ((w_p, b_p), (w_o, b_o)):
        a, b, c = plane.line(weight, bias)
        normal = np.array([a, b]) / (a * a + b * b)
        along = np.array([-b, a])
        for step in (-4.0, 0.0, 9.0):
            x1, x2 = -c * normal + step * along
            x = plane.origin + x1 * plane.u + x2 * plane.v + 3.0 * off_plane
            assert 1 / (1 + np.exp(-(weight @ x + bias))) == pytest.approx(0.5, abs=1e-9)


def test_the_line_in_the_plane_gives_each_sample_its_logit(train) -> None:
    rng = np.random.default_rng(2)
    w_p, w_o = rng.normal(size=5), rng.normal(size=5)
    plane = two_probe_plane(w_p, w_o, train, NAMES)
    points = plane.project(train)
    for weight, bias in ((w_p, 0.3), (w_o, -1.0)):
        a, b, c = plane.line(weight, bias)
        np.testing.assert_allclose(points @ [a, b] + c, train @ weight + bias, atol=1e-9)
    assert plane.u == pytest.approx(w_p / np.linalg.norm(w_p))


def test_parallel_weights_still_give_an_exact_plane_and_say_so(train) -> None:
    w = np.array([1.0, 2.0, 0.0, 0.0, 1.0])
    plane = two_probe_plane(w, -2.0 * w, train, NAMES)
    assert_orthonormal(plane)
    assert plane.notes == ("both probes have one direction",)
    a, b, c = plane.line(-2.0 * w, 0.5)
    points = plane.project(train)
    np.testing.assert_allclose(points @ [a, b] + c, train @ (-2.0 * w) + 0.5, atol=1e-9)


def test_a_probe_without_weights_is_said(train) -> None:
    zero, one = np.zeros(5), np.array([0.0, 0, 1, 0, 0])
    plane = two_probe_plane(zero, one, train, NAMES)
    assert_orthonormal(plane)
    assert plane.u == pytest.approx(one)
    assert plane.notes == ("the $Y_p$ probe has no weights",)
    assert len(two_probe_plane(zero, zero, train, NAMES).notes) == 2


def test_theta_prime_is_the_main_direction_off_theta(train, truth) -> None:
    plane = probe_plane(np.array([0.0, 3.0, 0.0, 0.0, 0.0]), train, truth)
    assert_orthonormal(plane)
    assert plane.u == pytest.approx([0, 1, 0, 0, 0])
    assert abs(plane.v[3]) > 0.98  # axis 3 varies most once axis 1 is taken out
    np.testing.assert_allclose(plane.project(train).mean(axis=0), 0.0, atol=1e-12)


def test_pca_takes_the_two_main_directions(train, truth) -> None:
    plane = pca_plane(train, truth)
    assert_orthonormal(plane)
    assert abs(plane.u[1]) > 0.98
    assert abs(plane.v[3]) > 0.98
    variances = np.linalg.eigvalsh(np.cov(train.T, ddof=0))[::-1]
    np.testing.assert_allclose(plane.project(train).var(axis=0), variances[:2])


def test_a_found_direction_points_to_the_true_samples(train, truth) -> None:
    for labels in (truth, ~truth):
        points = pca_plane(train, labels).project(train)
        assert (points[labels].mean(axis=0) > points[~labels].mean(axis=0)).all()
    once, again = pca_plane(train, np.ones(200, bool)), pca_plane(-train, np.ones(200, bool))
    np.testing.assert_allclose(once.u, again.u)  # without two groups: largest entry positive


@pytest.mark.parametrize("width", [1, 4])
def test_activations_that_do_not_vary_leave_a_zero_direction_and_a_note(width, truth) -> None:
    flat = np.full((200, width), 2.5)
    plane = probe_plane(np.ones(width), flat, truth)
    assert not plane.v.any()
    assert plane.notes == ("the activations do not vary off θ: θ′ is zero",)
    assert pca_plane(flat, truth).notes == ("the activations have fewer than two components",)
    assert "the probe has no weights: θ is zero" in probe_plane(np.zeros(width), flat, truth).notes
