"""GridToM's questions: first order, second order, initial belief (paper, section 3), and reality.

Initial beliefs are asked as in the paper's table 3 (``init_belief.py`` of its release): with the
world alone in words, and of the frames those of the question's section. The official wording "What
color room did the red agent walk into?" has two true answers where that agent moves on; the first
room is asked for then, which is the answer, and such items have the tag ``question: reworded``.

The paper has no question about reality. Ours is "At the end of the video, in which room is the red
agent? Choose one: blue or green.", of the participant and the two rooms of the belief question,
asked of the true-belief and of the false-belief version; right is its last room in both.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import fingerprint
from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.narration import InitialQuestion, initial_questions, question_of
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.render import CLIP_SHAPE, FPS, key_frames
from sally_anne.data.gridtom.samples import SplitSeed, belief_question
from sally_anne.data.gridtom.stories import (
    BeliefCase,
    StoryRecord,
    StorySet,
    context_text,
    initial_text,
    initial_ticks,
)
from sally_anne.data.items import Option, Question, Setting
from sally_anne.data.samples import Lineage
from sally_anne.harness import protocols
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.questions import prompts_hash
from sally_anne.harness.tasks import LeftOut, Task, TaskItems, sample_groups, subset_note

Order = Literal["1", "2", "initial", "reality"]
Style = Literal["plain", "json"]
REWORDED = "reworded"
# Of templates: the world in words and the story's caption are the parts of the context.
FIELDS = (
    *("context", "world", "caption", "question", "asked", "options", "labels", "person"),
    *("frames", *protocols.MARKS),
)
_TITLES = {"initial": "initial belief", "reality": "reality"}
# So many stories make a pool of examples.
_STORIES = 48


@dataclass(frozen=True)
class Wording:
    """How questions are put; ``published`` is in the authors' words and order of options."""

    setting: Setting
    style: Style = "plain"
    prompting: protocols.Prompting = "direct"
    template: str | None = None
    published: bool = False

    @classmethod
    def of(cls, config: EvalConfig, protocol: protocols.Protocol | None = None) -> Wording:
        asked = ("question", "asked")
        template = protocols.template_of(config, protocol, config.setting, FIELDS, asked)
        if protocol is not None:
            return cls(config.setting, template=template, published=True)
        return cls(config.setting, config.style, config.prompting, template)


class GridToM(Task):
    options = ("order", "setting", "style", "data_seed", "split_seed")

    def protocol(self, config: EvalConfig, name: str = "") -> protocols.Protocol | None:
        found = super().protocol(
            config, protocols.INITIAL if config.order == "initial" else "gridtom"
        )
        if found and (config.order == "reality" or config.setting not in found.templates):
            raise HarnessError(
                f"--protocol official: the authors of GridToM do not ask --order {config.order} "
                f"with --setting {config.setting}"
            )
        return found

    def folder_words(self, config: EvalConfig) -> list[str]:
        return [config.order, config.setting]

    def answer_tokens(self, config: EvalConfig) -> int:
        return 64 if config.style == "json" else 16

    def load(self, config: EvalConfig, fitted: Mapping[str, Any] | None = None) -> TaskItems:
        stories = open_stories(config.data, config.data_seed)
        new = fitted is not None and config.split in ("auto", "test", samples.PUBLISHED)
        lineage = Lineage.read(fitted, "the vector") if fitted is not None and new else None
        chosen, left_out = choose_stories(config, stories, lineage.seen if lineage else ())
        items = items_of(config, stories, chosen)
        if config.prompting == "few-shot":
            pool = example_stories(stories, chosen, config.shots, config.split_seed)
            examples = items_of(replace(config, setting="text"), stories, pool)
            items = [protocols.with_examples(item, examples, config.shots) for item in items]
        protocol = self.protocol(config)
        about = {name: getattr(config, name) for name in ("order", "setting", "style")}
        about |= {"stories": stories.fingerprint, "protocol": config.protocol}
        if protocol is not None or config.template is not None:
            template = Wording.of(config, protocol).template
            about |= {"template": template, "prompts": fingerprint(i.text for i in items)}
        about |= sample_note(config) | prompts_hash(config, items)
        reworded = sum(REWORDED in item.tags.get("question", ()) for item in items)
        note = f"{reworded} questions ask for the first room, as their own wording has two answers"
        title = _TITLES.get(config.order, f"belief of order {config.order}")
        return TaskItems(
            items,
            about,
            f"{title}, {config.setting}",
            beliefs=config.order != "initial",
            left_out=replace(left_out, known=lineage is not None) if new else None,
            notes=(note if reworded else "", subset_note(items, ("map",), config)),
            departs=protocol.departs if protocol else "",
        )


