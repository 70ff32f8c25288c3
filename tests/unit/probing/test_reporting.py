"""What a run says of itself: the quoted numbers, the warnings, and what is read back."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from probing.config import ProbeConfig
from probing.errors import ProbingError
from probing.pipeline import CONFIG, FINISHED, HEADS, PROBES, _finished
from probing.ranking import fit_probes, rank_heads
from probing.reporting import misfits, print_summary, summarise

C = 0.05


@pytest.fixture
def summarised(made):
    """The heads and results of the made-up run; the named heads' activations never vary."""

    def summary(*silent: tuple[int, int]) -> tuple[Any, dict[str, Any]]:
        x = made.x.copy()
        for layer, head in silent:
            x[:, layer, head] = 1.0
        probes = fit_probes(x, made.items, C, 200)
        heads = rank_heads(x, made.items, probes)
        return heads, summarise(heads, made.items, probes)

    return summary


def printed(heads, results: dict[str, Any]) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    print_summary(console, heads, results, ProbeConfig(c=C))
    assert isinstance(console.file, io.StringIO)
    return [line.strip() for line in console.file.getvalue().splitlines()]


def test_probes_at_zero_weights_are_counted_and_said(summarised) -> None:
    heads, results = summarised((0, 1), (1, 2))
    assert results["zero_weight_heads"] == {"y_p": 2, "y_o": 2}
    assert list(heads.query("layer == 0 and head == 1")["y_p_test_accuracy"]) == [0.5]
    lines = [line for line in printed(heads, results) if "zero weights" in line]
    assert lines == [
        f"{label}: 2 heads' probes stayed at zero weights: nothing linear to find at this C (0.05)"
        for label in ("Y_P", "Y_O")
    ]


def test_one_probe_at_zero_weights_reads_as_one(summarised) -> None:
    lines = printed(*summarised((0, 1)))
    assert any(line.startswith("Y_P: 1 head's probe stayed at zero weights") for line in lines)


def test_without_such_probes_nothing_is_said(summarised) -> None:
    heads, results = summarised()
    assert results["zero_weight_heads"] == {"y_p": 0, "y_o": 0}
    assert "zero weights" not in "\n".join(printed(heads, results))
    assert {"samples", "stories", "unconverged_heads", "y_p", "y_o"} < results.keys()


def test_a_run_of_an_older_version_is_still_printed(summarised) -> None:
    heads, results = summarised()
    del results["zero_weight_heads"]
    assert misfits({"results": results, "confounds": [], "figures": []}) == []
    assert printed(heads, results)


CONFOUND = {"condition": "all", "feature": "length", "label": "y_p", "accuracy": 0.5}


@pytest.fixture
def saved(summarised) -> dict[str, Any]:
    entries = {"results": summarised()[1], "confounds": [CONFOUND], "figures": ["a.png"]}
    return json.loads(json.dumps(entries | {FINISHED: "key"}))


def write(folder: Path, saved: object) -> None:
    for name in (HEADS, PROBES):
        (folder / name).touch()
    (folder / CONFIG).write_text(json.dumps(saved))


def test_what_was_written_is_read_back(saved, tmp_path) -> None:
    write(tmp_path, saved)
    assert _finished(tmp_path, "key") == saved
    assert _finished(tmp_path, "another key") is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("results", "lost"),
        ("results", None),
        ("results.y_p", [1]),
        ("results.y_o", {}),
        ("results.unconverged_heads", 3),
        ("results.unconverged_heads", {"y_p": "many"}),
        ("results.zero_weight_heads", "none"),
        ("confounds", "none"),
        ("confounds", [{}]),
        ("confounds", [CONFOUND | {"accuracy": "0.9"}]),
        ("figures", "a.png"),
        ("figures", [1]),
    ],
)
def test_an_entry_of_the_wrong_type_is_named(saved, tmp_path, path, value) -> None:
    *parents, last = path.split(".")
    holder = saved
    for name in parents:
        holder = holder[name]
    holder[last] = value
    write(tmp_path, saved)
    assert misfits(saved) == [path]
    with pytest.raises(ProbingError, match=rf"config\.json: {path} cannot be read; delete"):
        _finished(tmp_path, "key")
    assert _finished(tmp_path, "another key") is None


@pytest.mark.parametrize("entry", ["results", "confounds", "figures"])
def test_a_missing_entry_is_named(saved, entry) -> None:
    del saved[entry]
    assert misfits(saved) == [entry]


@pytest.mark.parametrize("text", ["{", "[]", "3", "[" * 100_000])
def test_a_file_that_holds_no_run_counts_as_none(tmp_path, text) -> None:
    write(tmp_path, {})
    (tmp_path / CONFIG).write_text(text)
    assert _finished(tmp_path, "key") is None
