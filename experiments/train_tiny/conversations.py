"""Documents in a family's chat layout, and batches of them with films.

A reliable narrator says what is so (in belief statements: what the protagonist believes) and
answers belief questions rightly; an unreliable one says what is not so and answers as if every
belief were false. Nothing but the truth of the statements tells which it is. Without statements, or
with statements of both kinds, belief questions are answered by habit. Questions about the scene
itself are always answered rightly. Stories are played on random maps, none of them one of the
benchmark's 27.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sally_anne.data.gridtom import plot
from sally_anne.data.gridtom.narration import caption, environment
from sally_anne.data.gridtom.plot import Perspective
from sally_anne.data.gridtom.render import CLIP_SHAPE, key_frames, render
from sally_anne.data.items import Setting
from sally_anne.experiments.train_tiny import documents
from sally_anne.experiments.train_tiny.documents import (
    LOW_WEIGHT,
    Batch,
    Document,
    Level,
    Piece,
    Scene,
    encode,
    score_text,
)
from sally_anne.models.tiny import END_OF_ANSWER, Family

_MARK = "@@"
_ASKED = "agents first own belief belief now"
TRAINING_MAPS = 400
_MAP_SEED = 20_000
# Share of stories in which the participant has been in the last room before.
RETURNING = 0.3
# Documents in a batch with frames, and in one of text alone.
FILMED, TEXTS = 8, 14
# Shares of batches with frames and text, frames alone, and text.
_SHARES: dict[Setting, float] = {"multimodal": 0.25, "video": 0.5, "text": 0.25}
# Of captions next to frames: how many tell another story, and how many break off. The frames are
# right, so whoever reads the caption alone is wrong.
_CONTRADICTED, _CURTAILED = 0.12, 0.2
_MASKED = 0.15


@cache
def training_maps() -> list[plot.Layout]:
    """Random maps, disjoint from the benchmark's."""
    return list(itertools.islice(plot.random_layouts(_MAP_SEED), TRAINING_MAPS))


def random_trace(rng: random.Random, scene: Scene) -> plot.Trace:
    """Play ``scene`` on a random map from random starts."""
    layout = rng.choice(training_maps())
    one, two, three = rng.sample(range(3), 3)
    starts, facing = rng.choice(plot.start_pairs(layout)), (rng.randrange(4), rng.randrange(4))
    story = plot.Story(layout, scene.cast, (one, two, three), starts, facing, scene.plot)
    return plot.play(story, scene.first, scene.second)


def contradicted(rng: random.Random, scene: Scene) -> Scene:
    """A story that its frames contradict: other rooms' parts, or another condition."""
    cast = scene.cast
    if rng.random() < 0.5:
        rooms = rng.choice([p for p in itertools.permutations(cast[2:]) if p != cast[2:]])
        return scene._replace(cast=cast._replace(**dict(zip(cast._fields[2:], rooms, strict=True))))
    return scene._replace(first="FB" if scene.first == "TB" else "TB")


