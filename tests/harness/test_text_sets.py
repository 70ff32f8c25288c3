"""The text sets from their folders to the saved breakdown, on a tiny model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sally_anne.harness.tasks import load_items
from tests.data.text_sets import made as sets
from tests.harness.test_tasks import config, run, say  # noqa: F401  # a fixture

pytestmark = pytest.mark.integration
# By task: how many items are asked, and what the breakdown counts.
NUMBERS = {
    "tomi": (12, {"type": {"memory": 2, "first_order_tom": 1, "first_order_no_tom": 3}}),
    "hi_tom": (10, {"order": dict.fromkeys("01234", 2), "deception": {"Tell": 10}}),
    "fantom": (18, {"type": {"belief": 4, "belief control": 2, "answerability": 4}}),
    "opentom": (18, {"hop": {"fullness": 2, "accessibility": 2}, "type": {"attitude": 2}}),
    "tombench": (3, {"ability": {"Belief: Second-order beliefs": 2}, "language": {"en": 3}}),
}
JOINT = {
    "tomi": {"story": 2},
    "hi_tom": {f"up to order {top}": 2 for top in range(1, 5)},
    "fantom": {
        **{"all but lists": 2, "all but lists control": 1},
        **{
            f"all {kind}{c}": 2 - bool(c)
            for kind in ("answerability", "info-access")
            for c in ("", " control")
        },
    },
}


@pytest.mark.parametrize("task", NUMBERS)
def test_every_set_is_asked_and_broken_down(config, tmp_path, monkeypatch, task) -> None:  # noqa: F811
    data = getattr(sets, task)(tmp_path / "data")
    asked = replace(config, task=task, data=data, max_new_tokens=None)
    right = {item.text: item.answer[0] for item in load_items(asked).items}
    seen = say(monkeypatch, lambda prompt: right[prompt.text])
    table, saved, printed = run(asked)
    count, wanted = NUMBERS[task]
    assert len(table) == len(seen) == count == saved["counts"]["asked"]
    found = saved["results"]["robust"]
    assert (found["overall"]["value"], found["invalid"]["value"]) == (1.0, 0.0)
    for kind, values in wanted.items():
        for value, n in values.items():
            cell = found["groups"][kind][value]
            assert (cell["value"], cell["n"]) == (1.0, n), (kind, value)
    assert {k: v["n"] for k, v in found.get("joint", {}).items()} == JOINT.get(task, {})
    assert ("all right: " in printed) is (task in JOINT)
    assert ("of each set of FANToM the fact question" in printed) is (task == "fantom")
    if task == "hi_tom":
        assert all("Agents like to lie" in prompt.text for prompt in seen)


@pytest.mark.parametrize(
    ("task", "cells"),
    [
        ("tomi", {"1": 1}),
        ("opentom", {f"location {how}, first order": 1 for how in ("coarse", "fine")}),
    ],
)
def test_true_and_false_beliefs_of_one_story(config, tmp_path, monkeypatch, task, cells) -> None:  # noqa: F811
    """Whoever says where the thing is knows true beliefs alone."""
    data = getattr(sets, task)(tmp_path / "data")
    asked = replace(config, task=task, data=data)

    def reply(prompt) -> str:
        options = dict(
            line.split(". ", 1)[::-1] for line in prompt.text.splitlines() if line[1:3] == ". "
        )
        return next((options[o] for o in ("blue_chest", "a blue chest", "No") if o in options), "A")

    say(monkeypatch, reply)
    _, saved, printed = run(asked)
    found = saved["results"]["robust"]
    belief = [
        (found["belief"][name]["value"], found["belief"][name]["n"])
        for name in ("TB", "FB", "Both")
    ]
    n = sum(cells.values())
    assert belief == [(1.0, n), (0.0, n), (0.0, n)]
    assert {cell: numbers["Both"]["n"] for cell, numbers in found["cells"].items()} == cells
    assert "belief: Both" in printed
