"""Stages 2 and 3: the decoder learns to look things up in films, then the tower to see.

At first a film is given as vectors that say, in the decoder's own words, what each video token
covers. With a tower's features looking up does not begin within hundreds of steps; with these it
does, from few tokens at first. Then a throw-away linear head reads floor, door and agent colours
off the tower's video tokens, and these are moved towards the vectors that the decoder knows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from math import nan
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sally_anne.data.gridtom import plot
from sally_anne.data.gridtom.narration import Cast, environment
from sally_anne.data.gridtom.plot import COLOURS, Perspective
from sally_anne.data.gridtom.render import CLIP_SHAPE, key_frames
from sally_anne.experiments.train_tiny import documents
from sally_anne.experiments.train_tiny.conversations import (
    VideoData,
    checked,
    interview,
    random_trace,
)
from sally_anne.experiments.train_tiny.documents import Batch, Document, Level, Piece, Scene
from sally_anne.models.tiny import HIDDEN, TOKEN_GRIDS, Family, TokenGrid

_N = len(COLOURS)
# Floor, open door, closed door and agent of each colour; corridor; wall; hidden.
CLASSES = 4 * _N + 3
# A token counts a cell in if it covers so much of it, or the cell so much of the token.
_SHARE = 0.4
# Films that looking up is learned on, and steps on whole ones, after all levels before.
FILMS, WHOLE = 1500, 300
# Layer (counted from 1) after which each video token must tell its place in time, and the weight.
_TIMED_LAYER, _TIME_WEIGHT = 2, 0.3
# Share of batches in words alone, so that reading is not forgotten; stories in one, and
# the token after which they are cut.
_TEXT_SHARE, _TEXT_SIZE, _TEXT_LONGEST = 1 / 3, 10, 420
# Floor, open door, closed door and agent: how much of a token's vector each is.
_STRENGTHS = (0.7, 0.7, 0.7, 1.0)
# How strongly the later of a token's two frames shows, to 1 for the earlier.
_LATER = 0.6
# Standard deviation of the noise in each number of a token's vector, about as the tower's.
_NOISE = 0.02
# Of the distance from the decoder's words, besides what cells show; clips in a batch.
_ALIGNMENT, _CLIPS = 5.0, 8


def cell_contents(trace: plot.Trace, perspective: Perspective) -> Tensor:
    """What each cell of the seven key frames shows: ``[7, 10, 7, CLASSES]`` of 0 and 1."""
    story, ticks = trace.story, key_frames(trace.nodes)
    out = torch.zeros(len(ticks), plot.ROWS, plot.COLUMNS, CLASSES)
    for f, state in enumerate(trace.states[tick] for tick in ticks):
        seen = None if perspective == "omniscient" else state.seen[perspective]
        for x, y in story.layout.cells():
            mark, room = story.layout.mark((x, y)), story.layout.room_of((x, y))
            shown = 4 * _N + 1 if mark == plot.WALL else 4 * _N
            if mark != plot.WALL and seen is not None and (x, y) not in seen:
                shown = 4 * _N + 2
            elif room is not None:
                kind = 0 if mark in plot.ROOM_MARKS else 1 if state.open_doors[room] else 2
                shown = kind * _N + COLOURS.index(story.rooms[room])
            out[f, y, x, shown] = 1
        for ((x, y), _), colour in zip(state.agents.values(), story.cast, strict=False):
            if seen is None or (x, y) in seen:
                out[f, y, x, 3 * _N + COLOURS.index(colour)] = 1
    return out


def token_contents(cells: Tensor, grid: TokenGrid) -> Tensor:
    """What each video token covers: ``[T', R * C, frames_per_token * CLASSES]`` of 0 and 1."""

    def cover(cells_n: int, tokens_n: int) -> Tensor:
        size = cells_n / tokens_n
        token, cell = torch.arange(tokens_n).double()[:, None], torch.arange(cells_n).double()
        both = torch.minimum((token + 1) * size, cell + 1) - torch.maximum(token * size, cell)
        return (both / min(size, 1.0) >= _SHARE).float()

    if missing := -len(cells) % grid.frames_per_token:
        cells = torch.cat([cells, cells[-1:].expand(missing, -1, -1, -1)])
    rows, columns = cover(plot.ROWS, grid.rows), cover(plot.COLUMNS, grid.columns)
    shown = torch.einsum("ry,fyxk,cx->frck", rows, cells, columns).clamp(max=1)
    shown = shown.unflatten(0, (-1, grid.frames_per_token))
    return shown.permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)


