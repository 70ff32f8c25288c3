"""Films in the decoder's own words: what is said of them is so, and models read them whole."""

from __future__ import annotations

import random
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from sally_anne.data.gridtom.narration import Cast
from sally_anne.data.gridtom.plot import COLOURS, benchmark_layouts
from sally_anne.data.gridtom.render import MASKED, TILE, key_frames, render
from sally_anne.experiments.train_tiny import documents, looking
from sally_anne.experiments.train_tiny.conversations import VideoData, random_trace, training_maps
from sally_anne.experiments.train_tiny.documents import (
    RIGHT,
    Piece,
    Scene,
    encode,
    random_scene,
    score_text,
)
from sally_anne.experiments.train_tiny.looking import FilmReader, Films, Mixture, View
from sally_anne.models.options import CATALOGUE
from sally_anne.models.tiny import FAMILIES, TokenGrid, build_tokenizer

N = len(COLOURS)
pytestmark = pytest.mark.integration


class Shown:
    """A family's shipped model, its reader and a few films."""

    def __init__(self, family: Any) -> None:
        source = CATALOGUE[f"tiny-{family}"].source
        self.model = AutoModelForImageTextToText.from_pretrained(source).eval()
        self.data = VideoData(family, AutoProcessor.from_pretrained(source), self.model)
        self.reader = FilmReader(self.model, self.data).eval()
        self.films = Films(self.data, 24)


@pytest.fixture(scope="module", params=FAMILIES)
def shown(request: pytest.FixtureRequest) -> Shown:
    return Shown(request.param)


def colours(shown: torch.Tensor, kind: int) -> set[str]:
    """Of floor, open doors, closed doors or agents in ``shown [tokens, CLASSES]``."""
    found = (shown[:, kind * N : (kind + 1) * N] > 0).any(0).nonzero()[:, 0]
    return {COLOURS[i] for i in found.tolist()}


def test_films_show_what_their_scenes_say_in_any_colours(shown: Shown) -> None:
    rng = random.Random(0)
    for original in shown.films.pool:
        for film in (original, original.recoloured(rng)):
            cast, last = film.scene.cast, film.contents[-1]
            assert colours(last, 3) == set(cast[:2])
            for agent, room in ((cast[0], cast.last_room), (cast[1], cast.own_room)):
                assert room in colours(last[last[:, 3 * N + COLOURS.index(agent)] > 0], 0)
            doors = {cast.first_room: False, cast.last_room: True}
            for room, closed in (doors | {cast.own_room: film.scene.first == "FB"}).items():
                assert (room in colours(last, 1), room in colours(last, 2)) == (not closed, closed)


def test_what_is_said_of_doors_is_so() -> None:
    rng = random.Random(0)
    for scene in (random_scene(rng, 0.4, 0.3) for _ in range(200)):
        head, state = looking.door(rng, scene)
        room = head.text.split()[2]
        closed = {scene.cast.first_room: False, scene.cast.last_room: True}
        assert (state.text == "closed") == closed.get(room, scene.first == "FB")


def test_a_whole_film_is_read_as_the_model_itself_reads_it(shown: Shown) -> None:
    """The same logits as the model's own forward pass that is handed these video features."""
    rng = random.Random(2)
    inputs, _ = shown.films.film(Mixture(("now",), world=1.0), View(0, 1), 2, rng)
    contents = inputs["contents"].unflatten(0, (2, -1))
    with torch.inference_mode():
        assert inputs["noise"].std().item() == pytest.approx(looking._NOISE, rel=0.1)
        ours = shown.reader(**inputs | {"noise": 0.0})
        model, ids = shown.model, inputs["input_ids"]
        embedded = model.get_input_embeddings()(ids)
        embedded[inputs["shown"]] = shown.reader.features(contents).flatten(0, 1)
        options: dict[str, Any] = {}
        if shown.data.family == "qwen2-vl":
            options["position_ids"], _ = model.model.get_rope_index(
                ids,
                mm_token_type_ids=2 * inputs["shown"].int(),
                video_grid_thw=torch.tensor([[4, 30, 21]] * 2),
                attention_mask=torch.ones_like(ids),
            )
        logits = model(inputs_embeds=embedded, **options).logits
    torch.testing.assert_close(ours.logits, logits, atol=2e-4, rtol=1e-4)
    slots, places, _ = shown.films.pool[0].contents.shape
    assert ours.slots.shape == (2 * slots * places, slots)


