"""From records to prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Benchmark, Context, Media, Option, Question, Sampling
from sally_anne.harness.chat_endpoint import messages_of
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.model import Prompt
from sally_anne.harness.questions import PromptConfig, missing_parts, prompt_text, render
from tests.harness.made_benchmarks import film

KNOWN = Benchmark(
    name="made",
    load=lambda folder: [],
    views={"multimodal": ("scene", "transcript"), "text": ("scene", "transcript"), "none": ()},
    default_view="text",
    sampling=Sampling(count=8),
    breakdowns=(),
    layout="nothing",
    windows=("full", "focused"),
    frame_times=True,
    notes={"": "The question is about the end.", "text": "Words only."},
)
RECORD = Question(
    item_id="1",
    benchmark="made",
    split="test",
    group="g",
    question="Who knows {it}?",
    options=(Option("A", "Ann"), Option("B", "Bob"), Option("C", "nobody")),
    answer="B",
    media=(Media(url="there"),),
    context=Context(scene="A room.", actions="hidden", transcript="all", focused_transcript="end"),
    tags={"condition": ("TB",), "kind": ("x", "y")},
)


def shown(benchmark: Benchmark, **options) -> PromptConfig:
    """How a benchmark is asked with these options."""
    return PromptConfig.of(benchmark, EvalConfig(task="bigtom", **options))


def test_the_prompt_holds_what_the_view_shows() -> None:
    assert prompt_text(KNOWN, RECORD, shown(KNOWN)) == (
        "Scene:\nA room.\n\nTranscript:\nall\n\nWords only.\nQuestion: Who knows {it}?\n"
        "A. Ann\nB. Bob\nC. nobody\nReply with A, B or C only.\nAnswer:"
    )


def test_the_window_chooses_the_transcript_and_no_view_shows_other_fields() -> None:
    text = prompt_text(KNOWN, RECORD, shown(KNOWN, window="focused"))
    assert "Transcript:\nend\n" in text and "all" not in text and "hidden" not in text


@pytest.mark.parametrize(
    "text",
    [
        *("{question} {secret}", "{scene}", "{question", "{question!q}", "{question!r}"),
        *("{question:>q}", "{question} {options:{labels}}", "{question.__class__}"),
        *("{question[0]}", "{question} {}"),
    ],
)
def test_templates_that_cannot_be_filled(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text(text)
    with pytest.raises(HarnessError, match="prompt.txt"):
        shown(KNOWN, template=path)


def test_what_is_missing_is_named() -> None:
    silent = replace(RECORD, context=Context(actions="not shown"))
    film, words = "its film (there)", "its words (scene, transcript)"
    assert missing_parts(KNOWN, RECORD, shown(KNOWN, view="multimodal")) == [film]
    assert missing_parts(KNOWN, RECORD, shown(KNOWN)) == []
    assert missing_parts(KNOWN, silent, shown(KNOWN)) == [words]
    assert missing_parts(KNOWN, silent, shown(KNOWN, view="none")) == []
    here = replace(silent, media=(Media(path=Path("film.mp4")),))
    assert missing_parts(KNOWN, here, shown(KNOWN, view="multimodal")) == [words]


def test_templates_have_all_that_protocols_need(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("{person}|{title}|{asked}|{asked_alone}|({label_2}) {option_2}|{times}")
    record = replace(RECORD, asked="Story\nQuestion: Who?", person="Ann", title="Film")
    text = prompt_text(KNOWN, record, shown(KNOWN, template=path))
    assert text == "Ann|Film|Story\nQuestion: Who?| Who?|(B) Bob|"
    path.write_text("{question} {option_4}")
    with pytest.raises(HarnessError, match="item 1: the template asks for option_4, and there are"):
        prompt_text(KNOWN, RECORD, shown(KNOWN, template=path))


def test_lengths_counts_and_times_of_frames_are_told_once_they_are_known(tmp_path: Path) -> None:
    film(tmp_path / "film.mp4", seconds=3)
    path = tmp_path / "prompt.txt"
    path.write_text("{question} {length}; {count}; {times}")
    record = replace(RECORD, media=(Media(path=tmp_path / "film.mp4"),))
    how = shown(KNOWN, view="multimodal", frames=3, template=path)
    (item,) = render(KNOWN, [record], how)
    assert item.notes is not None
    said = item.first_prompt()
    assert said.startswith("Who knows {it}? 3.00 seconds; 3; 0.00s,") and "<" not in said


def test_a_system_message_reaches_the_model_and_the_endpoint() -> None:
    asked = Prompt("Who?", system="Be brief.")
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    assert messages_of(asked) == asked.turns == turns
    clip = np.zeros((1, 4, 4, 3), np.uint8)
    assert messages_of(replace(asked, clip=clip))[0] == turns[0]
