"""Parsing replies: the robust parser's rules, and each benchmark's own parser."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sally_anne.data.items import Option, Question
from sally_anne.harness.parse import (
    OFFICIAL,
    PARSERS,
    conclusion,
    parse_choice,
    parse_words,
    without_cue,
)
from sally_anne.harness.report import expected

PURPLE = (Option("A", "red"), Option("B", "purple"))
COLOURS = ("red", "green", "blue", "yellow", "purple", "white")
CHOSEN = {
    "B": r"""
B | b. | (B) | **B** | b) purple | B: purple | option (b) | The correct option is B. | I choose B.
It's B. | Answer: B | Answer: **B** | Final answer: (b) purple | The answer is (B) purple.
So the answer is B. | The answer is B because the door was closed.
B because the red door is closed. | \boxed{B} | <answer> b. </answer>
<think>It may be red, or A.</think>B | <think>Answer: A</think>(b) | {"answer": "B"}
Sure: {"reason": "red or purple", "answer": "purple"}
{"steps": {"first": "red"}, "answer": "purple"} | {'answer': 'B'} | purple | The purple room.
It believes it is in the purple room. | It is purple, not red. | It isn't red. It is purple.
It is in the purple room rather than in the red room. | A is not supported. The answer is B.
The answer is red. No: it saw all, so the answer is purple. | First red, then purple. Answer: B
The answer is not red; it is purple
B - A is incorrect | B, since A is wrong | Option B is more likely.
<|begin_of_box|>B<|end_of_box|>
If I had to choose, the answer would be B. | Answer: B [Reasoning] She left before that.
The correct answer is B. Option A is not supported. | <answer>B</answer><reasoning>No.</reasoning>
""",
    "A": r"""
