"""Reading ``info.json``: records come out right or the error says what is wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.gridtom.build import info_line
from sally_anne.data.gridtom.release import load
from sally_anne.data.gridtom.stories import generated

LINE = info_line(generated(stories=[30])[0], "train")


def write(folder: Path, *lines: str | bytes) -> Path:
    """A folder of metadata alone."""
    (folder / "build.json").write_text('{"metadata_only": true}')
    data = [line if isinstance(line, bytes) else line.encode() for line in lines]
    (folder / "info.json").write_bytes(b"".join(data))
    return folder


def edited(path: str, value: Any) -> str:
    """The good record with the field at ``path`` replaced, or removed if ``value`` is ..."""
    record = json.loads(LINE)
    target = record
    *way, last = [int(p) if p.isdigit() else p for p in path.split(".")]
    for step in way:
        target = target[step]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return json.dumps(record) + "\n"


def test_a_good_line_gives_the_generated_record(tmp_path) -> None:
    loaded = load(write(tmp_path, LINE, "\n"))
    assert list(loaded) == list(generated(stories=[30]))
    assert loaded.source == f"folder {tmp_path}"


GOOD = json.loads(LINE)
CAST = generated(stories=[30])[0].cast


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["red", "green", "TB", "FB", "TrueBelief", "FalseBelief", "30/TrueBelief"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in a JSON value, the whole included."""
    found = [way]
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(inner, (*way, key))
    return found


@st.composite
def mutants(draw: st.DrawFn) -> Any:
    record = copy.deepcopy(GOOD)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from([p for p in places(record) if p]))
        target = record
        for step in way:
            target = target[step]
        action = draw(st.sampled_from(["replace", "remove", "copy"]))
        if action == "remove":
            del target[last]
        elif action == "replace":
            target[last] = draw(JSON)
        else:
            source: Any = record
            for step in draw(st.sampled_from(places(record))):
                source = source[step]
            target[last] = copy.deepcopy(source)
        if not places(record)[1:]:
            break
    return record


@pytest.mark.fuzz
@settings(
    max_examples=500, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(record=mutants())
def test_a_mutated_record_is_right_or_a_named_error(tmp_path_factory, record) -> None:
    folder = tmp_path_factory.getbasetemp() / "mutants"
    folder.mkdir(exist_ok=True)
    write(folder, json.dumps(record))
    try:
        story = load(folder)[0]
    except BenchmarkError as error:
        assert "info.json, line 1" in str(error)
        return
    assert len({*story.cast}) == 5
    assert story.nodes == tuple(sorted(set(story.nodes)))
    assert len(story.cases(1)) == 2
    for case in story.versions:
        right = case.believed if case.order == 1 else case.thought
        assert case.question.answer == right
        assert set(case.question.options) == {story.cast.first_room, story.cast.last_room}
        assert right in case.statement(right)
        assert set(case.captions) == {"omniscient", "protagonist", "participant"}
    assert all(set(q.answer) <= set(q.choices) for q in story.initial)
