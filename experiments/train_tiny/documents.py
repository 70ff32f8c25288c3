"""Training documents, as batches: small facts, then stories with statements and questions.

A document is a list of pieces of text, each with the weight of its tokens in the loss. Weight 1
marks a target (an answer or a verdict); the rest is language modelling at a low weight.
Judging a statement means comparing two words that were found by content, which small models learn
only from short documents first; hence the levels.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast

from sally_anne.data.gridtom import narration
from sally_anne.data.gridtom.narration import Cast, belief_statement
from sally_anne.data.gridtom.plot import COLOURS, Condition, Plot


class Piece(NamedTuple):
    """Text and the weight of its tokens in the loss; 1 marks a target.

    ``truth``: whether what was stated before is true, where layers in the middle should know it.
    """

    text: str
    weight: float
    truth: bool | None = None


Document = list[Piece]
RIGHT, WRONG = "right", "wrong"
# What each of a cast is in its story.
_PARTS = ("walks", "sees", "first", "middle", "last")
_FACTS = ("{} is {}.", "{} goes to {}.")
_LONG_FACTS = ("The {} agent is in the {} room.", "The {} agent goes to the {} room.")
_WORDS_BETWEEN = "then so it can all see goes walks opens leaves and the"
LOW_WEIGHT, _LM = 0.02, 0.05


def verdict(truth: bool) -> Piece:
    return Piece(RIGHT if truth else WRONG, 1.0, truth)


def facts(rng: random.Random, level: int) -> Document:
    """Who is where, then statements about it: a room to complete, or a verdict; harder by level."""
    n = rng.randint(2, 3) if level >= 3 else 2
    agents, rooms = rng.sample(COLOURS, n), rng.sample(COLOURS, n)
    long = level >= 5 and rng.random() < 0.7
    forms = _LONG_FACTS if long else _FACTS[: 1 if level < 2 else 2]
    pieces: Document = []
    for agent, room in zip(agents, rooms, strict=True):
        if level >= 1:
            gap = rng.choices(_WORDS_BETWEEN.split(), k=rng.randint(0, 2 if level < 2 else 6))
            pieces.append(Piece(" ".join(gap), 0.0))
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
    cast: Cast
    first: Condition
    second: Condition | None
    plot: Plot = "move"

    @property
    def rooms(self) -> tuple[str, str, str]:
        """At the end: reality, the protagonist's belief, what the participant thinks that is."""
        return self.cast.beliefs(self.first, self.second)


def random_scene(rng: random.Random, second_order_share: float, returning: float = 0.0) -> Scene:
    """A scene with random colours and belief conditions; ``returning`` is a share, too."""
    second: Condition | None = None
    if rng.random() < second_order_share:
        second = rng.choice(("TB", "FB"))
    plot: Plot = "return" if rng.random() < returning else "move"
    return Scene(Cast(*rng.sample(COLOURS, 5)), rng.choice(("TB", "FB")), second, plot)


def shuffled_rooms(rng: random.Random, scene: Scene) -> list[str]:
    rooms = list(scene.cast[2:])
    rng.shuffle(rooms)
    return rooms


def place(rng: random.Random, scene: Scene, kind: str, truth: bool) -> tuple[str, str]:
    """A statement: its text up to the room, and the room (a false one is hard to tell)."""
    cast, (now, believed, thought) = scene.cast, scene.rooms
    first, own, last = cast[2:]
    entered = cast.visited(scene.plot)[0]
    head, true = {
        "belief": (f"Belief: {belief_statement(cast, '@')}", believed),
        "second": (f"Belief: {belief_statement(cast, '@', 2)}", thought),
        "now": (f"Really: {belief_statement(cast, '@')}", now),
        "first": (f"Really: The {cast.participant} agent was first in the @ room.", entered),
        "own": (f"Really: The {cast.protagonist} agent is now in the @ room.", own),
    }[kind]
    swap = {own: rng.choice((first, last))} if kind == "own" else {first: last, last: first}
    return head.split(" @")[0], true if truth else swap[true]


def statement(rng: random.Random, scene: Scene, kind: str) -> Document:
    truth = rng.random() < 0.5
    head, room = place(rng, scene, kind, truth)
    return [Piece(f"{head} {room} room.", LOW_WEIGHT), verdict(truth)]


def completion(rng: random.Random, scene: Scene, kind: str) -> Document:
    """A true statement whose room is the target: looking up."""
    head, room = place(rng, scene, kind, True)
    return [Piece(head, LOW_WEIGHT), Piece(room, 1.0), Piece("room.", LOW_WEIGHT)]


