"""LIMP: language model-based inverse multi-agent planning (MuMA-ToM paper, section 4, appendix 11).

A run gathers each episode once, judges the questions one by one, and keeps both in journals. Where
people talk, the utterances are evidence and the film shows what the one who asks does; where nobody
talks, the text tells one person's actions and the film the other's, as in the released code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.core.console import Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import claims, fingerprint
from sally_anne.core.media import MOST_PIXELS
from sally_anne.core.processes import within_memory
from sally_anne.data.items import Question
from sally_anne.data.media import read_clip
from sally_anne.data.muma_tom import MUMA_TOM, People, cleaned, people
from sally_anne.data.read import Field, read_json
from sally_anne.harness import limp_prompts as ask
from sally_anne.harness import planning
from sally_anne.harness.config import check_second
from sally_anne.harness.limp_prompts import EPISODE, Episode, Hypothesis, Person
from sally_anne.harness.method_config import LimpConfig
from sally_anne.harness.model import Prompt
from sally_anne.harness.parse import parse_choice
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel

GATHERED, CHOICES = "episodes.jsonl", "choices.jsonl"
# The most tokens of a reply that is one letter.
LETTER = 16
# A text, or a list of actions.
Account = str | tuple[str, ...]
# The reply to a text, and frames with it ``uint8 [F, height, width, 3]``.
Write = Callable[..., str]


def persons(items: Iterable[Question]) -> dict[str, People]:
    """Who each episode's questions are about; HarnessError if they name no two persons."""
    texts: dict[str, list[str]] = {}
    for item in items:
        texts.setdefault(item.group, []).extend([item.question, *(o.text for o in item.options)])
    named = {group: who for group, wording in texts.items() if (who := people(wording))}
    if unknown := [group for group in texts if group not in named]:
        raise HarnessError(
            f"episode {unknown[0]}: its questions do not say whose mind they are about and who the "
            "other person is; LIMP knows the official wording"
        )
    return named


def gather(
    question: Question,
    who: People,
    write: Write,
    account: Callable[[Question, str], Account],
    prompts: Mapping[str, str] = ask.PROMPTS,
) -> Episode:
    """The episode that a question is about; ``account`` says what its film shows of a person.

    HarnessError if the text names neither of the two.
    """
    context, names = question.context, (who.subject, who.other)
    said: dict[str, tuple[str, ...]] = {}
    done: dict[str, tuple[str, ...]] = {}
    watched = who.other
    if context.dialogue:
        lines = [line.partition(": ") for line in context.dialogue.splitlines()]
        said = {n: tuple(text for speaker, _, text in lines if speaker == n) for n in names}
    else:
        actor = actor_of(context.actions, who, question.group)
        (watched,) = {*names} - {actor}
        asked = prompts["text"].format(account=context.actions, name=actor)
        done[actor] = ask.read_list(write(asked))
    seen = account(question, watched)
    if isinstance(seen, str):
        known = context.dialogue or context.actions
        seen = ask.read_list(write(prompts["film"].format(account=seen, name=watched, known=known)))
    done[watched] = seen
    parts = {name: Person(done.get(name, ()), said.get(name, ())) for name in names}
    asked = prompts["initial"].format(actions=ask.actions_of(parts))
    return Episode(parts, ask.read_list(write(asked)))


def actor_of(text: str, who: People, episode: str) -> str:
    """Whose actions a text tells: the person whom it names first; HarnessError if it names none."""
    named = re.search(rf"\b(?:{re.escape(who.subject)}|{re.escape(who.other)})\b", text)
    if named is None:
        raise HarnessError(f"episode {episode}: its text names neither {' nor '.join(who)}")
    return named[0]


def read_accounts(path: Path, episodes: Iterable[str]) -> dict[str, Account]:
    """What the films of these episodes show, from a file in the form of actions_extracted.json.

    The published file holds prompts alone; its fields ``action`` are to be filled in.
    """
    entries = read_json(path)

    def account(actions: Field) -> Account:
        listed = isinstance(actions.value, list) and tuple(map(cleaned, actions.items()))
        return listed or cleaned(actions)

    return {episode: account(entries.get(episode).get("action")) for episode in episodes}


# --- Options as hypotheses -----------------------------------------------------------------------

