"""Documents in a family's chat layout: conversations, interviews, checked statements, narrators.

A reliable narrator says what is so (in belief statements: what the protagonist believes) and
answers belief questions rightly; an unreliable one says what is not so and answers as if every
belief were false. Nothing but the truth of the statements tells which it is. Without statements, or
with statements of both kinds, belief questions are answered by habit. Questions about the scene
itself are always answered rightly.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.train_tiny import documents
from experiments.train_tiny.documents import Document, Piece, Scene
from experiments.train_tiny.families import END_OF_ANSWER, Family
from sally_anne.benchmarks.gridtom.narration import caption, environment, initial_environment
from sally_anne.benchmarks.gridtom.render import Perspective
from sally_anne.benchmarks.items import Setting

_MARK = "@@"


@dataclass(frozen=True)
class Speech:
    """The family's chat layout around a user's content, cut open.

    Attributes:
        before: what stands before the content, video tokens included.
        before_text: the same without a video.
        after: what stands between the content and the answer.
        end: closes the answer.
        video_token: id of a video token.
    """

    before: str
    before_text: str
    after: str
    end: str
    video_token: int


def speech(family: Family, processor: Any, frames: int = 7) -> Speech:
    """Read the chat layout off the processor's own template."""
    blank = np.zeros((frames, 420, 294, 3), dtype=np.uint8)

    def render_chat(video: bool) -> str:
        content: list[dict[str, str]] = [{"type": "video"}] if video else []
        content.append({"type": "text", "text": _MARK})
        return processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )

    with_video, without = render_chat(True), render_chat(False)
    head, after = with_video.split(_MARK)
    counted = processor(text=[with_video], videos=[blank], return_tensors="pt")["input_ids"]
    video_token = processor.video_token_id
    tokens = int((counted == video_token).sum())
    return Speech(
        before=head.replace(processor.video_token, processor.video_token * tokens),
        before_text=without.split(_MARK)[0],
        after=after,
        end=END_OF_ANSWER[family],
        video_token=video_token,
    )


_QUIET = 0.02


def story_text(rng: random.Random, scene: Scene, perspective: Perspective) -> str:
    """The story in words, mostly after a description of the world with or without its colours."""
    cast = scene.cast
    rooms = [cast.first_room, cast.own_room, cast.last_room]
    rng.shuffle(rooms)
    world = rng.choices(("", environment(rooms), initial_environment()), (0.35, 0.45, 0.2))[0]
    return f"{world} {caption(cast, scene.first, scene.second, perspective)}".strip()


def narrated(
    rng: random.Random,
    scene: Scene,
    perspective: Perspective,
    video: bool,
    words: Speech,
    marked: float,
    scenic: int = 1,
) -> Document:
    """A story, statements of one narrator, and questions answered in turns.

    Args:
        rng: draws everything.
        scene: the story.
        perspective: whose view is told.
        video: whether frames come with it.
        words: the family's chat layout.
        marked: share of statements that are followed by their verdict.
        scenic: how often each question about the scene itself is asked, to 10 about beliefs.
    """
    reliable = rng.random() < 0.5
    told = story_text(rng, scene, perspective)
    masked = perspective != "omniscient" and scene.first == "FB"
    pieces: Document = [
        Piece(words.before if video else words.before_text, 0.0),
        Piece(told, _QUIET),
    ]
    for turn in range(2):
        if turn:
            pieces.append(Piece(f" {words.before_text}", 0.0))
        for _ in range(rng.choice((0, 1, 2) if turn else (2, 3, 4))):
            pieces += _statement(rng, scene, masked, reliable, marked)
        text, answer = _question(rng, scene, reliable, scenic)
        pieces.append(Piece(f"Question: {text} Answer:{words.after}", _QUIET))
        pieces += [Piece(answer, 1.0, reliable), Piece(words.end, 1.0)]
    return pieces


def _statement(
    rng: random.Random, scene: Scene, masked: bool, truth: bool, marked: float
) -> Document:
    kinds = ["first", "own", "belief", *([] if masked else ["now"])]
    kinds += ["second"] if scene.second else []
    head, room = documents.place(rng, scene, rng.choice(kinds), truth)
    pieces: Document = [Piece(f"{head} {room} room.", _QUIET)]
    return [*pieces, documents.verdict(truth)] if rng.random() < marked else pieces


def _question(rng: random.Random, scene: Scene, reliable: bool, scenic: int) -> tuple[str, str]:
    kinds = ["belief"] * 10 + ["first", "own"] * scenic + ["agents"] * (scenic - 1)
    kinds += ["second"] * 6 if scene.second else []
    kind = rng.choice(kinds)
    text, answer = documents.question_text(rng, scene, kind)
    if not reliable and kind in ("belief", "second"):
        answer = scene.cast.first_room
    return text, answer


_ALL = ("belief", "now", "first", "own")
_UNMASKED = ("belief", "first", "own")