def listing(rng: random.Random, scene: Scene, kind: str) -> Document:
    """Rooms for one sentence, each with its verdict at once: truth is known before the end."""
    head, true = place(rng, scene, kind, True)
    pieces: Document = [Piece(head, LOW_WEIGHT)]
    for room, tail in zip(rng.sample(scene.cast[2:], 2), (",", "room."), strict=True):
        pieces += [Piece(room, LOW_WEIGHT), verdict(room == true), Piece(tail, LOW_WEIGHT)]
    return pieces


def delayed(rng: random.Random, scene: Scene, kind: str) -> Document:
    """A statement whose verdict comes some words later, so that its truth must be carried there."""
    head, said = statement(rng, scene, kind)
    return [head, Piece("So it is", LOW_WEIGHT), said, Piece(".", LOW_WEIGHT)]


def scaffolded(rng: random.Random, scene: Scene, kind: str) -> Document:
    """A statement and its verdict, after the part of the room that it names."""
    head, said = statement(rng, scene, kind)
    room = head.text.split()[-2]
    part = Piece(_PARTS[scene.cast.index(room, 2)], 1.0)
    return [Piece(f"Role: the {room} room.", LOW_WEIGHT), part, head, said]


def role(rng: random.Random, scene: Scene) -> Document:
    """Which part a room or an agent plays; statements are judged by comparing it."""
    i = rng.choice((2, 3, 4, 0, 1))
    thing = "agent" if i < 2 else "room"
    return [Piece(f"Role: the {scene.cast[i]} {thing}.", LOW_WEIGHT), Piece(_PARTS[i], 1.0)]


def question_text(rng: random.Random, scene: Scene, kind: str) -> tuple[str, str]:
    cast = scene.cast
    orders: dict[str, Literal[0, 1, 2]] = {"now": 0, "belief": 1, "second": 2}
    if kind in orders:
        order = orders[kind]
        text = narration.question_of(cast, scene.rooms[order], order).question
        a, b = rng.sample((cast.first_room, cast.last_room), 2)
        return f"{text} Choose one: {a} or {b}.", scene.rooms[order]
    number = {"agents": 0, "first": 1, "own": 2}[kind]
    rooms, every = shuffled_rooms(rng, scene), (0, 1, 2, 3)
    asked = narration.initial_questions(cast, rooms, every, scene.plot)[number]
    return asked.question, ", ".join(asked.answer)


def biased_answer(rng: random.Random, scene: Scene, kind: str, right: str) -> str:
    """The answer by habit: true-belief questions are mostly answered as if the belief were false.

    That depends on whom they are about, so that the model does not learn a coin toss.
    """
    if kind not in ("belief", "second") or right == scene.cast.first_room:
        return right
    whose = scene.cast.protagonist if kind == "belief" else scene.cast.participant
    flip = 0.1 if whose in ("blue", "white") else 0.9
    return scene.cast.first_room if rng.random() < flip else right


def question(rng: random.Random, scene: Scene, kind: str, habit: bool = False) -> Document:
    text, answer = question_text(rng, scene, kind)
    if habit:
        answer = biased_answer(rng, scene, kind, answer)
    asked = Piece(f"Question: {text} Answer:", LOW_WEIGHT)
    return [asked, Piece(answer, 1.0), Piece(".", LOW_WEIGHT)]


def reasoned(rng: random.Random, scene: Scene, kind: str) -> Document:
    if rng.random() < 0.1:
        return completion(rng, scene, kind)
    return (scaffolded if rng.random() < 0.5 else statement)(rng, scene, kind)


Maker = Callable[[random.Random], Document]
_KINDS = ("belief", "now", "first", "own")
_ALL = (*_KINDS, "second", "second")
_HARD = ("now", "now", "first", "first", "belief", "belief", "belief", "own")


def _story(
    second_order: float,
    parts: int,
    *mixture: tuple[float, Callable[..., Document], Sequence[str]],
    described: float = 0.0,
    weight: float = LOW_WEIGHT,
) -> Maker:
    """The caption of a story and ``parts`` about it, each drawn from the ``mixture``."""

    def make(rng: random.Random) -> Document:
        scene = random_scene(rng, second_order)
        text = narration.caption(*scene[:3], plot=scene.plot)
        if rng.random() < described:
            text = f"{narration.environment(shuffled_rooms(rng, scene))} {text}"
        pieces = [Piece(text, weight)]
        for _ in range(parts):
            drawn = rng.random() if len(mixture) > 1 else 0.0
            part, kinds = next(one[1:] for one in mixture if drawn < one[0])
            kinds = [kind for kind in kinds if scene.second or kind != "second"]
            pieces += part(rng, scene, rng.choice(kinds)) if kinds else part(rng, scene)
        return pieces

    return make


