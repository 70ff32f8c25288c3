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
from dataclasses import dataclass, replace
from typing import Literal

from sally_anne.core.errors import BenchmarkError
from sally_anne.data.items import Media, Question, Setting
from sally_anne.data.mmtom_qa.scenes import Contents
from sally_anne.data.samples import Sample, SampleSet
from sally_anne.data.samples import sample_set as from_samples

Condition = Literal["TB", "FB"]
MEANING = {
    "y_p": "does the statement fit the person's belief?",
    "y_o": "does the statement fit reality?",
}
FEATURES = {"says": "word inside or not inside in the statement"}
_GOAL = re.compile(r"If (?P<goal>[^,]+), which one of the following statements is more likely\b")
STATEMENT = re.compile(
    r"(?P<person>.+?) thinks that the (?P<thing>.+?) is (?P<no>not )?inside the (?P<place>.+?)\.?"
)


@dataclass(frozen=True)
class BeliefPair:
    """The two statements about one belief: what the person believes, and what not.

    Attributes:
        item_id: of the item they come from.
        group: the episode.
        condition: whether the belief is true (TB) or false (FB).
        context: scene, actions and what the person wants, which both statements follow.
        says_inside: whether the person believes that the thing is inside.
        media: the episode's film.
    """

    item_id: str
    group: str
    condition: Condition
    context: str
    true_statement: str
    false_statement: str
    says_inside: bool
    media: Media = Media()

    def samples(self, setting: Setting = "text") -> list[Sample]:
        """The pair as labelled inputs, the true statement first, with the film if multimodal."""
        samples = []
        for statement, held in ((self.true_statement, True), (self.false_statement, False)):
            says = "inside" if self.says_inside is held else "not-inside"
            samples.append(
                Sample(
                    item_id=f"{self.item_id}/{says}",
                    text=f"{self.context} Belief: {statement}",
                    video=None if setting == "text" else self.media,
                    labels={"y_p": held, "y_o": held is (self.condition == "TB")},
                    group=self.group,
                    tags={"condition": self.condition, "says": says},
                    context=self.item_id,
                )
            )
        return samples


def sample_set(
    items: Iterable[Question], setting: Setting = "text", split_seed: int = 0
) -> SampleSet:
    """The samples of a probing run: belief pairs of MMToM-QA, :func:`balanced`, split by episode.

    Raises:
        BenchmarkError: there is no such setting or too few episodes, or a film is not there.
    """
    if setting == "video":
        raise BenchmarkError("MMToM-QA's belief pairs have no setting video; take text")
    pairs = balanced(belief_pairs(items))
    if setting != "text" and (lacking := [p for p in pairs if p.media.path is None]):
        raise BenchmarkError(
            f"the film of {lacking[0].item_id} is not there; take --setting text, or get it from "
            f"{lacking[0].media.url}"
        )
    found = from_samples(
        [sample for pair in pairs for sample in pair.samples(setting)],
        "belief pairs of MMToM-QA",
        split_seed,
        {"task": "mmtom_qa", "setting": setting},
    )
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
    says_inside = not held["no"]
    condition: Condition = "TB" if says_inside == so else "FB"
    if item.tags.get("condition", (condition,)) != (condition,):
        return None
    words = (item.context.scene, item.context.actions, f"{goal['goal']}.")
    return BeliefPair(
        item_id=item.item_id,
        group=item.group,
        condition=condition,
        context="\n".join(filter(None, words)),
        true_statement=held[0],
        false_statement=other[0],
        says_inside=says_inside,
        media=item.media[0] if item.media else Media(),
    )


def balanced(pairs: Sequence[BeliefPair]) -> list[BeliefPair]:
    """As many pairs whose true statement says "inside" as pairs where it says "not inside".

    Y_p then does not follow from "not" alone. Y_o can still be guessed by it: in the published
    questions no true belief says "not inside". Only of false beliefs alone (give those) are both
    labels free of it, but there Y_o is the opposite of Y_p. Of those that say the same, as many
    are of either condition as there can be. Which are kept depends on their names alone.
    """
    halves = [[pair for pair in pairs if pair.says_inside is half] for half in (True, False)]
    count = min(map(len, halves))
    kept = {pair.item_id for half in halves for pair in _of_both_conditions(half, count)}
    return [pair for pair in pairs if pair.item_id in kept]


def _of_both_conditions(pairs: Sequence[BeliefPair], count: int) -> list[BeliefPair]:
    by_name = sorted(pairs, key=lambda pair: hashlib.sha256(pair.item_id.encode()).digest())
    true = [pair for pair in by_name if pair.condition == "TB"]
    false = [pair for pair in by_name if pair.condition == "FB"]
    most_true = max(count // 2, count - len(false))
    chosen = true[:most_true]
    return chosen + false[: count - len(chosen)]
