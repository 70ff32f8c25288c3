"""With an ideal judge LIMP is right, wherever words alone say what was done and said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sally_anne.data.items import BenchmarkItem
from sally_anne.data.muma_tom import load
from sally_anne.harness.inverse_planning.posterior import of_judged
from sally_anne.harness.inverse_planning.results import score
from sally_anne.harness.journal import Journal
from sally_anne.harness.limp.episode import Episode, Person
from sally_anne.harness.limp.pipeline import answer_all, gather_all, persons
from sally_anne.harness.limp.understanding import Sources
from tests.harness.limp.scripted import ScriptedLikelihood, ScriptedWriter
from tests.shared_data import SOURCES, official_data

# The made records of goals are not as one-sided as the published ones; and what is known in
# questions of social goals only a film tells.
TYPES = {"made": {"belief"}, "published": {"belief", "belief_of_goal"}}


def judge(prompt: str) -> tuple[float, float]:
    """Who helps says what they believe, and brings things to where they are wanted."""
    aim = re.search(r"'s aim towards \w+: (\w+)", prompt)[1]
    last = re.search(r"\nThen .*", prompt)[0].casefold()
    said = re.search(r"believes: there (?:was|is|were|are) (?:an? |some )?(.*)", prompt)
    wish = re.search(r"thinks that \w+ wants: to (?:place|put|have) (.*)", prompt)
    if aim == "neither":
        return 0.5, 0.5
    stated = (said[1] if " said: " in last and said else wish[1]).casefold().rstrip(".")
    alike = all(word in last for word in re.findall(r"\w+", stated))
    return (0.9, 0.1) if alike == (aim == "help") else (0.1, 0.9)


def moves(item: BenchmarkItem) -> Person | None:
    """The person asked about, and what the options say that they did."""
    who = persons([item])[item.group]
    for option in item.options:
        if told := re.search(r"to (?:place|put) (the .+?): ", option.text):
            return Person(who.subject, (f"puts {told[1]}",))
    return None


@pytest.mark.parametrize("source", SOURCES)
def test_an_ideal_judge_is_right(source: str, tmp_path: Path) -> None:
    every = load(official_data(source, "muma_tom"))
    items = [item for item in every if set(item.tags["type"]) <= TYPES[source]]
    who = persons(items)
    parsed = {
        item.group: Episode((did, Person(who[item.group].other)))
        for item in items
        if not item.context.dialogue and (did := moves(item))
    }
    talk = {item.group: ("walks about",) for item in items if item.context.dialogue}
    sources = Sources(ScriptedWriter({"": "[]"}), None, talk, parsed)
    with Journal(tmp_path / "e.jsonl", {}) as kept, Journal(tmp_path / "a.jsonl", {}) as journal:
        episodes = gather_all(items, sources, kept)
        answers = answer_all(items, episodes, sources, ScriptedLikelihood(judge), journal)
    table = score(items, answers, of_judged)
    assert (table["problem"] == "").all()
    right = table.groupby("type")["log_correct"].mean()
    assert right["belief"] == 1.0
    # Of the published goals six in 300 have a key that does not go with what their options say.
    assert (right >= 0.98).all(), table[~table["log_correct"]]["item_id"].tolist()
