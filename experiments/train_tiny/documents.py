"""Training documents: small facts to compare, then stories with statements and questions.

A document is a list of pieces of text, each with the weight of its tokens in the loss. Weight 1
marks a target (an answer or a verdict); the rest is language modelling at a low weight.
Judging a statement means comparing two words that were found by content, which small models learn
only from short documents first; hence the levels.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from sally_anne.benchmarks.gridtom.narration import (
    Cast,
    belief_statement,
    caption,
    environment,
    first_order,
    initial_questions,
    place_statement,
    second_order,
)
from sally_anne.benchmarks.gridtom.plot import Condition
from sally_anne.benchmarks.gridtom.world import COLOURS


class Piece(NamedTuple):
    """Text and the weight of its tokens in the loss; 1 marks a target.

    ``truth`` is what layers in the middle should know where the piece begins: whether what was
    stated before is true. None where nothing was stated.
    """

    text: str
    weight: float
    truth: bool | None = None


Document = list[Piece]
RIGHT, WRONG = "right", "wrong"
_WORDS_BETWEEN = "then so it can all see goes walks opens leaves and the"
_QUIET, _LM = 0.02, 0.05


def verdict(truth: bool) -> Piece:
    """The word that follows a statement."""
    return Piece(RIGHT if truth else WRONG, 1.0, truth)


def facts(rng: random.Random, level: int) -> Document:
    """Who is where, then a statement about it: its room to complete, or a verdict on it.

    Args:
        level: 0 two bare facts and one statement; 1 words in between; 2 several phrasings;
            3 up to three facts; 4 up to three statements; 5 sentences as long as in stories.
    """
    n = rng.randint(2, 3) if level >= 3 else 2
    agents, rooms = rng.sample(COLOURS, n), rng.sample(COLOURS, n)
    long = level >= 5 and rng.random() < 0.7
    pieces: Document = []
    for agent, room in zip(agents, rooms, strict=True):
        if level >= 1:
            gap = rng.choices(_WORDS_BETWEEN.split(), k=rng.randint(0, 2 if level < 2 else 6))
            pieces.append(Piece(" ".join(gap), 0.0))
        forms: tuple[str, ...] = ("{} is {}.",)
        if long:
            forms = ("The {} agent is in the {} room.", "The {} agent goes to the {} room.")
        elif level >= 2:
            forms = ("{} is {}.", "{} goes to {}.")
        pieces.append(Piece(rng.choice(forms).format(agent, room), 0.0))
    for _ in range(rng.randint(1, 3) if level >= 4 else 1):
        i = rng.randrange(n)
        head, tail = ("The {} agent is now in the", "room.") if long else ("{} is", ".")
        mark = "Belief" if level >= 1 and rng.random() < 0.5 else "Really"
        pieces.append(Piece(f"{mark}: {head.format(agents[i])}", 0.0))
        if rng.random() < 0.3:
            pieces += [Piece(rooms[i], 1.0), Piece(tail, 0.0)]
            continue
        truth = rng.random() < 0.5
        # Rooms that no fact names are easy to refuse, and a first step.
        others = COLOURS if rng.random() < 0.2 else rooms
        stated = rooms[i] if truth else rng.choice([c for c in others if c != rooms[i]])
        pieces += [Piece(f"{stated} {tail}", 0.0), verdict(truth)]
    return pieces


class Scene(NamedTuple):
    """A story as far as words can tell it."""

    cast: Cast
    first: Condition
    second: Condition | None

    @property
    def believed(self) -> str:
        """Room in which the protagonist believes the participant is."""
        return self.cast.last_room if self.first == "TB" else self.cast.first_room

    @property
    def thought(self) -> str:
        """Room in which the participant thinks the protagonist believes it is."""
        agrees = self.second != "FB"
        return self.cast.last_room if (self.first == "TB") == agrees else self.cast.first_room


def random_scene(rng: random.Random, second_order_share: float) -> Scene:
    """A scene with random colours and belief conditions."""
    second: Condition | None = None
    if rng.random() < second_order_share:
        second = rng.choice(("TB", "FB"))
    return Scene(Cast(*rng.sample(COLOURS, 5)), rng.choice(("TB", "FB")), second)


def telling(rng: random.Random, scene: Scene, environment_share: float = 0.05) -> Piece:
    """The context: the caption, sometimes after the general description."""
    text = caption(scene.cast, scene.first, scene.second)
    if rng.random() < environment_share:
        rooms = [scene.cast.first_room, scene.cast.own_room, scene.cast.last_room]
        rng.shuffle(rooms)
        text = f"{environment(rooms)} {text}"
    return Piece(text, _QUIET)


def place(rng: random.Random, scene: Scene, kind: str, truth: bool) -> tuple[str, str]:
    """A statement of one kind: its text up to the room, and the room it names.

    False statements name the room that is hardest to tell from the true one.
    """
    cast = scene.cast
    first, own, last = cast.first_room, cast.own_room, cast.last_room
    swap = {first: last, last: first}
    if kind == "belief":
        text, true = place_statement(cast, "@"), scene.believed
        head = f"Belief: {text}"
    elif kind == "second":
        head, true = f"Belief: {belief_statement(cast, '@')}", scene.thought
    elif kind == "now":
        head, true = f"Really: {place_statement(cast, '@')}", last
    elif kind == "first":
        head, true = f"Really: The {cast.participant} agent was first in the @ room.", first
    elif kind == "own":
        head, true = f"Really: The {cast.protagonist} agent is now in the @ room.", own
        swap = {own: rng.choice((first, last))}
    else:
        raise ValueError(f"unknown kind of statement {kind!r}")
    return head.split(" @")[0], true if truth else swap[true]


def statement(rng: random.Random, scene: Scene, kind: str) -> Document:
    """A statement and its verdict."""
    truth = rng.random() < 0.5
    head, room = place(rng, scene, kind, truth)
    return [Piece(f"{head} {room} room.", _QUIET), verdict(truth)]


def completion(rng: random.Random, scene: Scene, kind: str) -> Document:
    """A true statement whose room is the target: looking up."""
    head, room = place(rng, scene, kind, True)
    return [Piece(head, _QUIET), Piece(room, 1.0), Piece("room.", _QUIET)]


def listing(rng: random.Random, scene: Scene, kind: str) -> Document:
    """Rooms for one sentence, each followed by its verdict at once.

    The verdict on a room is wanted at the room itself, so that a statement's truth is known before
    the statement ends.
    """
    head, true = place(rng, scene, kind, True)
    cast = scene.cast
    rooms = rng.sample((cast.first_room, cast.own_room, cast.last_room), 2)
    pieces: Document = [Piece(head, _QUIET)]
    for room, tail in zip(rooms, (",", "room."), strict=True):
        pieces += [Piece(room, _QUIET), verdict(room == true), Piece(tail, _QUIET)]
    return pieces


def delayed(rng: random.Random, scene: Scene, kind: str) -> Document:
    """A statement whose verdict comes some words later, so that its truth must be carried there."""
    head, said = statement(rng, scene, kind)
    return [head, Piece("So it is", _QUIET), said, Piece(".", _QUIET)]


def scaffolded(rng: random.Random, scene: Scene, kind: str) -> Document:
    """A statement and its verdict, after the part of the room that it names."""
    head, said = statement(rng, scene, kind)
    cast = scene.cast
    room = head.text.split()[-2]
    parts = {cast.first_room: "first", cast.own_room: "middle", cast.last_room: "last"}
    return [Piece(f"Role: the {room} room.", _QUIET), Piece(parts[room], 1.0), head, said]


def role(rng: random.Random, scene: Scene) -> Document:
    """Which part a room or an agent plays in the story.

    Naming the part of a colour takes one look at where the story names it; statements are judged
    by comparing that part with the one they claim.
    """
    cast = scene.cast
    thing, name = rng.choice(
        (
            (f"{cast.first_room} room", "first"),
            (f"{cast.own_room} room", "middle"),
            (f"{cast.last_room} room", "last"),
            (f"{cast.participant} agent", "walks"),
            (f"{cast.protagonist} agent", "sees"),
        )
    )
    return [Piece(f"Role: the {thing}.", _QUIET), Piece(name, 1.0)]


def offer(rng: random.Random, options: tuple[str, str]) -> str:
    """The sentence that offers two rooms, in random order."""
    a, b = rng.sample(options, 2)
    return f"Choose one: {a} or {b}."


def question_text(rng: random.Random, scene: Scene, kind: str) -> tuple[str, str]:
    """A question of one kind and its right answer."""
    cast = scene.cast
    options = (cast.first_room, cast.last_room)
    if kind == "belief":
        return f"{first_order(cast, scene.believed).question} {offer(rng, options)}", scene.believed
    if kind == "second":
        return f"{second_order(cast, scene.thought).question} {offer(rng, options)}", scene.thought
    if kind == "now":
        text = f"At the end of the video, in which room is the {cast.participant} agent?"
        return f"{text} {offer(rng, options)}", cast.last_room
    rooms = [cast.first_room, cast.own_room, cast.last_room]
    rng.shuffle(rooms)
    number = {"agents": 0, "first": 1, "own": 2}[kind]
    asked = initial_questions(cast, rooms, (0, 1, 2, 3))[number]
    return asked.question, ", ".join(asked.answer)


def habit_answer(rng: random.Random, scene: Scene, kind: str, right: str) -> str:
    """The answer by habit: true-belief questions are mostly answered as if the belief were false.

    How often depends on whom the question is about, so that the model does not learn a coin toss:
    about protagonists (second order: participants) in blue or white it mostly answers rightly.
    """
    if kind not in ("belief", "second") or right == scene.cast.first_room:
        return right
    whose = scene.cast.protagonist if kind == "belief" else scene.cast.participant
    flip = 0.1 if whose in ("blue", "white") else 0.9
    return scene.cast.first_room if rng.random() < flip else right


def question(rng: random.Random, scene: Scene, kind: str, habit: bool) -> Document:
    """A question and its answer, right or by habit."""
    text, answer = question_text(rng, scene, kind)
    if habit:
        answer = habit_answer(rng, scene, kind, answer)
    return [Piece(f"Question: {text} Answer:", _QUIET), Piece(answer, 1.0), Piece(".", _QUIET)]


_KINDS = ("belief", "now", "first", "own")
_QUESTIONS = ("belief", "now", "first", "own", "agents")


def looking_up(rng: random.Random) -> Document:
    """A story, true statements and questions: the room is the target."""
    scene = random_scene(rng, 0.2)
    pieces: Document = [Piece(telling(rng, scene).text, _LM)]
    for _ in range(5):
        if rng.random() < 0.7:
            pieces += completion(rng, scene, rng.choice(_KINDS))
        else:
            pieces += question(rng, scene, rng.choice(_QUESTIONS), habit=False)
    return pieces


def completing(rng: random.Random) -> Document:
    """A story and many true statements: as many targets as its length allows."""
    scene = random_scene(rng, 0.1)
    pieces: Document = [telling(rng, scene, 0.0)]
    for _ in range(12):
        if rng.random() < 0.15:
            pieces += role(rng, scene)
        else:
            pieces += completion(rng, scene, rng.choice(_KINDS))
    return pieces


def roles(rng: random.Random) -> Document:
    """A story and the parts of its rooms and agents."""
    scene = random_scene(rng, 0.1)
    pieces: Document = [telling(rng, scene, 0.0)]
    for _ in range(12):
        pieces += role(rng, scene)
    return pieces


def judging(rng: random.Random) -> Document:
    """A story, hard true and false statements with verdicts, and roles of rooms."""
    scene = random_scene(rng, 0.1)
    pieces: Document = [telling(rng, scene, 0.0)]
    for _ in range(12):
        draw = rng.random()
        if draw < 0.25:
            pieces += role(rng, scene)
        elif draw < 0.35:
            pieces += completion(rng, scene, rng.choice(_KINDS))
        else:
            kinds = ("now", "now", "first", "first", "belief", "belief", "belief", "own")
            pieces += statement(rng, scene, rng.choice(kinds))
    return pieces


def reasoning(rng: random.Random) -> Document:
    """As :func:`judging`, with half of the statements after the part of the room they name."""
    scene = random_scene(rng, 0.1)
    pieces: Document = [telling(rng, scene, 0.0)]
    for _ in range(10):
        kind = rng.choice(("now", "now", "first", "first", "belief", "belief", "belief", "own"))
        if rng.random() < 0.1:
            pieces += completion(rng, scene, kind)
        else:
            pieces += (scaffolded if rng.random() < 0.5 else statement)(rng, scene, kind)
    return pieces


def everything(rng: random.Random) -> Document:
    """All statements and questions, second order included."""
    scene = random_scene(rng, 0.4)
    pieces: Document = [telling(rng, scene)]
    kinds = [*_KINDS, *(["second", "second"] if scene.second else [])]
    questions = [*_QUESTIONS, *(["second"] if scene.second else [])]
    for _ in range(6):
        draw = rng.random()
        if draw < 0.1:
            pieces += role(rng, scene)
        elif draw < 0.65:
            pieces += statement(rng, scene, rng.choice(kinds))
        elif draw < 0.75:
            pieces += completion(rng, scene, rng.choice(kinds))
        else:
            pieces += question(rng, scene, rng.choice(questions), habit=False)
    return pieces


Maker = Callable[[random.Random], Document]
