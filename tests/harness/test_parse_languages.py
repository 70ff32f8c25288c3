"""Replies in other scripts and with typographic marks name the option that they name."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.data.items import Option
from sally_anne.harness.parse import parse_choice, parse_words

LETTERS = [Option("A", "in the box"), Option("B", "in the bag"), Option("C", "nowhere")]
CHINESE = [Option("A", "盒子里"), Option("B", "篮子里"), Option("C", "不知道"), Option("D", "知道")]
FORMS = (
    *("答案是{}", "答案：{}", "答案是：{}。", "正确答案为{}。", "选择{}。", "选{}", "答案是选项{}"),
    *("我选{}，因为它在那里", "好的。我选择：{}"),
    *("{}、就是它", "【{}】", "答えは{}です", "正解は{}です。", "정답: {}", "정답은 {}"),
    *("Réponse : {}", "La respuesta es {}", "La réponse est {}.", "Die Antwort ist {}"),
    *("Antwort: {}", "Therefore: {}", "Selected: {}", "So {}."),
    *("Based on the transcript, {} is the most plausible.", "{} seems to be the best answer."),
    *("The answer is “{}”.", "Answer — {}", "**Answer:** {}"),
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wide", [False, True])
def test_labels_in_other_languages(form: str, wide: bool) -> None:
    for option in LETTERS:
        label = chr(ord(option.label) - 0x20 + 0xFF00) if wide else option.label
        assert parse_choice(form.format(label), LETTERS) == option.label


@pytest.mark.parametrize(
    "reply",
    ["答案是A或B", "选A还是B", "A和B都可以", "答案不是A", "我不选A", "I think it's not A"]
    + ["A or B is the most plausible", "答案是", "Réponse : A ou B ?", "not A", "选A吗?"],
)
def test_what_names_none_or_two_stays_invalid(reply: str) -> None:
    assert parse_choice(reply, LETTERS) is None


def test_not_one_label_so_the_other() -> None:
    assert parse_choice("I think it's not A, so B", LETTERS) == "B"


@pytest.mark.parametrize(
    "form", ["{}", "她认为球在{}。", "我觉得应该是{}，对吧", "答案：{}", "「{}」"]
)
def test_texts_in_chinese(form: str) -> None:
    for option in CHINESE[:3]:
        assert parse_choice(form.format(option.text), CHINESE) == option.label
    assert parse_choice("我不知道", CHINESE) == "C"
    assert parse_choice("球不在盒子里，在篮子里", CHINESE) in (None, "B")
    assert parse_choice("盒子里或者篮子里", CHINESE) is None


MARKS = {"'": "’‘′'", '"': '“”„"', "-": "–—‐−-"}
words = st.sampled_from(
    ["She doesn't know", "a well-known place", 'the "red" room', "café", "naïve"]
)


@settings(max_examples=200, deadline=None)
@given(words, st.data())
def test_marks_and_accents_of_both_sides_are_one(text: str, data: st.DataObject) -> None:
    def spelled() -> str:
        chosen = [data.draw(st.sampled_from(MARKS[c])) if c in MARKS else c for c in text]
        return unicodedata.normalize(data.draw(st.sampled_from(["NFC", "NFD"])), "".join(chosen))

    options = [Option("A", spelled()), Option("B", "another answer")]
    assert parse_choice(f"I think that {spelled()}.", options) == "A"
    assert parse_choice(f'{{"answer": {spelled()!r}}}'.replace("'", '"'), options) in ("A", None)
    assert parse_words(spelled(), [options[0].text, "another"]) == {options[0].text}


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(FORMS),
    st.sampled_from("ABC"),
    st.sampled_from(["", "好的。\n", "Well.\n", "\n"]),
)
def test_words_before_do_not_matter(form: str, label: str, before: str) -> None:
    assert parse_choice(before + form.format(label), LETTERS) == label