def sample_note(config: EvalConfig) -> dict[str, str]:
    return {} if config.limit is None else {"drawn": f"over maps, seed {config.limit_seed}"}


def choose_stories(
    config: EvalConfig, stories: StorySet, seen: Collection[str] = ()
) -> tuple[dict[int, str], LeftOut]:
    """Split of each story's number, of those that were not ``seen``; a limit spreads over maps."""
    split = "test" if config.split == "auto" else config.split
    members = samples.members(stories, split, config.split_seed)
    if not members:
        raise HarnessError(samples.why_none(stories, split, config.split_seed))
    left = [i for i in members if stories.identity(i).content not in seen]
    if not left:
        raise HarnessError(
            f"all {len(members)} {split} stories were seen in fitting; give the --split-seed and "
            "--data of the probing run, or other stories"
        )
    rows = [(str(i), {"map": (stories.identity(i).map,)}) for i in left]
    kept = sample_groups(rows, ("map",), config.limit, config.limit_seed)
    chosen = dict.fromkeys((i for i in left if str(i) in kept), split)
    return chosen, LeftOut(len(members) - len(left), len(members))


def example_stories(
    stories: StorySet, asked: Mapping[int, str], shots: int, split_seed: SplitSeed
) -> dict[int, str]:
    """Stories for examples, of another split than is asked; none says what an asked one says."""
    contents = {stories.identity(index).content for index in asked}
    rng = random.Random("examples/0")
    for split in ("train", "validation", "test"):
        members = samples.members(stories, split, split_seed)
        others = [i for i in members if stories.identity(i).content not in contents]
        if split not in asked.values() and len(others) >= shots:
            return dict.fromkeys(rng.sample(others, min(_STORIES, len(others))), split)
    raise HarnessError(f"--shots {shots}: no other split of the data has so many stories")


def items_of(
    config: EvalConfig, stories: StorySet, chosen: Mapping[int, str] | None = None
) -> list[Question]:
    """The items of the chosen stories, by default of the config's whole split."""
    chosen = choose_stories(config, stories)[0] if chosen is None else chosen
    how = Wording.of(config, GridToM().protocol(config))
    return list(items((stories.story(i) for i in chosen), chosen, config.order, how))


def items(
    records: Iterable[StoryRecord], splits: Mapping[int, str], order: Order, how: Wording
) -> Iterator[Question]:
    """The items of the stories whose index has a split, in their order.

    Two of first order a story, four of second, two about reality, three of initial belief.
    """
    for record in records:
        if record.index not in splits:
            continue
        split = splits[record.index]
        if order == "initial":
            yield from _initial(record, split, how)
        else:
            for case in record.cases(2 if order == "2" else 1):
                yield _belief(record, case, split, how, real=order == "reality")


def _belief(
    record: StoryRecord, case: BeliefCase, split: str, how: Wording, real: bool
) -> Question:
    name = case.condition
    if real:
        where = question_of(case.cast, case.reality, 0)
        case, name = replace(case, question=where), f"reality/{name}"
    item_id = f"{record.group}/{name}"
    # Which room stands first must not follow from the answer, nor differ between runs.
    rooms = random.Random(f"options/{item_id}").sample(case.question.options, 2)
    if how.published:
        rooms = list(case.question.options)
    whose = case.cast.protagonist if case.order == 1 and not real else case.cast.participant
    fields = {"world": record.environment, "person": f"the {whose} agent"}
    fields["context"] = context_text(record, case, "omniscient", how.setting)
    fields |= {"question": case.question.question, "asked": belief_question(case, rooms)}
    return _question(
        *(how, record, case, key_frames(case.nodes), rooms, "the room", fields),
        item_id=item_id,
        split=split,
        condition=case.first if case.order == 1 else str(case.second),
        first=case.first,
        answer=case.question.answer,
    )