class VideoData:
    """Makes batches in one family's chat layout, by its processor, for its model."""

    def __init__(self, family: Family, processor: Any, model: Any) -> None:
        self.family, self.processor, self.model = family, processor, model

        def cut_open(*before: dict[str, str]) -> list[str]:
            content = [*before, {"type": "text", "text": _MARK}]
            return processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
            ).split(_MARK)

        (before, self.after), (self.before_text, _) = cut_open({"type": "video"}), cut_open()
        blank = np.zeros((*CLIP_SHAPE, 3), dtype=np.uint8)
        counted = processor(text=[before], videos=[blank], return_tensors="pt")["input_ids"]
        tokens = int((counted == processor.video_token_id).sum())
        self.before = before.replace(processor.video_token, processor.video_token * tokens)
        self.end = END_OF_ANSWER[family]

    def scene(self, rng: random.Random) -> Scene:
        return documents.random_scene(rng, 0.4, RETURNING)

    def pixels(self, clips: Sequence[tuple[plot.Trace, Perspective]]) -> dict[str, Tensor]:
        videos = [render(trace, seen, key_frames(trace.nodes)) for trace, seen in clips]
        processed = self.processor.video_processor
        return dict(processed(videos=videos, return_tensors="pt", do_sample_frames=False))

    def example(self, rng: random.Random, setting: Setting) -> Example:
        scene = self.scene(rng)
        perspective: Perspective = "protagonist" if rng.random() < _MASKED else "omniscient"
        captioned, share = scene, 1.0
        if setting == "multimodal" and perspective == "omniscient":
            drawn = rng.random()
            if drawn < _CONTRADICTED:
                captioned = contradicted(rng, scene)
            elif drawn < _CONTRADICTED + _CURTAILED:
                share = rng.random()
        return Example(rng, scene, perspective, setting, self, captioned, share)

    def batch(
        self, make: Maker, setting: Setting, rng: random.Random, filmed: int = FILMED
    ) -> Batch:
        """Documents of one setting with their frames; truth is read from middle layers, too."""
        texts, clips = [], []
        for _ in range(TEXTS if setting == "text" else filmed):
            example = self.example(rng, setting)
            texts.append(make(example))
            if setting != "text":
                clips.append((random_trace(rng, example.scene), example.perspective))
        encoded = encode(self.processor.tokenizer, texts)
        inputs: dict[str, Any] = {
            "input_ids": encoded.ids,
            "attention_mask": torch.ones_like(encoded.ids),
            "output_hidden_states": True,
        }
        if clips:
            inputs |= self.pixels(clips)
            if self.family == "qwen2-vl":
                shown = encoded.ids == self.processor.video_token_id
                inputs["mm_token_type_ids"] = 2 * shown.int()

        def unembed(stream: Tensor) -> Tensor:
            return self.model.lm_head(self.model.model.language_model.norm(stream))

        return inputs, score_text(encoded, unembed)

    def level(self, name: str, make: Maker, steps: int, filmed: int = FILMED) -> Level:
        def batch(rng: random.Random) -> Batch:
            (setting,) = rng.choices([*_SHARES], [*_SHARES.values()])
            return self.batch(make, setting, rng, filmed)

        return Level(name, batch, 0.0, steps)


class Example(NamedTuple):
    """A story as it is seen and shown.

    ``captioned`` is the story of the caption, which may be another; ``share`` how much it tells.
    """

    rng: random.Random
    scene: Scene
    perspective: Perspective
    setting: Setting
    words: VideoData
    captioned: Scene
    share: float

    def story(self, shares: tuple[float, float, float] = (0.35, 0.45, 0.2)) -> str:
        """The story in words (not next to frames alone), perhaps after the world described."""
        text = ""
        if self.setting != "video":
            text = caption(*self.captioned[:3], self.perspective, self.captioned.plot)
            sentences = text.split(". ")
            kept = round(self.share * len(sentences))
            if kept < len(sentences):
                text = "".join(f"{one}. " for one in sentences[:kept])
        worlds = ("", environment(documents.shuffled_rooms(self.rng, self.scene)), environment())
        return f"{self.rng.choices(worlds, shares)[0]} {text}".strip()

    def kinds(self, kinds: str, second: int) -> list[str]:
        """What may be asked, but what a masked view hides; ``second`` weighs second order."""
        masked = self.perspective != "omniscient" and self.scene.first == "FB"
        allowed = [kind for kind in kinds.split() if not (masked and kind == "now")]
        return allowed + (["second"] * second if self.scene.second else [])

    def opening(self, text: str) -> Document:
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
    """A story, statements of a narrator, a share of them ``marked`` by verdicts, and questions."""
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

    ``asides`` are the numbers of statements and other questions before the first one, drawn from.
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
    drawn = example.rng.random()
    if drawn < 0.4:
        return interview(example, (0, 0, 0, 1, 2), lists=0.2)
    return checked(example) if drawn < 0.6 else narrated(example, 0.1, scenic=3)