_GIVEN_GOAL = re.compile(r"\bif \w+ has been trying to (help|hinder) \w+")
_KNOWN_PLACE = re.compile(r"\bassuming that \w+ knows (what is [^,]+)")
_BELIEVED = re.compile(r"\w+ believed that (there (?:was|were|is|are) .+?)\.?")
_HELPED = re.compile(r"\w+ has been trying to help \w+ (?:to )?(?:locate|find) (?P<thing>.+?)\.?")
_HINDERED = re.compile(r"\w+ has been trying to prevent \w+ from \w+ing (?P<thing>.+?)\.?")
_AIMS = (_HELPED, _HINDERED)
_INDIFFERENT = re.compile(r"\w+ was indifferent towards \w+['’]s? goals?\.?")
_MOVED = r": \w+ (?:intentionally )?moved .+ to (?P<aim>help|hinder) \w+\.?"
_LEFT = re.compile(
    r"\w+ believed that \w+ placed the (?P<thing>.+?) at \w+ desired location" + _MOVED
)
_WANTED = re.compile(r"\w+ believed that \w+ want(?:s|ed) to (?P<wish>(?:place|put) .+?)" + _MOVED)
_UNKNOWN = re.compile(r"\w+ doesn['’]t know \w+['’]s? goal .*")
_PREAMBLE = re.compile(r"^When giving information, ")


def by_rules(question: Question, who: People, episode: Episode) -> dict[str, Hypothesis] | None:
    """The hypothesis of each option, by label; None if the wording of one is not known.

    "Knows what is in the box" and "at the desired location" mean what the episode has there.
    """
    wordings = {o.label: _PREAMBLE.sub("", o.text) for o in question.options}
    minds = {k: _by_wording(text, question, who, episode) for k, text in wordings.items()}
    known = {label: mind for label, mind in minds.items() if mind}
    return known if len(known) == len(minds) else None


def _by_wording(
    option: str, question: Question, who: People, episode: Episode
) -> Hypothesis | None:
    other, find = who.other, f"to find what {who.other} asks for"
    neither = f"neither help nor hinder {other}"
    if given := _GIVEN_GOAL.search(question.question):
        believed = _BELIEVED.fullmatch(option)
        return Hypothesis(believed[1], f"{given[1]} {other}", find) if believed else None
    if known := _KNOWN_PLACE.search(question.question):
        aims = ((_HELPED, f"help {other}"), (_HINDERED, f"hinder {other}"), (_INDIFFERENT, neither))
        aim = next((aim for wording, aim in aims if wording.fullmatch(option)), None)
        # What is known of the thing asked for: where it was, as far as the episode tells.
        named = [_PREAMBLE.sub("", one.text) for one in question.options]
        things = {m["thing"] for text in named for form in _AIMS if (m := form.fullmatch(text))}
        facts = [fact for fact in episode.initial if any(_names(fact, thing) for thing in things)]
        belief = " ".join(facts) or f"{who.subject} knows {known[1]}"
        return Hypothesis(belief, aim, find) if aim else None
    if _UNKNOWN.fullmatch(option):
        return Hypothesis("", neither, f"something that {who.subject} does not know")
    if wish := _WANTED.fullmatch(option):
        return Hypothesis("", f"{wish['aim']} {other}", f"to {wish['wish']}")
    if left := _LEFT.fullmatch(option):
        place = _left_at(left["thing"], other, episode)
        return Hypothesis("", f"{left['aim']} {other}", f"to have the {left['thing']} {place}")
    return None


def _left_at(thing: str, name: str, episode: Episode) -> str:
    """Where a person last put a thing, as the actions have it."""
    for action in reversed(episode.people[name].actions):
        put = re.search(r"\b(?:put|puts|place|places|placed|set|sets|move|moves|moved)\b", action)
        where = re.search(r"\b(?:on|onto|in|into|inside|at)\b.*", action)
        if put and where and _names(action, thing):
            return where[0].rstrip(". ")
    return f"stay where {name} put it"


def _names(text: str, thing: str) -> bool:
    """Whether a text names a thing, in whole words and without its article."""
    bare = re.sub(r"^(?:the|an?|some) ", "", thing)
    return re.search(rf"\b{re.escape(bare)}\b", text, re.IGNORECASE) is not None


# --- Run -----------------------------------------------------------------------------------------


def answer(
    item: Question,
    who: People,
    episode: Episode,
    model: Callable[[Sequence[str]], list[planning.LikelyUnlikely]],
    write: Write,
    latents: str = "rules",
    utterance_goal: bool = True,
    prompts: Mapping[str, str] = ask.PROMPTS,
) -> planning.Answer:
    """How likely is what a person says and does under each option, or why that cannot be judged?

    ``model`` judges prompts; ``write`` reads options that the rules do not know, or all of them.
    """
    if episode.people[who.subject] == Person():
        return {"problem": f"nothing is known of what {who.subject} says or does"}
    minds = by_rules(item, who, episode) if latents == "rules" else None
    if minds is None:
        asked = prompts["hypotheses"].format(
            **{"initial": "\n".join(episode.initial), "actions": ask.actions_of(episode.people)},
            **{"question": item.question, "name": who.subject, "other": who.other},
            options="\n".join(f"{option.label}. {option.text}" for option in item.options),
        )
        reply = write(asked)
        minds = ask.read_hypotheses(reply, [option.label for option in item.options])
    if minds is None:
        return {"problem": "the options' wording was not understood"}
    how = (who, episode, utterance_goal, prompts)
    requests = {label: ask.judge_steps(mind, *how) for label, mind in minds.items()}
    return planning.judge(model, requests, minds)