def _initial(record: StoryRecord, split: str, how: Wording) -> Iterator[Question]:
    case = record.case(1, "FB")
    for number, question in enumerate(record.initial):
        asked, tags = question.question, {}
        if not how.published and _has_two_answers(record, question):
            ours = initial_questions(record.cast, question.choices, record.nodes, record.plot)
            asked, tags = ours[1].question, {"question": (REWORDED,)}
        fields = {"world": record.initial_environment, "person": ""}
        fields["context"] = initial_text(record, question, how.setting)
        # The question itself names the colours.
        fields |= {"question": asked, "asked": asked}
        ticks = initial_ticks(record.nodes, question)
        form = "the colour, or a list of colours"
        yield _question(
            *(how, record, case, ticks, question.choices, form, fields),
            item_id=f"{record.group}/initial/{number}",
            split=split,
            answers=question.answer,
            tags=tags,
        )


def _has_two_answers(record: StoryRecord, question: InitialQuestion) -> bool:
    """Whether it asks which room the participant walked into, and not which first."""
    room = question.answer == (record.cast.visited(record.plot)[0],)
    named = re.search(rf"\b{record.cast.participant}\b", question.question)
    return room and named is not None and not re.search(r"\bfirst\b", question.question, re.I)


def _question(
    how: Wording,
    record: StoryRecord,
    case: BeliefCase,
    ticks: tuple[int, ...],
    choices: Sequence[str],
    form: str,
    fields: Mapping[str, str],
    **known: Any,
) -> Question:
    """A question with its prompts, and the frames numbered ``ticks``; ``form`` is an answer's."""
    options = tuple(Option(choice, choice) for choice in choices)
    # The caption is the context without the world.
    caption = fields["context"].removeprefix(fields["world"]).removeprefix(" ")
    values = {**fields, **protocols.option_fields(options), "caption": caption}
    values |= {"options": "\n".join(choices), **dict.fromkeys(("frames", *protocols.MARKS), "")}
    if how.setting != "text":
        shape = (len(ticks), *CLIP_SHAPE[1:])
        known |= {"clip": partial(case.frames, ticks=ticks), "shape": lambda exact: shape}
        notes = protocols.frame_notes((record.nodes[-1] + 1) / FPS, [tick / FPS for tick in ticks])
        values |= {name: notes[mark] for name, mark in protocols.MARKS.items()}
        values["frames"] = f"{notes[protocols.FRAMES_MARK]}\n"
    own, before, json = how.template is None, "", how.style == "json"
    words = how.template or "{context} Question: {asked} Answer:"
    if own and how.prompting == "cot":
        form = f'a JSON object, whose field "answer" holds {form}' if json else form
        words = f"{{context}}\n\nQuestion: {{asked}}\n{protocols.THINK.format(form=form)}"
    elif own and json:
        words = (
            "{context}\n\nQuestion: {asked}\nReply with a JSON object and nothing else; its field "
            f'"answer" holds {form}.'
        )
    if own and how.prompting == "simtom":
        before = f"{{context}}\n\n{protocols.retell(fields['person'], '{asked}')}"
        words = words.replace("{context}", protocols.known(fields["person"]))
    return Question(
        benchmark="gridtom",
        official="gridtom",
        group=record.group,
        map=record.identity.map,
        question=fields["asked"],
        options=options,
        text=protocols.fill(words, values, known["item_id"]),
        before=protocols.fill(before, values, known["item_id"]),
        reasons=own and how.prompting == "cot",
        **known,
    )