A | (A) | Answer: a | The correct option is A. | A because B is not supported. | red
<think>purple</think>red
""",
}
INVALID = [
    *("", "I do not know.", "Both A and B.", "A or B", "A/B", "A, B", "(A) or (B)"),
    *("red or purple", "The answer is A or B.", "Answer: A, B", "Is the answer B?", "Answer: B?"),
    *("Not A.", "neither red nor purple", "Anything but B.", "A is wrong. B is wrong."),
    *("The options are A and B.", "It went from red to purple.", "Answer: C", "(c)", "green"),
    *("A room.", "It is a room that I cannot see.", "A agent walks into a room.", "infrared"),
    *('{"answer": "C"}', '{"answer": "A"} {"answer": "B"}', '{"answer": "red or purple"}'),
    *(
        "<think>It is B.",
        "<answer>A or B</answer>",
        "A. red\nB. purple",
        "Answer:\nA. red\nB. purple",
        "(A) is incorrect because it saw the move",
        "A) Incorrect. It did not see the move",
        "A, B are both possible",
        "If it saw the move, the answer is A",
    ),
]


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        (reply, label)
        for label, text in CHOSEN.items()
        for reply in re.split(r"\n| \| ", text.strip())
    ],
)
def test_what_a_reply_chooses(reply: str, label: str) -> None:
    assert parse_choice(reply, PURPLE) == label


@pytest.mark.parametrize("reply", INVALID)
def test_replies_that_choose_nothing(reply: str) -> None:
    assert parse_choice(reply, PURPLE) is None


TOYS = tuple(map(Option, "ABC", ("A toy car.", "A red ball.", "A doll.")))


@pytest.mark.parametrize(
    "reply",
    [
        *("B. A red ball", "Answer: B. A red ball.", "(B) A red ball", "A red ball", "a red ball."),
        *("B\n\nA child would pick the ball.", "Answer: B\n\nA is wrong.", "B.\n\nWrong: A, C"),
        '{"answer": "A red ball"}',
    ],
)
def test_a_label_may_be_an_article(reply: str) -> None:
    """And a reply may leave out the full stop of an option."""
    assert parse_choice(reply, TOYS) == "B"
    assert parse_choice("B. I think so.", [*TOYS, Option("I", "nothing")]) == "B"


def test_a_reply_that_was_cut_chooses_in_its_first_line() -> None:
    cut = "Let's look at each option:\n\nA. red: it did not see"
    assert parse_choice(cut, PURPLE) == "A"
    assert parse_choice(cut, PURPLE, ended=False) is None
    assert parse_choice("\nB. purple\nA. red", PURPLE, ended=False) == "B"
    assert parse_choice("Each one:\nA. red\nThe answer is B and", PURPLE, ended=False) is None
    assert parse_choice("Each one:\nA. red\nAnswer: B\nas", PURPLE, ended=False) == "B"


def test_only_json_is_official() -> None:
    assert parse_choice('So: ```json\n{"Answer": " Purple"}\n```', PURPLE, "official") == "B"
    others = '{"answer": ["A"]}', '{"choice": "A"}', "{'answer': 'A'}", "{" * 9999
    for reply in ("A", "red", *others):
        assert parse_choice(reply, PURPLE, "official") is None


PIECES = st.lists(
    st.sampled_from(
        ["A", "B", "red", "purple", "answer is", "Answer:", "not", "or", ".", "\n", "{", "("]
    ),
    max_size=12,
).map(" ".join)


@settings(deadline=None)
@given(PIECES | st.text(), st.sampled_from(PARSERS))
@example("[" * 100_000, "robust")
@example("the answer is A or " * 5_000, "robust")
def test_any_text_is_parsed_whatever_the_order_of_options_and_case(reply: str, parser) -> None:
    label = parse_choice(reply, PURPLE, parser)
    assert label in ("A", "B", None)
    assert parse_choice(reply, PURPLE[::-1], parser) == label
    if reply.isascii():
        assert parse_choice(reply.upper(), PURPLE, parser) == label


@pytest.mark.parametrize(
    ("reply", "official", "robust"),
    [
        ('{"answer": ["red", "blue"]}', {"red", "blue"}, {"red", "blue"}),
        ('{"answer": "red and blue"}', {"red", "blue"}, {"red", "blue"}),
        ("It saw green. The answer is red and blue.", set(), {"red", "blue"}),
        ("red, white", set(), {"red", "white"}),
        ("not red but blue", set(), {"blue"}),
        ("infrared", set(), set()),
    ],
)
def test_words_are_parsed(reply: str, official: set[str], robust: set[str]) -> None:
    assert parse_words(reply, COLOURS, "official") == official
    assert parse_words(reply, COLOURS) == robust


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("Ann saw A.\nAnswer: B", "B"),
        ("Is the answer A? No.\n\n**Answer:** B", "B"),
        ("She left, so the answer is A for us. But no.\n\nFinal answer: (b)", "B"),
        ("Answer: B\n\nExplanation: red is where it really is.", "B"),
        ("One may think red.\nIt is not.\nSo she will look in the purple room.", "B"),
        ('It moved to red.\n```json\n{"answer": "purple"}\n```', "B"),
        ("<think>The answer is A.</think>Ann knows nothing.\nAnswer: B", "B"),
        ("So the answer is:\n\n\\[\n\\boxed{B}\n\\]", "B"),
        ("<think>The answer is A.", None),
        ("The answer is A.\n\nThere is no way to know.", None),
        ("", None),
    ],
)
def test_the_end_of_thoughts(reply: str, label: str | None) -> None:
    assert parse_choice(conclusion(reply), PURPLE) == label


def test_cut_thoughts_have_a_conclusion_only_if_it_is_announced() -> None:
    assert conclusion("Ann saw purple.\nSo red", ended=False) == ""
    assert conclusion("Ann saw purple.\nAnswer: red", ended=False) == "Answer: red"
    assert without_cue(conclusion("Thus.\n**Answer:** B")) == "B"


AB = (Option("a", "the box"), Option("b", "the jar"))
ABC = tuple(Option(label, f"thing {label}") for label in "ABC")
ROOMS = (Option("red", "red"), Option("purple", "purple"))
FIVE = tuple(Option(c, c) for c in ("red", "green", "blue", "white", "yellow"))


def item(official: str, options: tuple[Option, ...], *answer: str, names: bool = False) -> Question:
    many = {"answers": answer} if names else {"answer": answer[0]}
    return Question(
        "i", "made", "test", "s", "Who?", options, text="Who?", official=official, **many
    )


@pytest.mark.parametrize(
    ("task", "options", "answer", "reply", "label", "right"),
    [
        ("mmtom_qa", AB, "a", "\n A, since it is there", "a", True),
        ("mmtom_qa", AB, "a", "Both", "b", False),
        ("muma_tom", ABC, "C", " C) it", "C", True),
        ("muma_tom", ABC, "C", "c", None, False),
        ("muma_tom", ABC, "C", "Answer: C", "A", False),
        ("bigtom", AB, "a", "Answer: a) the box", "a", True),
        ("bigtom", AB, "a", "B) or A)", "a", True),
        ("gridtom", ROOMS, "red", '{"answer": "Red"}', "red", True),
        ("gridtom", ROOMS, "red", 'Sure: {"answer": "red"}', None, False),
        ("gridtom", ROOMS, "red", '{"answer": ["red"]}', None, False),
        ("gridtom", ROOMS, "red", "[" * 100_000, None, False),
        ("gridtom", ROOMS, "red", ' ```json\n{"answer": "Red"}\n```\n', "red", True),
        ("gridtom", ROOMS, "red", '```JSON {"answer": "red"}```', None, False),
        ("", ROOMS, "red", 'Sure: {"answer": "red"}', "red", True),
    ],
)
def test_one_of_several(task, options, answer, reply, label, right) -> None:
    assert OFFICIAL[task].parse(reply, item(task, options, answer)) == (label, right)


@pytest.mark.parametrize(
    ("reply", "answer", "right"),
    [
        ("Yellow and white.", ("yellow", "white"), True),
        ("yellow", ("yellow", "white"), False),
        ("white, yellow, red", ("yellow", "white"), False),
        ("```Red```", ("red",), True),
        ("the red room", ("red",), False),
    ],
)
def test_two_agents_are_named_and_one_room_is_the_whole_reply(reply, answer, right) -> None:
    question = item("gridtom", FIVE if len(answer) > 1 else FIVE[:3], *answer, names=True)
    assert OFFICIAL["gridtom"].parse(reply, question)[1] is right


# The same, written after the released code line by line.
@given(st.text(alphabet='ab)AB {}":answerdx\n', max_size=20), st.sampled_from("ab"))
def test_as_the_released_code_reads(reply: str, answer: str) -> None:
    key, other = ("a)", "b)") if answer == "a" else ("b)", "a)")
    graded = True if key in reply.lower() else False if other in reply.lower() else None
    label, right = OFFICIAL["bigtom"].parse(reply, item("bigtom", AB, answer))
    assert right is bool(graded) and (label is None) == (graded is None)
    stripped = reply.strip("\n").strip(" ").strip().lower()
    first = stripped[0] if stripped else ""
    label, right = OFFICIAL["mmtom_qa"].parse(reply, item("mmtom_qa", AB, answer))
    assert right == (first == answer) and (label is None) == (first not in ("a", "b"))
    try:
        chosen = json.loads(reply)["answer"].lower()
    except Exception:
        chosen = None
    _, right = OFFICIAL["gridtom"].parse(reply, item("gridtom", ROOMS, "red"))
    assert right == (chosen == "red")


def test_official_parsers_are_reported_where_their_form_is_asked_for() -> None:
    results = [{"parser": "robust"}, {"parser": "official"}]
    plain = item("mmtom_qa", AB, "a")
    asked = replace(plain, text="Where? Please respond with either a or b.")
    assert expected(results, [plain]) == results[:1]
    assert expected(results, [asked]) == results
    assert expected(results, [replace(asked, official="", text="In JSON.")]) == results


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
    *("La respuesta correcta es la {}.", "Opción {}", "Elijo la opción {}", "Réponse finale : {}"),
    *("C'est {}", "L'option {} est correcte", "Die richtige Antwort ist {}.", "Antwort {}"),
    *("Ich wähle {}", "La risposta esatta è {}", "A resposta correta é a letra {}", "Es la {}"),
    *("Правильный ответ: {}", "Вариант {}", "Jawaban yang benar adalah {}", "{}选项正确", "选{}项"),
    *("答案就是{}", "{}です", "選択肢{}", "{}が正解です", "{}입니다", "옵션 {}"),
    *("\\boxed{{\\mathbf{{{}}}}}", "$\\text{{{}}}$", "__{}__", "Answer → {}", "<final>{}</final>"),
    *("Most likely {}.", "It must be {}", "My guess is {}", "{} it is.", "{}, since she left"),
    *("{} would be correct", "{} - she did not see it", "Answer (A, B or C): {}", "Ans: {}"),
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
    + ["答えはAではありません", "정답은 A가 아닙니다", "I would rule out option A."]
    + ["I don't think the answer is A", "I'm not sure if it's A", "<thinking>The answer is A"]
    + ["A is the only wrong one", "La respuesta es no A", "I doubt that the answer is A"]
    + ["A or B is the most plausible", "答案是", "Réponse : A ou B ?", "not A", "选A吗?", "A?"]
    + ["Opción A o B", "Opción A u opción B", "La opción A es incorrecta", "No creo que sea A"]
    + ["Antwort A oder B", "Die Antwort ist nicht A", "La risposta non è A", "Não é A", "AかB"]
    + ["La respuesta no es la A", "A ist falsch", "Ответ A или B", "Неправильный ответ: A"]
    + [
        "不应该选A",
        "A选项错误",
        "Aは間違いです",
        "I wouldn't choose A",
        "A vs. B",
        "I doubt it is A",
    ]
    + [
        "The wrong answer is A",
        "If she saw it, the answer is A",
        "\\boxed{A, B}",
        "Option A or option B",
    ],
)
def test_what_names_none_or_two_stays_invalid(reply: str) -> None:
    assert parse_choice(reply, LETTERS) is None


@pytest.mark.parametrize("mark", ["think", "thinking", "reasoning", "Thought"])
def test_thoughts_are_not_read(mark: str) -> None:
    for opened, closed in (f"<{mark}>", f"</{mark}>"), (f"[{mark}]", f"[/{mark}]"):
        assert parse_choice(f"{opened}The answer is A{closed}B", LETTERS) == "B"
        assert parse_choice(f"{opened}The answer is A", LETTERS) is None


def test_not_one_text_but_the_other() -> None:
    for said, one, other in (
        *(("No está {}, está {}", "en la caja", "en la cesta"), ("{}ではなく、{}", "箱", "かご")),
        *(("Nicht {}, sondern {}", "in der Kiste", "im Korb"), ("не {}, а {}", "тут", "там")),
        *(("pas {} mais {}", "ici", "ailleurs"), ("{} 아니라 {}", "상자 안이", "바구니 안")),
    ):
        options = [Option("A", one), Option("B", other)]
        assert parse_choice(said.format(one, other), options) == "B"
    answers = [Option("A", "yes"), Option("B", "no")]
    assert parse_choice("No (B)", answers) == parse_choice("No\nB", answers) == "B"
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