@claims("a LIMP run")
@within_memory("use a smaller --batch-size, or say what films show with --actions")
def run(
    config: LimpConfig,
    vector: SteeringVector | None = None,
    console: Console | None = None,
    loaded: LoadedModel | None = None,
) -> pd.DataFrame:
    """Do the whole run in ``config.folder``; what is there is not asked again.

    ``vector`` steers the likelihoods in place of the one in ``config.steer``, ``loaded`` is the
    model if it is loaded already. Returns the table of :func:`sally_anne.harness.planning.score`.
    """
    check_second(config, "perceiver")
    if config.perceiver is not None and config.actions is not None:
        raise HarnessError("--perceiver watches films, --actions says what they show: give one")
    prompts = ask.prompts_of(config.templates)
    with planning.Planning(config, vector, MUMA_TOM, console) as session:
        items = session.items
        who, first = persons(items), {item.group: item for item in items}
        accounts = None if config.actions is None else read_accounts(config.actions, first)
        if missing := [i for i in first.values() if accounts is None and i.media[0].path is None]:
            raise HarnessError(
                f"episode {missing[0].group}: its film is not in {config.data}; put it there, or "
                "give what films show with --actions"
            )
        reading = session.open(loaded, videos=accounts is None and config.perceiver is None)
        judging, watching = session.judging(), session.open_second("perceiver", videos=True)
        gathering = {
            **reading.about,
            **({} if watching is reading else {"perceiver": watching.about}),
            **({} if config.max_pixels is None else {"max_pixels": config.max_pixels}),
            **({} if config.templates is None else {"templates": fingerprint(prompts.items())}),
            "max_new_tokens": config.max_new_tokens,
            "data": fingerprint([[(i.item_id, i.question, i.options, i.context) for i in items]]),
            "actions": None if accounts is None else fingerprint([sorted(accounts.items())]),
        }
        forms: dict[str, Any] = {"latents": config.latents, "utterance_goal": config.utterance_goal}
        about = gathering | judging.about | forms
        model = partial(planning.judge_likely, judging, config.batch_size)

        def write(text: str, clip: np.ndarray | None = None, most: int | None = None) -> str:
            reader = reading if clip is None else watching
            return reader.generate([Prompt(text, clip)], most or config.max_new_tokens)[0]

        def account(item: Question, name: str) -> Account:
            if accounts is not None:
                return accounts[item.group]
            most = config.max_pixels or MOST_PIXELS
            clip = read_clip(item.media[0], "full", MUMA_TOM.sampling, most)
            return write(prompts["watch"].format(name=name), clip.frames)

        def gathered(item: Question) -> planning.Answer:
            return {"episode": asdict(gather(item, who[item.group], write, account, prompts))}

        def judged(item: Question) -> planning.Answer:
            group = item.group
            return answer(item, who[group], episodes[group], model, write, **forms, prompts=prompts)

        def chosen(item: Question) -> planning.Answer:
            judged = answers[item.item_id].get("judged", {})
            beliefs = planning.posterior_of_judgements(judged)[config.mode]
            if config.mode == "log":
                beliefs = {label: math.exp(value) for label, value in beliefs.items()}
            return {"reply": write(ask.choose(item, beliefs), most=LETTER) if beliefs else ""}

        by_id = {item.item_id: item for item in items}
        kept = session.answers(GATHERED, gathering, first, partial(map, gathered))
        episodes = {k: EPISODE.validate_python(one["episode"]) for k, one in kept.items()}
        answers = session.answers(planning.ANSWERS, about, by_id, partial(map, judged))
        table = planning.score(items, answers, planning.posterior_of_judgements)
        if config.choice == "model":
            own = about | {"mode": config.mode}
            replies = session.answers(CHOICES, own, by_id, partial(map, chosen))
            labels = (parse_choice(replies[name]["reply"], i.options) for name, i in by_id.items())
            pairs = zip(labels, items, strict=True)
            marks = [planning.marked("model", label, item) for label, item in pairs]
            table = table.join(pd.DataFrame(marks, index=table.index))
        return session.finish(table, about)