class Film(NamedTuple):
    """A story and what its video tokens cover, ``[slots in time, places in a frame, CLASSES]``."""

    scene: Scene
    contents: Tensor

    def recoloured(self, rng: random.Random) -> Film:
        new = rng.sample(range(_N), _N)
        cast = Cast(*(COLOURS[new[COLOURS.index(c)]] for c in self.scene.cast))
        columns = torch.arange(CLASSES)
        columns[: 4 * _N].view(4, _N)[:, new] = columns[: 4 * _N].view(4, _N).clone()
        return Film(self.scene._replace(cast=cast), self.contents[..., columns])


def blended(covered: Tensor) -> Tensor:
    """What tokens cover, ``[..., CLASSES]``; of two frames the earlier one shows more strongly."""
    frames = covered.unflatten(-1, (-1, CLASSES))
    strengths = _LATER ** torch.arange(frames.shape[-2])
    return torch.einsum("...fc,f->...c", frames, strengths / strengths.sum())


class FilmReader(nn.Module):
    """A model's decoder, to which films are given in its own words."""

    turns: Tensor
    colours: Tensor

    def __init__(self, model: Any, data: VideoData) -> None:
        super().__init__()
        # Only the decoder is trained here; the tower waits.
        self.model: Any = model
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("language_model" in name)
        slots = -(-CLIP_SHAPE[0] // TOKEN_GRIDS[data.family].frames_per_token)
        self.time = nn.Linear(HIDDEN, slots)
        ids = data.processor.tokenizer.convert_tokens_to_ids(list(COLOURS))
        self.register_buffer("colours", torch.tensor(ids))
        # Colours of floors and doors must not be taken for those of agents: each kind's words are
        # turned by a rotation of its own, the same in every training.
        generator = torch.Generator().manual_seed(0)
        turns = torch.linalg.qr(torch.randn(4, HIDDEN, HIDDEN, generator=generator)).Q
        turns[3] = torch.eye(HIDDEN)
        self.register_buffer("turns", turns * torch.tensor(_STRENGTHS)[:, None, None])

    def features(self, contents: Tensor) -> Tensor:
        """Vectors ``[..., HIDDEN]`` of tokens that cover ``contents [..., CLASSES]``."""
        words = self.model.get_input_embeddings().weight[self.colours]
        kinds = torch.einsum("nh,khg->kng", words, self.turns).flatten(0, 1)
        return contents[..., : 4 * _N].to(kinds.dtype) @ kinds

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        shown: Tensor,
        contents: Tensor,
        noise: Tensor | float = 0.0,
    ) -> Any:
        """Logits, hidden states, and of each video token the logits of its slot in time.

        ``shown [B, T]`` are video tokens, which cover ``contents [video tokens, CLASSES]``.
        """
        embedded = self.model.get_input_embeddings()(input_ids).clone()
        embedded[shown] = (self.features(contents) + noise).to(embedded.dtype)
        output = self.model(
            inputs_embeds=embedded,
            position_ids=position_ids if len(position_ids) > 1 else position_ids[0],
            # Without it positions that jump, as between tokens left out, begin a new sequence.
            attention_mask=torch.ones_like(input_ids),
            use_cache=False,
            output_hidden_states=True,
        )
        output.slots = self.time(output.hidden_states[_TIMED_LAYER][shown])
        return output


class View(NamedTuple):
    """Which tokens of a film are shown: so many, or all if 0; agents of the last slots always."""

    tokens: int
    slots: int
    doors: bool = False

    def chosen(self, rng: random.Random, film: Film) -> Tensor:
        slots, places, _ = film.contents.shape
        if not self.tokens or self.tokens >= slots * places:
            return torch.arange(slots * places)
        needed = (film.contents[..., 3 * _N : 4 * _N] > 0).any(-1)
        needed[: slots - self.slots] = False
        if self.doors:
            needed[-1] |= (film.contents[-1, :, _N : 3 * _N] > 0).any(-1)
        first = needed.flatten().nonzero()[:, 0].tolist()
        rng.shuffle(first)
        rest = list(set(range(slots * places)) - set(first))
        picked = first + rng.sample(rest, max(0, self.tokens - len(first)))
        return torch.tensor(sorted(picked[: self.tokens]))


def door(rng: random.Random, scene: Scene) -> Document:
    """Whether a door is open at the end: the protagonist's depends on the condition."""
    cast = scene.cast
    room = rng.choice((cast.own_room, cast.own_room, cast.first_room, cast.last_room))
    closed = room == cast.last_room or (room == cast.own_room and scene.first == "FB")
    head = Piece(f"Really: The {room} door is now", documents.LOW_WEIGHT)
    return [head, Piece("closed" if closed else "open", 1.0)]


