"""Published figures: well formed, as the papers print them, and the right ones beside a run."""

from __future__ import annotations

import pytest

from sally_anne.harness.report import (
    Baseline,
    Conditions,
)

# Where the text of a source is kept beside the checkout, and where its table begins there.


def asked(
    task: str, questions: int = 10, about: dict | None = None, **options: object
) -> Conditions:
    order = {"order": options["order"]} if "order" in options else {}
    known = {"task": task, "model": "tiny-qwen2-vl"} | options
    return Conditions(known, (about or {}) | order, questions)


def rows(run: Conditions) -> list[Baseline]:
    return [row for _, found in run.tables() for row in found]


def test_a_runs_view_and_model_choose_the_rows() -> None:
    run = asked("gridtom", about={"setting": "video"}, order="1", model="qwen2-vl", data="d")
    assert [(r.who, r.view, r.values) for r in rows(run)] == [
        ("Qwen2-VL-7B-Instruct", "video", (52.2, 48.6, 5.2)),
        ("doubao-1.5-vision-pro", "video", (46.6, 55.8, 7.2)),
        ("human", "video", (84.6, 99.8, 84.6)),
        ("chance", None, (50, 50, None)),
    ]
    steered = asked("gridtom", about={"setting": "video"}, order="1", steer="v")
    assert [r.values for r in rows(steered) if r.kind == "model"] == [(53.8, 52.2, 18.6)]
    by_id = asked(
        "gridtom", about={"setting": "video"}, order="2", model="Qwen/Qwen2-VL-7B-Instruct"
    )
    assert rows(by_id)[0].values == (49.1, 40.0, 2.1)
    assert rows(asked("gridtom", order="reality")) == []
    assert rows(asked("riddles:RIDDLES")) == []


@pytest.mark.parametrize(
    ("prompting", "who", "right"),
    [
        ("direct", "Gemini 1.5 Pro", 56.4),
        ("cot", "Gemini 1.5 Pro CoT", 54.5),
        ("simtom", "SimToM", 47.6),
    ],
)
def test_prompting_chooses_like_prompting(prompting: str, who: str, right: float) -> None:
    run = asked("muma_tom", about={"view": "multimodal"}, prompting=prompting)
    found = [row for row in rows(run) if row.who == who]
    if prompting == "direct":  # LIMP is not prompted otherwise, and is best
        assert [(r.who, r.values[-1]) for r in rows(run)] == [("LIMP with GPT-4o", 76.6)]
    else:
        assert [row.values[-1] for row in found] == [right]


def test_what_differs_is_said() -> None:
    (gridtom, _), *_ = asked("gridtom", order="1").tables()
    assert list(asked("gridtom", order="1").differences(gridtom)) == [
        "stories are made here, theirs are the release's",
        "asked in this project's words (--protocol official: in theirs)",
    ]
    alike = {"data": "d", "split": "published", "protocol": "official", "order": "1"}
    assert list(asked("gridtom", **alike).differences(gridtom)) == []
    assert list(asked("gridtom", **alike | {"split": "test", "limit": 4}).differences(gridtom)) == [
        "--split test, theirs is published",
        "--limit 4",
    ]
    (moments, _), *_ = asked("moments").tables()
    some = asked("moments", 325, protocol="official", frames=8, limit=3)
    assert list(some.differences(moments)) == [
        "325 of their 2,335 questions",
        "8 frames, theirs 64",
    ]
    assert list(asked("moments", 2335, protocol="official", frames=64).differences(moments)) == []
