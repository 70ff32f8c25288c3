"""Stories drawn with replacement, as weights of their samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from probing.bootstraps import bootstrap, story_weights
from probing.refits import Split
from sally_anne.core.errors import ProbingError

C = 0.05


def split_of(made) -> Split:
    groups = made.items["group"].to_numpy(str)
    return Split(made.x, groups, made.rows("train"), made.rows("test"))


@given(stories=st.integers(2, 8), each=st.integers(1, 4), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_whole_stories_are_drawn_from_each_part(stories: int, each: int, seed: int) -> None:
    groups = np.repeat(np.arange(stories), each)
    train, held = groups < stories // 2, groups == stories - 1
    weights = story_weights(groups, (train, held), 6, seed)
    for row in weights:
        for story in range(stories):
            assert len(set(row[groups == story])) == 1
        assert row[train].sum() == train.sum()
        assert (row[held] == 1).all()
        assert not row[~train & ~held].any()
    np.testing.assert_array_equal(weights, story_weights(groups, (train, held), 6, seed))


def test_a_draw_is_a_fit_with_weights(made) -> None:
    split, y = split_of(made), made.items["y_p"].to_numpy(bool)
    found = bootstrap(split, y, count=4, c=C, seed=5)
    assert found.unconverged == 0
    weights = story_weights(split.groups, (split.train, split.held), 4, 5)
    for p, row in enumerate(weights):
        for layer, head in ((0, 0), (1, 3)):
            x = split.x[:, layer, head].astype(float)
            own = LogisticRegression(C=C, tol=1e-10, max_iter=1000)
            own.fit(x[split.train], y[split.train], sample_weight=row[split.train])
            accuracy = own.score(x[split.held], y[split.held], row[split.held])
            assert found.accuracy[p, layer, head] == pytest.approx(accuracy)
            whole = LogisticRegression(C=C, tol=1e-10).fit(x[split.train], y[split.train])
            a, b = own.coef_[0], whole.coef_[0]
            cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            assert found.cosine[p, layer, head] == pytest.approx(cosine, abs=1e-5)


def test_intervals_hold_the_observed_accuracy(made) -> None:
    found = bootstrap(split_of(made), made.items["y_p"].to_numpy(bool), count=80, c=C)
    low, high = found.interval(0.95)
    assert (low <= found.observed).mean() >= 0.9 and (found.observed <= high).mean() >= 0.9
    assert (high - low)[0, 0] > (high - low)[-1, -1]
    assert found.cosine[:, -1, -1].mean() > 0.95 > found.cosine[:, 0, 0].mean()


def test_a_head_without_a_direction_has_no_cosine(made) -> None:
    made.x[:, 0, 0] = 1.0
    found = bootstrap(split_of(made), made.items["y_p"].to_numpy(bool), count=2, c=C)
    assert np.isnan(found.cosine[:, 0, 0]).all() and np.isfinite(found.cosine[:, 1]).all()
    assert (found.accuracy[:, 0, 0] == 0.5).all()


def test_bad_arguments_are_refused(made) -> None:
    split, y = split_of(made), made.items["y_p"].to_numpy(bool)
    with pytest.raises(ProbingError, match="at least 1 draw"):
        bootstrap(split, y, count=0)
    with pytest.raises(ProbingError, match=r"need labels \["):
        bootstrap(split, y[:4], count=2)
    with pytest.raises(ProbingError, match="level must be between"):
        bootstrap(split, y, count=2).interval(1.0)
