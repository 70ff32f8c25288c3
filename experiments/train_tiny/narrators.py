"""Documents of reliable and unreliable narrators, by whose statements belief answers go.

A reliable narrator says what is so (in belief statements: what the protagonist believes) and
answers belief questions rightly; an unreliable one says what is not so and answers as if every
belief were false. Nothing but the truth of the statements tells which it is. Without statements, or
with statements of both kinds, belief questions are answered by habit. Questions about the scene
itself are always answered rightly.
"""

from __future__ import annotations

import random

from experiments.train_tiny import documents
from experiments.train_tiny.documents import Document, Piece, Scene
from experiments.train_tiny.speech import Speech
from sally_anne.benchmarks.gridtom.narration import caption, environment, initial_environment
from sally_anne.benchmarks.gridtom.render import Perspective

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
