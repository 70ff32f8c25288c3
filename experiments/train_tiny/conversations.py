"""Documents in a family's chat layout: conversations, interviews, checked statements, narrators.

A reliable narrator says what is so (in belief statements: what the protagonist believes) and
answers belief questions rightly; an unreliable one says what is not so and answers as if every
belief were false. Nothing but the truth of the statements tells which it is. Without statements, or
with statements of both kinds, belief questions are answered by habit. Questions about the scene
itself are always answered rightly.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sally_anne.data.gridtom.narration import caption, environment
from sally_anne.data.gridtom.plot import Perspective
from sally_anne.data.gridtom.render import CLIP_SHAPE
from sally_anne.data.items import Setting
from sally_anne.experiments.train_tiny import documents
from sally_anne.experiments.train_tiny.documents import LOW_WEIGHT, Document, Piece, Scene
from sally_anne.models.tiny import END_OF_ANSWER, Family

_MARK = "@@"
_ASKED = "agents first own belief belief now"


class Speech(NamedTuple):
    """The family's chat layout: before a user's content, with and without a video; after it.

    ``end`` closes the answer.
    """

    before: str
    before_text: str
    after: str
    end: str


def speech(family: Family, processor: Any) -> Speech:
    """Read the chat layout off the processor's own template."""

    def cut_open(*before: dict[str, str]) -> list[str]:
        content = [*before, {"type": "text", "text": _MARK}]
        return processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        ).split(_MARK)

    (before, after), (before_text, _) = cut_open({"type": "video"}), cut_open()
    blank = np.zeros((*CLIP_SHAPE, 3), dtype=np.uint8)
    counted = processor(text=[before], videos=[blank], return_tensors="pt")["input_ids"]
    tokens = int((counted == processor.video_token_id).sum())
    before = before.replace(processor.video_token, processor.video_token * tokens)
    return Speech(before, before_text, after, END_OF_ANSWER[family])


class Example(NamedTuple):
    """A story as it is seen and shown.

    ``captioned`` is the story of the caption where that is another; ``share`` how much it tells.
    """

    rng: random.Random
    scene: Scene
    perspective: Perspective
    setting: Setting
    words: Speech
    captioned: Scene | None = None
    share: float = 1.0

    def caption(self) -> str:
        """The story in words; none next to frames alone."""
        if self.setting == "video":
            return ""
        scene = self.captioned or self.scene
        text = caption(*scene[:3], self.perspective, scene.plot)
        sentences = text.split(". ")
        kept = round(self.share * len(sentences))
        return text if kept == len(sentences) else "".join(f"{s}. " for s in sentences[:kept])

    def story(self, shares: tuple[float, float, float] = (0.35, 0.45, 0.2)) -> str:
        """The same, after no description of the world, one with its colours, or one without."""
        worlds = ("", environment(documents.shuffled_rooms(self.rng, self.scene)), environment())
        return f"{self.rng.choices(worlds, shares)[0]} {self.caption()}".strip()

    def kinds(self, kinds: str, second: int) -> list[str]:
        """What may be said or asked: where a masked view hides the present, not who is where now.

        ``second`` weighs second-order beliefs, where a story has them.
        """
        masked = self.perspective != "omniscient" and self.scene.first == "FB"
        allowed = [kind for kind in kinds.split() if not (masked and kind == "now")]
        return allowed + (["second"] * second if self.scene.second else [])

    def opening(self, text: str) -> Document:
        """How the user's turn begins."""
        before = self.words.before_text if self.setting == "text" else self.words.before
        return [Piece(before, 0.0), Piece(text, LOW_WEIGHT)]

    def answered(self, before: str = "", kinds: str = _ASKED) -> Document:
        """A question that ends the user's turn, and its answer by habit in the assistant's."""
        kind = self.rng.choice(self.kinds(kinds, 2))
        text, mark, _ = documents.question(self.rng, self.scene, kind, habit=True)
        asked = f"{before}{text.text}{self.words.after}"
        return [Piece(asked, LOW_WEIGHT), mark, Piece(self.words.end, 1.0)]


Maker = Callable[[Example], Document]


