"""tools/speed.py: its ratios."""

import importlib.util
from pathlib import Path

SPEED = Path(__file__).parents[2] / "tools" / "speed.py"


def test_ratios_are_medians_turn_by_turn_and_parts_are_multiplied() -> None:
    spec = importlib.util.spec_from_file_location("speed", SPEED)
    assert spec is not None and spec.loader is not None
    speed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(speed)

    seconds = {"ours": [1.0, 2.0, 4.0], "theirs": [3.0, 4.0, 20.0]}
    ours, theirs = speed.rows("part", seconds, {"theirs": 2}).to_dict("records")

    assert (ours["seconds"], ours["ratio"]) == (2.0, 1.0)
    assert (theirs["contender"], theirs["multiplied"]) == ("theirs", 2.0)
    assert (theirs["seconds"], theirs["low"], theirs["high"]) == (8.0, 6.0, 40.0)
    assert theirs["ratio"] == 6.0  # of 6, 4 and 10