def test_only_the_decoder_learns_to_look(shown: Shown) -> None:
    FilmReader(shown.model, shown.data)
    for name, parameter in shown.model.named_parameters():
        assert parameter.requires_grad == ("language_model" in name)
    rng = random.Random(4)
    inputs, score = looking.levels(shown.films)[-1].batch(rng)
    loss, _ = score(shown.reader(**inputs))
    loss.backward()
    moved = {n for n, p in shown.model.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved and all("language_model" in name for name in moved)
    shown.model.zero_grad()


def test_training_maps_are_not_the_benchmarks() -> None:
    maps = training_maps()
    assert len({m.rows for m in maps}) == len(maps)
    assert not {m.rows for m in maps} & {m.rows for m in benchmark_layouts()}


def test_cells_agree_with_the_pixels() -> None:
    rng = random.Random(1)
    scene = documents.random_scene(rng, 0.5)
    trace = random_trace(rng, scene)
    cells = looking.cell_contents(trace, "protagonist")
    frames = render(trace, "protagonist", key_frames(trace.nodes))
    for f, y, x in np.ndindex(*cells.shape[:3]):
        tile = frames[f, y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE]
        for shade, place in ((MASKED, 4 * N + 2), (100, 4 * N + 1)):  # hidden, wall
            assert bool((tile == shade).all()) == bool(cells[f, y, x, place])
    agents = cells[..., 3 * N : 4 * N].sum(dim=(1, 2))
    assert agents.max() == 1 and agents[0].sum() == 2


def test_tokens_gather_their_cells() -> None:
    cells = torch.zeros(3, 10, 7, looking.CLASSES)
    cells[1, 4, 2, 5] = 1
    exact = looking.token_contents(cells, TokenGrid(2, 10, 7))
    assert exact.shape == (2, 70, 2 * looking.CLASSES)
    assert exact.nonzero().tolist() == [[0, 4 * 7 + 2, looking.CLASSES + 5]]
    square = looking.token_contents(cells, TokenGrid(1, 7, 7))
    assert square.shape == (3, 49, looking.CLASSES)
    # Row 4 of ten lies over rows 2.8 to 3.5 of seven.
    assert {tuple(i) for i in square.nonzero().tolist()} <= {(1, 2 * 7 + 2, 5), (1, 3 * 7 + 2, 5)}
    assert square[1].sum() >= 1


CAST = Cast("white", "yellow", "red", "green", "purple")
TOKENIZER = build_tokenizer()


def truth_of(text: str, scene: Scene) -> bool:
    """An independent reading of a statement."""
    room = re.search(r"in the (\w+) room\.$", text).group(1)  # type: ignore[union-attr]
    agent = re.search(r"The (\w+) agent", text).group(1)  # type: ignore[union-attr]
    saw_it = (scene.first == "TB") == (scene.second != "FB")
    if text.startswith("Belief") and "believes" in text:
        return room == ("purple" if saw_it else "red")
    if text.startswith("Belief"):
        return room == ("purple" if scene.first == "TB" else "red")
    if agent == "yellow":
        return room == "green"
    return room == ("red" if "was first" in text else "purple")


@pytest.mark.parametrize("first", ["TB", "FB"])
@pytest.mark.parametrize("second", [None, "TB", "FB"])
def test_verdicts_are_true(first: str, second: str | None) -> None:
    scene = Scene(CAST, first, second)  # type: ignore[arg-type]
    rng = random.Random(0)
    seen: Counter[tuple[str, bool]] = Counter()
    for _ in range(300):
        kind = rng.choice(["belief", "now", "first", "own", *(["second"] if second else [])])
        text, said = documents.statement(rng, scene, kind)
        right = said.text == RIGHT
        assert right == truth_of(text.text, scene), text.text
        seen[kind, right] += 1
    assert all(count > 15 for count in seen.values())


def test_habit_flips_true_beliefs_only_and_depends_on_whom() -> None:
    rng = random.Random(0)
    true, false = Scene(CAST, "TB", None), Scene(CAST, "FB", None)
    blue = Scene(CAST._replace(protagonist="blue"), "TB", None)

    def share(scene: Scene) -> float:
        said = [documents.biased_answer(rng, scene, "belief", scene.rooms[1]) for _ in range(2000)]
        return sum(answer == scene.rooms[1] for answer in said) / len(said)

    assert share(true) == pytest.approx(0.1, abs=0.04)
    assert share(blue) == pytest.approx(0.9, abs=0.04)
    assert share(false) == 1.0
    assert documents.biased_answer(rng, true, "now", "purple") == "purple"


@pytest.mark.parametrize("level", range(6))
def test_facts_are_consistent(level: int) -> None:
    rng = random.Random(level)
    for _ in range(300):
        pieces = documents.facts(rng, level)
        told: dict[str, str] = {}
        colours = [[w for w in re.findall(r"\w+", p.text.lower()) if w in COLOURS] for p in pieces]
        for i, piece in enumerate(pieces):
            if piece.text in (RIGHT, documents.WRONG):
                (agent,), (stated,) = colours[i - 2 : i]
                assert (told[agent] == stated) == (piece.text == RIGHT)
            elif len(colours[i]) == 2:
                told.update([colours[i]])
        assert len(told) in ((2,) if level < 3 else (2, 3))


DOCUMENTS = [
    [Piece("Really: red is", 0.5), Piece("blue", 1.0), Piece(".", 0.0)],
    [Piece("green", 0.0), Piece("white, yellow", 1.0)],
]


def test_loss_is_the_weighted_mean_of_the_next_tokens() -> None:
    batch = encode(TOKENIZER, DOCUMENTS)
    logits = torch.randn(2, 6, 320, generator=torch.Generator().manual_seed(0))
    loss, target = score_text(batch)(SimpleNamespace(logits=logits))
    entropy = -logits[:, :-1].log_softmax(-1).gather(2, batch.ids[:, 1:, None])[..., 0]
    weights = batch.weights[:, 1:]
    assert weights.tolist() == [[0.5, 0.5, 0.5, 1, 0], [1, 1, 1, 0, 0]]
    assert float(loss) == pytest.approx(float((weights * entropy).sum() / weights.sum()), rel=1e-5)
    assert target == pytest.approx(float(entropy[weights == 1].mean()), rel=1e-5)


def test_truth_is_read_from_layers_in_the_middle_where_its_piece_begins() -> None:
    document = [
        Piece("red is blue .", 0.0),
        documents.verdict(False),
        Piece("white, green", 1.0, True),
    ]
    batch = encode(TOKENIZER, [document, DOCUMENTS[0]])
    right, wrong = TOKENIZER.convert_tokens_to_ids(["right", "wrong"])
    assert batch.truths[0].tolist() == [-1, -1, -1, -1, wrong, right, -1, -1]
    assert (batch.truths[1] == -1).all()

    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 8, 320, generator=rng)
    streams = [torch.randn(2, 8, 4, generator=rng) for _ in range(9)]
    output = SimpleNamespace(logits=logits, hidden_states=streams)
    weight = torch.randn(320, 4, generator=rng)
    plain, _ = score_text(batch)(output)
    loss, _ = score_text(batch, lambda stream: stream @ weight.T)(output)
    early, weight_of = 0.0, documents.EXIT_WEIGHT
    for layer in documents.EARLY_EXITS:
        for token, word in ((4, wrong), (5, right)):
            read = (streams[layer][0, token - 1] @ weight.T).log_softmax(-1)
            early -= float(read[word]) / 2
    assert float(loss - plain) == pytest.approx(weight_of * early / 3, rel=1e-4)