class Mixture(NamedTuple):
    """What is said of a film: kinds; shares of statements with verdicts, and of questions."""

    kinds: Sequence[str]
    judged: float = 0.0
    asked: float = 0.0
    world: float = 0.0

    def one(self, rng: random.Random, scene: Scene) -> Document:
        """One thing said. More would be copied from one another."""
        before = []
        if rng.random() < self.world:
            before = [Piece(environment(documents.shuffled_rooms(rng, scene)), 0.0)]
        kind = rng.choice(self.kinds)
        if kind == "door":
            return before + door(rng, scene)
        drawn = rng.random()
        if drawn < self.judged:
            return before + documents.statement(rng, scene, kind)
        if drawn < self.judged + self.asked and kind != "belief":
            return before + documents.question(rng, scene, rng.choice((kind, kind, "agents")))
        return before + documents.completion(rng, scene, kind)


class Films:
    """Makes batches of films in words, and of stories in words."""

    def __init__(self, data: VideoData, number: int = FILMS) -> None:
        self.data, self.tokenizer, self.pool = data, data.processor.tokenizer, []
        grid = TOKEN_GRIDS[data.family]
        for i in range(number):
            rng = random.Random(f"film/{i}")
            scene = data.scene(rng)
            cells = cell_contents(random_trace(rng, scene), "omniscient")
            self.pool.append(Film(scene, blended(token_contents(cells, grid))))
        before = self.tokenizer(data.before, add_special_tokens=False)["input_ids"]
        self.before = torch.tensor(before)
        self.video = self.before == data.processor.video_token_id
        # Positions of what stands before the text, as the family counts them, [axes, tokens].
        self.positions = torch.arange(len(before))[None]
        if data.family == "qwen2-vl":
            merge = data.processor.video_processor.merge_size
            slots = len(self.pool[0].contents)
            shape = torch.tensor([[slots, grid.rows * merge, grid.columns * merge]])
            kinds = 2 * self.video.int()[None]
            counted, _ = data.model.model.get_rope_index(
                self.before[None], mm_token_type_ids=kinds, video_grid_thw=shape
            )
            self.positions = counted[:, 0]

    def film(self, said: Mixture, view: View, size: int, rng: random.Random) -> Batch:
        drawn = [film.recoloured(rng) for film in rng.choices(self.pool, k=size)]
        text = documents.encode(self.tokenizer, [said.one(rng, film.scene) for film in drawn])
        chosen = torch.stack([view.chosen(rng, film) for film in drawn])
        covered = torch.stack([film.contents.flatten(0, 1) for film in drawn])
        contents = covered[torch.arange(size)[:, None], chosen].flatten(0, 1)
        around = (~self.video).nonzero()[:, 0].expand(size, -1)
        video = self.video.nonzero()[:, 0]
        kept = torch.cat([around, video[chosen]], 1).sort().values
        after = int(self.positions.max()) + 1 + torch.arange(text.ids.shape[1])
        after = after.expand(len(self.positions), size, -1)
        nothing = torch.zeros(kept.shape)
        before = self.before[kept], nothing, nothing.long() - 1
        whole = documents.TextBatch(
            *(torch.cat(both, 1) for both in zip(before, text, strict=True))
        )
        slots = chosen.flatten() // self.pool[0].contents.shape[1]
        score_whole = documents.score_text(whole)

        def score(output: Any) -> tuple[Tensor, float]:
            loss, target = score_whole(output)
            return loss + _TIME_WEIGHT * nn.functional.cross_entropy(output.slots, slots), target

        # The tower will not speak as clearly.
        generator = torch.Generator().manual_seed(rng.getrandbits(32))
        inputs = {
            "input_ids": whole.ids,
            "position_ids": torch.cat([self.positions[:, kept], after], -1),
            "shown": nn.functional.pad(self.video[kept], (0, text.ids.shape[1])),
            "contents": contents,
            "noise": _NOISE * torch.randn(len(contents), HIDDEN, generator=generator),
        }
        return inputs, score

    def text(self, rng: random.Random) -> Batch:
        """Stories in words, half of them in the family's chat layout: its words are new."""

        def conversed(rng: random.Random) -> Document:
            example = self.data.example(rng, "text")
            return rng.choice((interview, checked))(example)

        make = documents.everything if rng.random() < 0.5 else conversed
        made = [make(rng) for _ in range(_TEXT_SIZE)]
        text = documents.encode(self.tokenizer, made, _TEXT_LONGEST)
        size = text.ids.shape
        inputs = {
            "input_ids": text.ids,
            "position_ids": torch.arange(size[1]).expand(len(self.positions), *size),
            "shown": torch.zeros(size, dtype=torch.bool),
            "contents": torch.zeros(0, CLASSES),
        }
        score = documents.score_text(text)
        # A level is learned by its films alone.
        return inputs, lambda output: (score(output)[0], nan)


