"""Films in the decoder's own words: what is said of them is so, and models read them whole."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from sally_anne.data.gridtom.plot import COLOURS
from sally_anne.experiments.train_tiny import looking
from sally_anne.experiments.train_tiny.documents import random_scene
from sally_anne.experiments.train_tiny.looking import FilmReader, Mixture, Projector, View
from sally_anne.experiments.train_tiny.videos import VideoData
from sally_anne.models.options import CATALOGUE
from sally_anne.models.tiny import FAMILIES

N = len(COLOURS)
pytestmark = pytest.mark.integration


class Shown:
    """A family's shipped model, its reader and a few films."""

    def __init__(self, family: Any) -> None:
        source = CATALOGUE[f"tiny-{family}"].source
        self.model = AutoModelForImageTextToText.from_pretrained(source).eval()
        self.data = VideoData(family, AutoProcessor.from_pretrained(source), self.model)
        self.pool = looking.films(self.data, 24)
        self.reader = FilmReader(self.model, self.data).eval()
        self.projector = Projector(self.data, self.pool)


@pytest.fixture(scope="module", params=FAMILIES)
def shown(request: pytest.FixtureRequest) -> Shown:
    return Shown(request.param)


def colours(shown: torch.Tensor, kind: int) -> set[str]:
    """Of floor, open doors, closed doors or agents in ``shown [tokens, CLASSES]``."""
    found = (shown[:, kind * N : (kind + 1) * N] > 0).any(0).nonzero()[:, 0]
    return {COLOURS[i] for i in found.tolist()}


def test_films_show_what_their_scenes_say_in_any_colours(shown: Shown) -> None:
    rng = random.Random(0)
    for original in shown.pool:
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
    inputs, _ = shown.projector.film(Mixture(("now",), world=1.0), View(0, 1), 2, rng)
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
    slots, places, _ = shown.pool[0].contents.shape
    assert ours.slots.shape == (2 * slots * places, slots)


def test_only_the_decoder_learns_to_look(shown: Shown) -> None:
    FilmReader(shown.model, shown.data)
    for name, parameter in shown.model.named_parameters():
        assert parameter.requires_grad == ("language_model" in name)
    rng = random.Random(4)
    (level,) = [x for x in looking.levels(shown.data, 3, shown.pool) if x.most == 3]
    inputs, score = level.batch(rng)
    loss, _ = score(shown.reader(**inputs))
    loss.backward()
    moved = {n for n, p in shown.model.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved and all("language_model" in name for name in moved)
    shown.model.zero_grad()
