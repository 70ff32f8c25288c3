"""Films ranked by how social they are."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sally_anne.harness.distractors import write_lines
from sally_anne.harness.films import mean, run
from sally_anne.harness.method_config import FilmsConfig
from sally_anne.harness.model import SteeredModel
from tests.harness.chat_server import Server, Step, completion, words
from tests.made_replies import printed

SYNOPSES = {
    "Storm": "Waves break on an empty coast.",
    "The Letter": "Two sisters lie to each other about a letter.",
    "Market": "People pass one another in a market.",
    "Lost": None,
    "The Bet": "A boy pretends to be ill and his friend sees through him.",
    "Gears": "",
}
GIVEN = {"Waves": "1", "sisters": "**5**", "People pass": "The answer is 2.", "boy": "5."}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    films = [{"title": title, "synopsis": synopsis} for title, synopsis in SYNOPSES.items()]
    write_lines(tmp_path / "films.jsonl", films)
    return tmp_path / "films.jsonl"


def by_words(body: dict[str, Any]) -> Step:
    given = (said for word, said in GIVEN.items() if word in words(body))
    return 200, completion(next(given, "Hm."))


ranking = partial(printed, run)


def test_ranks_ties_and_what_is_missing(server: Server, data: Path) -> None:
    server.answer = by_words
    config = FilmsConfig(
        data, endpoint=server.url, endpoint_model="gpt-x", out=data.parent / "run", batch_size=3
    )
    table, _ = ranking(config)
    assert list(table["title"]) == ["The Letter", "The Bet", "Market", "Storm", "Lost", "Gears"]
    assert table["rank"].tolist()[:4] == [1, 1, 3, 4] and table["rank"].isna().sum() == 2
    assert table["score"].tolist()[:4] == [5.0, 5.0, 2.0, 1.0]
    lines = [json.loads(line) for line in (config.folder / "films.jsonl").read_text().splitlines()]
    assert lines[0] == {"rank": 1, "score": 5.0, "id": "The Letter", "title": "The Letter"}
    assert lines[-1]["rank"] is None
    # With one film more only that one is read.
    assert len(server.seen) == 4
    with data.open("a") as file:
        file.write(json.dumps({"title": "New", "synopsis": "Nobody knows."}) + "\n")
    table, _ = ranking(config)
    assert len(server.seen) == 5 and table["rank"].isna().sum() == 3


def test_a_template_of_the_users_asks_for_a_number(server: Server, data: Path) -> None:
    (data.parent / "ours.txt").write_text("{title}: {synopsis} [{captions}] 0 to 100?")
    numbers = {"Storm: Waves break on an empty coast. [] 0": "7", "Bet": "Say 85.5, of 100."}

    def answer(body: dict[str, Any]) -> Step:
        said = (number for asked, number in numbers.items() if asked in words(body))
        return 200, completion(next(said, "Hm."))

    server.answer = answer
    at = {"endpoint": server.url, "endpoint_model": "gpt-x", "out": data.parent / "run"}
    table, text = ranking(FilmsConfig(data, **at, template=data.parent / "ours.txt"))
    assert table["score"].tolist()[:2] == [85.5, 7.0] and table["rank"].isna().sum() == 4
    assert "ours.txt" in text


def test_the_mean_of_the_scale_by_hand() -> None:
    assert mean([math.log(p) for p in (0.1, 0.2, 0.3, 0.2, 0.2)]) == pytest.approx(3.2)
    # Of the five labels alone: a model that would rather say something else changes nothing.
    assert mean([math.log(p) - 50 for p in (0.1, 0.2, 0.3, 0.2, 0.2)]) == pytest.approx(3.2)
    assert mean([-math.inf] * 4 + [0.0]) == 5.0
    assert mean([math.nan] * 5) is None and mean([-math.inf] * 5) is None


@pytest.mark.integration
def test_a_local_model_by_its_probabilities(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scores(self: SteeredModel, prompts: Any, options: Any) -> list[list[float]]:
        assert all(list(labels) == list("12345") for labels in options)
        calls.append(len(prompts))
        if len(calls) == stop:
            raise KeyboardInterrupt
        return [[-100.0, -100.0, 0.0, 0.0 if "boy" in p.text else -100.0, -100.0] for p in prompts]

    monkeypatch.setattr(SteeredModel, "option_log_probs", scores)
    monkeypatch.setattr(
        SteeredModel,
        "continuations",
        lambda self, prompt, options: [[100 + int(o)] for o in options],
    )
    calls: list[int] = []
    config = FilmsConfig(data, model="tiny-qwen2-vl", out=data.parent / "run", batch_size=1)
    stop = 3
    with pytest.raises(KeyboardInterrupt):
        ranking(config)
    stop = 0
    table, _ = ranking(config)
    assert len(calls) == 5  # four films, and the one at which it was stopped again
    assert table["score"].tolist()[:4] == pytest.approx([3.5, 3.0, 3.0, 3.0])
    assert table["title"][0] == "The Bet"