_PLACES = ("now", "own")
_HELD = ("belief", "belief", "door", "first", "now")
_ALL = ("now", "first", "own", "belief", "belief")


def levels(films: Films) -> list[Level]:
    slots = len(films.pool[0].contents)
    near, far = 1, slots - slots // 4
    # What is said; tokens; batch, goal, most steps. Descriptions are long, and shorter documents
    # are padded, so that some levels have none.
    plan: list[tuple[str, tuple[Any, ...], View, int, float, int]] = [
        ("two agents", (_PLACES,), View(4, near), 64, 0.15, 2500),
        ("judged", (_PLACES, 0.4, 0.2, 0.3), View(4, near), 64, 0.2, 1500),
        ("two times", (("now", "first", "first"),), View(12, far), 64, 0.15, 1200),
        ("times judged", (("now", "first", "first"), 0.6, 0.2, 0.3), View(12, far), 64, 0.2, 1500),
        ("doors", (("door", "door", "now"), 0.2, 0.1), View(8, near, True), 64, 0.15, 400),
        ("behind doors", (_HELD,), View(16, far, True), 64, 0.15, 1500),
        ("beliefs judged", (_HELD, 0.6, 0.1, 0.3), View(16, far, True), 64, 0.2, 1500),
        ("thirty-two", ((*_ALL, "door"), 0.4, 0.2, 0.4), View(32, far, True), 48, 0.15, 1000),
        ("sixty-four", (_ALL, 0.4, 0.2, 0.5), View(64, far, True), 32, 0.15, 500),
        ("half", (_ALL, 0.4, 0.2, 0.5), View(140, far, True), 24, 0.15, 300),
        ("whole", (_ALL, 0.4, 0.2, 0.5), View(0, far), 16, 0.0, WHOLE),
    ]

    def batch(said: Mixture, view: View, size: int, rng: random.Random) -> Batch:
        if rng.random() < _TEXT_SHARE:
            return films.text(rng)
        return films.film(said, view, size, rng)

    return [
        Level(name, partial(batch, Mixture(*said), view, size), goal, most)
        for name, said, view, size, goal, most in plan
    ]


class Looker(nn.Module):
    """The model's vision path, with a linear head on its video tokens."""

    def __init__(self, model: Any, family: Family) -> None:
        super().__init__()
        # Only the vision path is trained here; the decoder has learned to read before.
        self.model: Any = model
        self.head = nn.Linear(HIDDEN, CLASSES * TOKEN_GRIDS[family].frames_per_token)
        # The decoder's words are short vectors; read as they are, they would move the head little.
        words = model.get_input_embeddings().weight.detach()
        self.scale = float(1 / words.square().mean().sqrt())
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("language_model" not in name)

    def forward(self, **pixels: Any) -> tuple[Tensor, Tensor]:
        """Vectors of every video token ``[N, HIDDEN]`` and what it shows, as logits."""
        features = self.model.get_video_features(**pixels).pooler_output
        if isinstance(features, (tuple, list)):
            features = torch.cat([f.flatten(0, -2) for f in features])
        features = features.flatten(0, -2)
        return features, self.head(self.scale * features)


def cell_level(data: VideoData, words: Callable[[Tensor], Tensor], steps: int) -> Level:
    """Clips, what their cells show, and the vectors (``words``) by which the decoder knows it."""
    grid = TOKEN_GRIDS[data.family]

    def batch(rng: random.Random) -> Batch:
        clips = []
        for _ in range(_CLIPS):
            seen: Perspective = rng.choice(("omniscient", "omniscient", "protagonist"))
            clips.append((random_trace(rng, data.scene(rng)), seen))
        target = torch.cat([token_contents(cell_contents(*c), grid).flatten(0, 1) for c in clips])
        known = words(target).detach()

        def score(output: tuple[Tensor, Tensor]) -> tuple[Tensor, float]:
            features, logits = output
            # Agents and doors are rare; without weight they would be learned last.
            rare, entropy = torch.tensor(5.0), nn.functional.binary_cross_entropy_with_logits
            loss = entropy(logits, target, pos_weight=rare)
            misalignment = nn.functional.mse_loss(features.float(), known) / known.square().mean()
            return 20 * loss + _ALIGNMENT * misalignment, misalignment.item()

        return data.pixels(clips), score

    return Level("cells", batch, 0.0, steps)