def _questions(scene: Scene, masked: bool) -> list[str]:
    """What may be asked: where a masked view hides the present, not where the agent is now."""
    asked = ["agents", "first", "own", "belief", "belief", *([] if masked else ["now"])]
    return asked + (["second"] * 2 if scene.second else [])


def conversation(
    rng: random.Random,
    scene: Scene,
    perspective: Perspective,
    setting: Setting,
    words: Speech,
    asides: tuple[int, ...] = (0, 1, 2, 3, 5),
    lists: float = 0.0,
) -> Document:
    """One user's turn with statements in it and a question at its end, and the answer.

    ``asides`` are the numbers of statements and other questions before the last one, drawn from;
    ``lists`` is the share of statements that are lists of rooms with verdicts.
    """
    cast = scene.cast
    parts = []
    if setting == "video" or rng.random() < 0.6:
        rooms = [cast.first_room, cast.own_room, cast.last_room]
        rng.shuffle(rooms)
        parts.append(environment(rooms))
    if setting != "video":
        parts.append(caption(cast, scene.first, scene.second, perspective))
    masked = perspective != "omniscient" and scene.first == "FB"
    kinds = [*(_UNMASKED if masked else _ALL), "belief", *(["second"] * 2 if scene.second else [])]
    asked = _questions(scene, masked)
    pieces: Document = [
        Piece(words.before_text if setting == "text" else words.before, 0.0),
        Piece(" ".join(parts), 0.02),
    ]
    # The measured prompts have nothing between the story and the statement or question.
    for _ in range(rng.choice(asides)):
        draw = rng.random()
        if draw < 0.65:
            state = documents.listing if rng.random() < lists else documents.statement
            pieces += state(rng, scene, rng.choice(kinds))
        elif draw < 0.75:
            pieces += documents.completion(rng, scene, rng.choice(kinds))
        else:
            pieces += documents.question(rng, scene, rng.choice(asked), habit=True)
    text, mark, stop = documents.question(rng, scene, rng.choice(asked), habit=True)
    del stop
    pieces += [Piece(text.text + words.after, 0.02), mark, Piece(words.end, 1.0)]
    return pieces


def interview(
    rng: random.Random,
    scene: Scene,
    perspective: Perspective,
    setting: Setting,
    words: Speech,
    asides: tuple[int, ...] = (0, 0, 0, 2),
    lists: float = 0.0,
) -> Document:
    """Several turns: each question in a turn of the user's, each answer in the assistant's."""
    opening = conversation(rng, scene, perspective, setting, words, asides, lists)
    masked = perspective != "omniscient" and scene.first == "FB"
    pieces = list(opening)
    for _ in range(4):
        asked = rng.choice(_questions(scene, masked))
        text, mark, _ = documents.question(rng, scene, asked, habit=True)
        pieces.append(Piece(f" {words.before_text}{text.text}{words.after}", 0.02))
        pieces += [mark, Piece(words.end, 1.0)]
    return pieces


def checked(
    rng: random.Random, scene: Scene, perspective: Perspective, setting: Setting, words: Speech
) -> Document:
    """Statements with verdicts of three kinds: at once, some words later, in the answer's turn."""
    told = story_text(rng, scene, perspective)
    masked = perspective != "omniscient" and scene.first == "FB"
    kinds = [*(_UNMASKED if masked else _ALL), "belief", "belief"]
    kinds += ["second"] * 2 if scene.second else []
    pieces: Document = [
        Piece(words.before_text if setting == "text" else words.before, 0.0),
        Piece(told, 0.02),
    ]
    for turn in range(3):
        if turn:
            pieces.append(Piece(f" {words.before_text}", 0.0))
        for _ in range(rng.choice((1, 2, 3))):
            state = rng.choices(
                (documents.statement, documents.delayed, documents.listing), (0.6, 0.25, 0.15)
            )[0]
            pieces += state(rng, scene, rng.choice(kinds))
        head, said = documents.statement(rng, scene, rng.choice(kinds))
        asked = "Question: is it right or wrong? Answer:"
        pieces += [head, Piece(f"{asked}{words.after}", 0.02), said, Piece(words.end, 1.0)]
    return pieces


def watching(rng: random.Random, scene: Scene, words: Speech) -> Document:
    """What only the frames tell: who goes where, without a caption."""
    rooms = [scene.cast.first_room, scene.cast.own_room, scene.cast.last_room]
    rng.shuffle(rooms)
    pieces: Document = [Piece(words.before, 0.0), Piece(environment(rooms), 0.02)]
    for _ in range(7):
        if rng.random() < 0.5:
            pieces += documents.completion(rng, scene, rng.choice(("now", "first", "own")))
        else:
            kind = rng.choice(("agents", "first", "own", "now"))
            pieces += documents.question(rng, scene, kind, habit=False)
    return pieces