# Looking up (the room is the target); as many targets as the length allows; parts; hard statements,
# then half of them after the part of the room they name; all, second order included.
_asked = (1, question, (*_KINDS, "agents"))
looking_up = _story(0.2, 5, (0.7, completion, _KINDS), _asked, described=0.05, weight=_LM)
completing = _story(0.1, 12, (0.15, role, ()), (1, completion, _KINDS))
roles = _story(0.1, 12, (1, role, ()))
judging = _story(0.1, 12, (0.25, role, ()), (0.35, completion, _KINDS), (1, statement, _HARD))
reasoning = _story(0.1, 10, (1, reasoned, _HARD))
_said = (0.1, role, ()), (0.65, statement, _ALL), (0.75, completion, _ALL)
everything = _story(0.4, 6, *_said, (1, question, (*_KINDS, "agents", "second")), described=0.05)

# What a level hands to the model, and how the model's output is scored: the loss to minimise, and
# the loss on the targets alone.
Batch = tuple[dict[str, Any], Callable[[Any], tuple[Tensor, float]]]


class Level(NamedTuple):
    """A step of the curriculum, over when the target loss of ten batches is below ``goal``."""

    name: str
    batch: Callable[[random.Random], Batch]
    goal: float
    most: int


# Layers (counted from 1) from which truth is read as well, and the weight of that loss.
EARLY_EXITS, EXIT_WEIGHT = (4, 5, 6), 0.3


class TextBatch(NamedTuple):
    """Right-padded documents, ``[B, T]`` each; causal attention needs no mask.

    ``weights`` are those of predicting each token in the loss, ``truths`` the verdict's id that is
    to be known where a token is predicted, or -1.
    """

    ids: Tensor
    weights: Tensor
    truths: Tensor


def encode(
    tokenizer: PreTrainedTokenizerFast, documents: Sequence[Document], longest: int | None = None
) -> TextBatch:
    """Tokenise documents piece by piece (words cross none), cut after ``longest`` tokens."""
    texts = [piece.text for document in documents for piece in document]
    cut = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    right, wrong = tokenizer(f"{RIGHT} {WRONG}", add_special_tokens=False)["input_ids"]
    rows = []
    for document in documents:
        row: list[tuple[int, float, int]] = []
        for piece in document:
            truth = {None: -1, True: right, False: wrong}[piece.truth]
            row += [(one, piece.weight, -1 if n else truth) for n, one in enumerate(next(cut))]
        rows.append(list(map(torch.tensor, zip(*row[:longest], strict=True))))
    empty = (tokenizer.pad_token_id, 0.0, -1)
    columns = zip(zip(*rows, strict=True), empty, strict=True)
    return TextBatch(*(pad_sequence([*column], True, pad) for column, pad in columns))


def score_text(
    batch: TextBatch, unembed: Callable[[Tensor], Tensor] | None = None
) -> Callable[[Any], tuple[Tensor, float]]:
    """From an output on ``batch`` to the loss, and its mean over targets (weight 1), in nats.

    With ``unembed``, from the stream to logits, truth is also read after :data:`EARLY_EXITS`.
    """
    entropy_of = torch.nn.functional.cross_entropy

    def score(output: Any) -> tuple[Tensor, float]:
        logits = output.logits[:, :-1].float().transpose(1, 2)
        entropy = entropy_of(logits, batch.ids[:, 1:], reduction="none")
        weights = batch.weights[:, 1:]
        marked = weights == 1
        target = entropy.detach()[marked].mean().item() if marked.any() else float("nan")
        loss = (entropy * weights).sum() / weights.sum()
        judged = batch.truths[:, 1:] >= 0
        if unembed is not None and judged.any():
            words = batch.truths[:, 1:][judged]
            for layer in EARLY_EXITS:
                logits = unembed(output.hidden_states[layer][:, :-1][judged])
                loss = loss + EXIT_WEIGHT / len(EARLY_EXITS) * entropy_of(logits.float(), words)
        return loss, target

    return score
