"""Pairs of belief statements for probes (GridToM paper, appendix H and section 4.4).

The paper takes the belief questions alone and filters by hand for true and false beliefs. Here
both follow from the records: the right option is what the person believes, the description of the
apartment says what is so, and the belief is true if the two agree. Questions whose container is
not described, and those whose published type says otherwise, are left out.

Both statements of a pair come after the very same words. In the published questions the right
statement says "is inside" for all of types 1.1 and 1.2 and "is not inside" for all of 1.3, and
all of 1.3 are false beliefs. Within true beliefs, and within either type, "not" alone tells the
two statements apart; :func:`balanced` keeps as many of one kind as of the other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.items import Question, Setting
from sally_anne.data.mmtom_qa.scenes import Contents
from sally_anne.data.samples import Sample, SampleSet
from sally_anne.data.samples import sample_set as from_samples

# The two statements about one belief, the true one first: labelled inputs on one context.
BeliefPair = tuple[Sample, Sample]
MEANING = {
    "y_p": "does the statement fit the person's belief?",
    "y_o": "does the statement fit reality?",
}
FEATURES = {"says": "word inside or not inside in the statement"}
_GOAL = re.compile(r"If (?P<goal>[^,]+), which one of the following statements is more likely\b")
STATEMENT = re.compile(
    r"(?P<person>.+?) thinks that the (?P<thing>.+?) is (?P<no>not )?inside the (?P<place>.+?)\.?"
)


def sample_set(
    items: Iterable[Question], setting: Setting = "text", split_seed: int = 0
) -> SampleSet:
    """The samples of a probing run: belief pairs of MMToM-QA, :func:`balanced`, split by episode.

    BenchmarkError where a film is not there, or there are too few episodes.
    """
    items = list(items)
    pairs = balanced(belief_pairs(items))
    films = {item.item_id: item.media[0] for item in items if item.media}
    samples = [sample for pair in pairs for sample in pair]
    if setting != "text":
        samples = [replace(sample, video=films[sample.context]) for sample in samples]
        if lacking := [s.context for s in samples if films[s.context].path is None]:
            raise BenchmarkError(
                f"the film of {lacking[0]} is not there; take --setting text, or get it from "
                f"{films[lacking[0]].url}"
            )
    facts = {"task": "mmtom_qa", "setting": setting}
    found = from_samples(samples, "belief pairs of MMToM-QA", split_seed, facts)
    return replace(found, meaning=MEANING, features=FEATURES, content=("says",))


def belief_pairs(items: Iterable[Question]) -> list[BeliefPair]:
    """Pairs of all belief items whose belief is known to be true or false, in their order."""
    asked = (item for item in items if item.tags.get("family") == ("belief",))
    return [pair for pair in map(belief_pair, asked) if pair]


def belief_pair(item: Question) -> BeliefPair | None:
    """The pair of one belief item; None where it is not certain whether the belief is true."""
    read = {o.label: STATEMENT.fullmatch(o.text.strip()) for o in item.options}
    goal = _GOAL.match(item.question)
    # Chance wording is no reason to fail; a pair that cannot be labelled is left out.
    if goal is None or item.answer not in read or len(read) != 2:
        return None
    held = read.pop(item.answer)
    (other,) = read.values()
    parts = [match and match.group("person", "thing", "place") for match in (held, other)]
    if held is None or other is None or parts[0] != parts[1] or held["no"] == other["no"]:
        return None
    so = Contents(item.context.scene).holds(held["place"], held["thing"])
    if so is None:
        return None
    condition = "FB" if bool(held["no"]) == so else "TB"
    if item.tags.get("condition", (condition,)) != (condition,):
        return None
    words = filter(None, (item.context.scene, item.context.actions, f"{goal['goal']}."))
    context = "\n".join(words)

    def sample(statement: re.Match[str]) -> Sample:
        says = "not-inside" if statement["no"] else "inside"
        true = statement is held
        return Sample(
            item_id=f"{item.item_id}/{says}",
            text=f"{context} Belief: {statement[0]}",
            labels={"y_p": true, "y_o": true is (condition == "TB")},
            group=item.group,
            tags={"condition": condition, "says": says},
            context=item.item_id,
        )

    return sample(held), sample(other)


def balanced(pairs: Sequence[BeliefPair]) -> list[BeliefPair]:
    """As many pairs whose true statement says "inside" as pairs where it says "not inside".

    Y_p then does not follow from "not" alone. Y_o can still be guessed by it: in the published
    questions no true belief says "not inside". Only of false beliefs alone (give those) are both
    labels free of it, but there Y_o is the opposite of Y_p. Of those that say the same, as many
    are of either condition as there can be. Which are kept depends on their names alone.
    """
    halves = [[p for p in pairs if p[0].tags["says"] == says] for says in ("inside", "not-inside")]
    count = min(map(len, halves))
    kept: list[BeliefPair] = []
    for half in halves:
        half.sort(key=lambda pair: hashlib.sha256(pair[0].context.encode()).digest())
        true, false = ([p for p in half if p[0].tags["condition"] == c] for c in ("TB", "FB"))
        true = true[: max(count // 2, count - len(false))]
        kept += true + false[: count - len(true)]
    return [pair for pair in pairs if pair in kept]