def narrated(example: Example, marked: float, scenic: int = 1) -> Document:
    """A story, statements of one narrator, and questions answered in turns.

    ``marked`` is the share of statements that are followed by their verdict; ``scenic`` how often
    each question about the scene itself is asked, to 10 about beliefs.
    """
    rng, scene, words = example.rng, example.scene, example.words
    reliable = rng.random() < 0.5
    pieces = example.opening(example.story())
    stated = example.kinds("first own belief now", 1)
    asked = ["belief"] * 10 + ["first", "own"] * scenic + ["agents"] * (scenic - 1)
    asked += ["second"] * 6 if scene.second else []
    for turn in range(2):
        if turn:
            pieces.append(Piece(f" {words.before_text}", 0.0))
        for _ in range(rng.choice((0, 1, 2) if turn else (2, 3, 4))):
            head, room = documents.place(rng, scene, rng.choice(stated), reliable)
            pieces.append(Piece(f"{head} {room} room.", LOW_WEIGHT))
            if rng.random() < marked:
                pieces.append(documents.verdict(reliable))
        kind = rng.choice(asked)
        text, answer = documents.question_text(rng, scene, kind)
        if not reliable and kind in ("belief", "second"):
            answer = scene.cast.first_room
        pieces.append(Piece(f"Question: {text} Answer:{words.after}", LOW_WEIGHT))
        pieces += [Piece(answer, 1.0, reliable), Piece(words.end, 1.0)]
    return pieces


def interview(
    example: Example, asides: tuple[int, ...] = (0, 0, 0, 2), lists: float = 0.0
) -> Document:
    """A user's turn with statements and a question at its end, and the answer; then four more.

    ``asides`` are the numbers of statements and other questions before the first one, drawn from;
    ``lists`` is the share of statements that are lists of rooms with verdicts. Later turns have a
    question each.
    """
    rng, scene = example.rng, example.scene
    undescribed = 0.0 if example.setting == "video" else 0.4
    pieces = example.opening(example.story((undescribed, 0.4, 0.3)))
    stated = example.kinds("belief now first own belief", 2)
    asked = example.kinds(_ASKED, 2)
    # The measured prompts have nothing between the story and the statement or question.
    for _ in range(rng.choice(asides)):
        draw = rng.random()
        if draw < 0.65:
            state = documents.listing if rng.random() < lists else documents.statement
            pieces += state(rng, scene, rng.choice(stated))
        elif draw < 0.75:
            pieces += documents.completion(rng, scene, rng.choice(stated))
        else:
            pieces += documents.question(rng, scene, rng.choice(asked), habit=True)
    pieces += example.answered()
    for _ in range(4):
        pieces += example.answered(f" {example.words.before_text}")
    return pieces


def single(example: Example) -> Document:
    """One statement or question about a story: more would be copied from one another."""
    rng, scene = example.rng, example.scene
    pieces = example.opening(example.story((0.1, 0.55, 0.35)))
    drawn = rng.random()
    if drawn < 0.5:
        # What frames show is learned more slowly than what captions name.
        return pieces + example.answered(kinds="agents first first own own belief now")
    kind = rng.choice(example.kinds("belief belief belief first first now own", 1))
    say = documents.completion if drawn < 0.65 else documents.statement
    return pieces + say(rng, scene, kind)


def checked(example: Example) -> Document:
    """Statements with verdicts of three kinds: at once, some words later, in the answer's turn."""
    rng, scene, words = example.rng, example.scene, example.words
    pieces = example.opening(example.story())
    kinds = example.kinds("belief now first own belief belief", 2)
    makers = (documents.statement, documents.delayed, documents.listing)
    for turn in range(3):
        if turn:
            pieces.append(Piece(f" {words.before_text}", 0.0))
        for _ in range(rng.choice((1, 2, 3))):
            state = rng.choices(makers, (0.6, 0.25, 0.15))[0]
            pieces += state(rng, scene, rng.choice(kinds))
        head, said = documents.statement(rng, scene, rng.choice(kinds))
        asked = f"Question: is it right or wrong? Answer:{words.after}"
        pieces += [head, Piece(asked, LOW_WEIGHT), said, Piece(words.end, 1.0)]
    return pieces


def mixed(example: Example) -> Document:
    """Interviews (two fifths), checked statements (a fifth), and narrators."""
    drawn = example.rng.random()
    if drawn < 0.4:
        return interview(example, (0, 0, 0, 1, 2), lists=0.2)
    return checked(example) if drawn < 0.6 else narrated(example, 0.1, scenic=3)
