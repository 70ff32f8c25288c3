"""What stands in tables and figures, worked out again from raw figures."""

from __future__ import annotations

from typing import Any

import pytest

from bench.picture import points
from bench.tables import extraction_tables, headline, probes_table, time_ratio


def contender(whole: list[float], samples: int, model: list[float], peaks: list[int]) -> Any:
    return {
        "status": "ok",
        "note": "a note",
        "largest difference": 1e-7,
        "whole": {"samples": samples, "seconds": whole, "preparation": [0.5 * s for s in whole]},
        "model": {"samples": 4, "seconds a batch": model, "sizes": [2] * len(model)},
        "memory": {"model": peaks},
    }


@pytest.fixture
def entry() -> dict[str, Any]:
    bare = contender([10.0, 20.0, 30.0], 40, [1.0, 2.0], [100, 110, 120])
    bare["largest difference"] = None
    return {
        "model": "m",
        "parameters": 1234,
        "layers": 2,
        "heads": 3,
        "head width": 4,
        "setting": "text",
        "stories": 10,
        "samples": 40,
        "batch size": 2,
        "tokens of a prompt": [5, 6, 7],
        "contenders": {
            "bare forwards": bare,
            "capture on equal forwards": contender([11.0, 20.0, 33.0], 40, [1.02, 2.2], [121] * 3),
            "ours": contender([4.0, 10.0, 18.0], 40, [], []),
            "ours, one process": contender([6.0, 10.0, 18.0], 40, [0.5, 1.1], [90] * 3),
            "released GridToM procedure": contender([3.0, 6.0, 9.0], 8, [1.6, 3.0], [400] * 3),
            "nnsight trace": {"status": "not installed", "note": "a trace"},
        },
    }


def test_ratios_are_medians_of_turns_for_each_sample(entry: dict[str, Any]) -> None:
    contenders = entry["contenders"]
    # Turn by turn 0.4, 0.5 and 0.6.
    assert time_ratio(contenders, "ours", "bare forwards", "whole") == pytest.approx(0.5)
    # A fifth of the samples: 15, 30 and 45 seconds for all, over 4, 10 and 18.
    found = time_ratio(contenders, "released GridToM procedure", "ours", "whole")
    assert found == pytest.approx(3.0)
    assert time_ratio(contenders, "ours", "bare forwards", "model") is None
    assert time_ratio(contenders, "nnsight trace", "bare forwards", "whole") is None


def test_the_promised_ratios(entry: dict[str, Any]) -> None:
    found = {name: value for name, value, _ in headline(entry["contenders"])}
    assert found["ours / bare forwards, time, whole procedure"] == pytest.approx(0.5)
    assert found["ours, one process / bare forwards, time, model's part"] == pytest.approx(0.525)
    capture = "capture on equal forwards / bare forwards, "
    assert found[capture + "time, model's part"] == pytest.approx(1.06)
    assert found[capture + "peak memory above the model"] == pytest.approx(1.1)
    assert found["released honest_llama procedure / ours, time, whole procedure"] is None


def test_the_table_holds_the_figures(entry: dict[str, Any]) -> None:
    lines = extraction_tables({"m": entry}).splitlines()
    rows = [line for line in lines if line.startswith("| released GridToM procedure | 8")]
    assert rows == [
        "| released GridToM procedure | 8, multiplied | 30.0 (15.0 - 45.0) | 15.0 | 1.500 | 3.00 |"
    ]
    assert "| nnsight trace | not installed | | | | | | |" in lines
    assert any(line.startswith("| bare forwards | 750.0 (500.0 - 1000.0) |") for line in lines)
    assert any("not measured" in line for line in lines)


def test_every_turn_is_a_point_of_the_figure(entry: dict[str, Any]) -> None:
    table = points({"m": entry})
    ours = table[(table["contender"] == "ours") & (table["panel"] == "whole")]
    assert ours["ratio"].tolist() == pytest.approx([0.4, 0.5, 0.6])
    memory = table[
        (table["contender"] == "capture on equal forwards") & (table["panel"] == "memory")
    ]
    assert memory["ratio"].tolist() == pytest.approx([1.1] * 3)
    assert "nnsight trace" not in set(table["contender"])


def test_probes_are_compared_with_the_loop() -> None:
    found = {
        "heads": 6,
        "samples": 40,
        "width": 8,
        "loop": "loop",
        "one label": {
            "fast": {"seconds": [1.0, 2.0, 4.0], "processor": [1.0, 1.0, 1.0]},
            "loop": {"seconds": [3.0, 8.0, 8.0], "processor": [2.0, 2.0, 2.0]},
        },
    }
    assert "| fast | 2.00 (1.00 - 4.00) | 1.00 | 3.00 |" in probes_table(found)
