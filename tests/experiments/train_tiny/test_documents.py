"""Documents say the truth but where the habit flips it; weights line up with their tokens."""

from __future__ import annotations

import random
import re
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from sally_anne.data.gridtom.narration import Cast
from sally_anne.data.gridtom.plot import COLOURS
from sally_anne.experiments.train_tiny import documents
from sally_anne.experiments.train_tiny.documents import RIGHT, Piece, Scene, encode, score_text
from sally_anne.models.tiny import build_tokenizer

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
