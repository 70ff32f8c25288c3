"""LIMP: language model-based inverse multi-agent planning (MuMA-ToM paper, section 4, appendix 11).

A run gathers each episode once, judges the questions one by one, and keeps both in journals. Where
people talk, the utterances are evidence and the film shows what the one who asks does; where nobody
talks, the text tells one person's actions and the film the other's, as in the released code. The
prompts are our own.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import Journal, claims, fingerprint, save_config
from sally_anne.data.items import Question
from sally_anne.data.media import MOST_PIXELS, read_clip
from sally_anne.data.muma_tom import MUMA_TOM, People, cleaned, people
from sally_anne.data.read import Field, read_json
from sally_anne.harness.chat_endpoint import Budget, open_endpoint
from sally_anne.harness.config import check_second, saved_options
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.parse import parse_choice
from sally_anne.harness.planning import (
    ANSWERS,
    Answer,
    AnyModel,
    LikelyUnlikely,
    answer_all,
    begin,
    finish,
    judge,
    judge_likely,
    keep_usage,
    likely_prompt,
    marked,
    open_models,
    posterior_of_judgements,
    score,
)
from sally_anne.harness.planning_config import Latents, LimpConfig, Mode
from sally_anne.hooks.batch_size import within_memory
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model

GATHERED, CHOICES, EPISODES = "episodes.jsonl", "choices.jsonl", "episodes.json"
# The most tokens of a reply that is one letter.
LETTER = 16
Account = str | tuple[str, ...]
# The reply to a text, and frames with it ``uint8 [F, height, width, 3]``.
Write = Callable[..., str]
# How the model judges each of some prompts.
LikelihoodModel = Callable[[Sequence[str]], list[LikelyUnlikely]]


@dataclass(frozen=True)
class Person:
    """One person's part: what is done and what is said, each in the order of time."""

    actions: tuple[str, ...] = ()
    utterances: tuple[str, ...] = ()


@dataclass(frozen=True)
class Episode:
    """One interaction of two people by name, and what was where before anybody acted."""

    people: Mapping[str, Person]
    initial: tuple[str, ...] = ()

    def person(self, name: str) -> Person:
        """One of the two."""
        return self.people[name]


@dataclass(frozen=True)
class Hypothesis:
    """The latent variables of one option (appendix 11.3); empty where it leaves one open.

    Attributes:
        belief: what the person takes to be where.
        social_goal: what is intended towards the other: help, hinder, or neither.
        believed_goal: what the person thinks that the other wants.
    """

    belief: str = ""
    social_goal: str = ""
    believed_goal: str = ""


VARIABLES = tuple(variable.name for variable in fields(Hypothesis))


@dataclass(frozen=True)
class Step:
    """An ``utterance`` or ``action`` to be judged, and what the same person did before it."""

    kind: str
    text: str
    before: tuple[str, ...] = ()


def steps(person: Person) -> tuple[Step, ...]:
    """What a person says and does, utterances first, as in the paper's released code."""
    utterances = [Step("utterance", text) for text in person.utterances]
    actions = [Step("action", text, person.actions[:i]) for i, text in enumerate(person.actions)]
    return (*utterances, *actions)


# --- Prompts -------------------------------------------------------------------------------------

_LIST = "Reply with a JSON list of short texts and nothing else."
_RULES = {
    "utterance": (
        "Who helps says what they take to be true. Who hinders says something else than what they "
        "take to be true."
    ),
    "action": (
        "Who helps brings things to where they think the other one wants them. Who hinders takes "
        "things away from there. Walking about fits any aim."
    ),
}


def watch(name: str) -> str:
    """With frames: what does a person do?"""
    return (
        f"These are frames of a film from a home, in order. What does {name} do? Tell each action "
        "in order on one line: where from things are taken, where they are put, what is opened "
        "and closed. A raised arm often opens something or takes something. If a thing cannot be "
        'made out, call it "something".'
    )


def list_actions(account: str, name: str, known: str = "") -> str:
    """One person's actions out of an account; ``known`` names what could not be made out in it."""
    known = f"What else is known:\n{known}\n\n" if known else ""
    return (
        f"{known}Account:\n{account}\n\nList what {name} does there, in order, without the name "
        "and without what others do or what is said: walks to a place, opens or closes something, "
        "takes something from a place, puts something somewhere. Name the room where it is clear, "
        f'and the things themselves rather than "it" or "something". {_LIST}'
    )


def list_initial(episode: Episode) -> str:
    """What was where before anybody acted."""
    return (
        f"{_actions_of(episode)}\n\nWhere were the things that are taken here before anybody "
        'acted? One statement a thing, like "There is a cup on the table." ' + _LIST
    )


def list_hypotheses(question: Question, who: People, episode: Episode) -> str:
    """What each option says about a mind, where its wording is unknown."""
    initial = "\n".join(episode.initial)
    options = "\n".join(f"{option.label}. {option.text}" for option in question.options)
    return (
        f"At the beginning:\n{initial}\n{_actions_of(episode)}\n\n"
        f"Question: {question.question}\n{options}\n\nFor each option, tell what it says of "
        f"{who.subject}: belief (what {who.subject} takes to be where), social_goal (help, hinder "
        f"or neither, towards {who.other}), believed_goal (what {who.subject} thinks that "
        f"{who.other} wants). Reply with a JSON object by option label, with these three fields."
    )


def judge_step(
    step: Step, hypothesis: Hypothesis, who: People, episode: Episode, utterance_goal: bool = True
) -> str:
    """Is a step likely under a hypothesis?

    An utterance is judged by what its speaker believes and was asked, and with ``utterance_goal``
    by what the other is thought to want; an action by all that the other did and the person did
    before, as in the released code.
    """
    lines = [
        f"{who.subject}'s aim towards {who.other}: {hypothesis.social_goal}",
        f"{who.subject} believes: {hypothesis.belief}",
    ]
    if step.kind == "action" or utterance_goal:
        lines.append(f"{who.subject} thinks that {who.other} wants: {hypothesis.believed_goal}")
    known = [line for line in lines if not line.endswith(": ")]
    other = episode.person(who.other)
    if step.kind == "utterance":
        known += [f'{who.other} said: "{text}"' for text in other.utterances]
        last = f'Then {who.subject} said: "{step.text}"'
    else:
        known += [f"At the beginning: {text}" for text in episode.initial]
        known += [f"{who.other}: {text}" for text in other.actions]
        known += [f"{who.subject}: {text}" for text in step.before]
        last = f"Then {who.subject}: {step.text}"
    return likely_prompt([*known, last], _RULES[step.kind])


def choose(question: Question, beliefs: Mapping[str, float]) -> str:
    """Which option answers the question, given the posterior of each?"""
    options = "\n".join(
        f"{o.label}. {o.text} (probability that this is so: {beliefs[o.label]:.4f})"
        for o in question.options
    )
    return (
        f"Question: {question.question}\n{options}\n\nGo by these probabilities. Reply with the "
        "letter of the option that answers the question, and nothing else."
    )


def _actions_of(episode: Episode) -> str:
    acting = [(name, person) for name, person in episode.people.items() if person.actions]
    return "\n".join("\n- ".join([f"What {name} did:", *p.actions]) for name, p in acting)


# --- Replies -------------------------------------------------------------------------------------

_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d+[.):])\s*")
_NOTHING = {"", "none", "nothing", "n/a", "null", "blank", "[]"}
# A reply that repeats itself up to its last token is no list of actions.
MOST = 40


def read_list(reply: str) -> tuple[str, ...]:
    """The texts of the first list: JSON, Python, bulleted or numbered lines, or one a line.

    At most :data:`MOST`, without empty ones and "none"; immediate repetitions count once.
    """
    for value in _values(reply, "[", "]"):
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return _cleaned(value)
    lines = [line for line in reply.splitlines() if line.strip() and not line.startswith("```")]
    bulleted = [_BULLET.sub("", line) for line in lines if _BULLET.match(line)]
    if bulleted:
        return _cleaned(bulleted)
    if len(lines) == 1:
        lines = re.split(r"(?<=[.;!?])\s+", lines[0])
    return _cleaned(line for line in lines if not line.rstrip().endswith(":"))


def read_hypotheses(reply: str, labels: Sequence[str]) -> dict[str, Hypothesis] | None:
    """Latent variables by label from a JSON or Python object; None if a label is left out."""
    for value in _values(reply, "{", "}"):
        if isinstance(value, dict):
            entries = {
                str(name).casefold().removeprefix("option").strip(" .):("): entry
                for name, entry in value.items()
            }
            minds = {label: _hypothesis_of(entries.get(label.casefold())) for label in labels}
            complete = {label: mind for label, mind in minds.items() if mind}
            if len(complete) == len(labels):
                return complete
    return None


def _hypothesis_of(entry: Any) -> Hypothesis | None:
    if not isinstance(entry, dict):
        return None
    values = {str(name).strip().casefold().replace(" ", "_"): text for name, text in entry.items()}
    texts = [values.get(name) or "" for name in VARIABLES]
    if not all(isinstance(text, str) for text in texts):
        return None
    plain = [" ".join(text.split()) for text in texts]
    mind = Hypothesis(*("" if text.casefold() in _NOTHING else text for text in plain))
    return mind if mind != Hypothesis() else None


def _values(reply: str, opening: str, closing: str) -> Iterator[Any]:
    """JSON or Python values that begin with a bracket, from left to right."""
    decoder = json.JSONDecoder()
    start = reply.find(opening)
    while start >= 0:
        end = start + 1
        try:
            value, end = decoder.raw_decode(reply, start)
            yield value
        except ValueError:
            # A nested object ends at the last bracket rather than at the next one.
            for last in dict.fromkeys((reply.find(closing, start), reply.rfind(closing))):
                if last > start and (value := _python(reply[start : last + 1])) is not None:
                    end = last + 1
                    yield value
                    break
        except RecursionError:  # thousands of brackets
            return
        start = reply.find(opening, end)


def _python(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _cleaned(texts: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for text in texts:
        plain = " ".join(text.split()).strip(" ,;\"'")
        if plain.casefold().rstrip(".") not in _NOTHING and kept[-1:] != [plain]:
            kept.append(plain)
    return tuple(kept[:MOST])


# --- Episodes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sources:
    """Where episodes come from.

    Attributes:
        write: sums up texts and films.
        frames: the frames of a question's film.
        accounts: what films show, by episode; None to watch them.
        parsed: episodes that need no reading.
    """

    write: Write
    frames: Callable[[Question], np.ndarray]
    accounts: Mapping[str, Account] | None = None
    parsed: Mapping[str, Episode] = field(default_factory=dict)


def persons(items: Iterable[Question]) -> dict[str, People]:
    """Who each episode's questions are about; HarnessError if they name no two persons."""
    texts: dict[str, list[str]] = {}
    for item in items:
        texts.setdefault(item.group, []).extend([item.question, *(o.text for o in item.options)])
    named = {group: people(wording) for group, wording in texts.items()}
    if unknown := [group for group, who in named.items() if who is None]:
        raise HarnessError(
            f"episode {unknown[0]}: its questions do not say whose mind they are about and who the "
            "other person is; LIMP knows the official wording"
        )
    return {group: who for group, who in named.items() if who}


def gather(question: Question, who: People, sources: Sources) -> Episode:
    """The episode that a question is about.

    HarnessError if the parsed episode lacks one of the two people, or the text names neither.
    """
    names = (who.subject, who.other)
    if question.group in sources.parsed:
        episode = sources.parsed[question.group]
        if missing := [name for name in names if name not in episode.people]:
            raise HarnessError(f"--parsed, episode {question.group}: it has no {missing[0]}")
        return episode
    context = question.context
    if context.dialogue:
        lines = [line.partition(": ") for line in context.dialogue.splitlines()]
        parts = {
            name: Person(utterances=tuple(text for speaker, _, text in lines if speaker == name))
            for name in names
        }
        watched = who.other
    else:
        actor = actor_of(context.actions, who, question.group)
        watched = who.other if actor == who.subject else who.subject
        actions = read_list(sources.write(list_actions(context.actions, actor)))
        parts = {name: Person(actions if name == actor else ()) for name in names}
    parts[watched] = replace(parts[watched], actions=_watched(question, watched, sources))
    episode = Episode(parts)
    return replace(episode, initial=read_list(sources.write(list_initial(episode))))


def actor_of(text: str, who: People, episode: str) -> str:
    """Whose actions a text tells: the person whom it names first; HarnessError if it names none."""
    named = re.search(rf"\b(?:{re.escape(who.subject)}|{re.escape(who.other)})\b", text)
    if named is None:
        raise HarnessError(
            f"episode {episode}: its text names neither {who.subject} nor {who.other}; give the "
            "episode with --parsed"
        )
    return named[0]


def _watched(question: Question, name: str, sources: Sources) -> tuple[str, ...]:
    """What a person does in the film; things that cannot be made out are named by the text."""
    if sources.accounts is not None:
        account = sources.accounts[question.group]
    else:
        account = sources.write(watch(name), sources.frames(question))
    if isinstance(account, tuple):
        return account
    known = question.context.dialogue or question.context.actions
    return read_list(sources.write(list_actions(account, name, known)))


# --- Options as hypotheses -----------------------------------------------------------------------

_GIVEN_GOAL = re.compile(r"\bif \w+ has been trying to (help|hinder) \w+")
_KNOWN_PLACE = re.compile(r"\bassuming that \w+ knows (what is [^,]+)")
_BELIEVED = re.compile(r"\w+ believed that (there (?:was|were|is|are) .+?)\.?")
_HELPED = re.compile(r"\w+ has been trying to help \w+ (?:to )?(?:locate|find) (?P<thing>.+?)\.?")
_HINDERED = re.compile(r"\w+ has been trying to prevent \w+ from \w+ing (?P<thing>.+?)\.?")
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
    minds = {}
    for option in question.options:
        mind = _by_wording(_PREAMBLE.sub("", option.text), question, who, episode)
        if mind is None:
            return None
        minds[option.label] = mind
    return minds


def by_model(
    question: Question, who: People, episode: Episode, write: Write
) -> dict[str, Hypothesis] | None:
    """The same as a model reads it; None if its reply leaves one out."""
    reply = write(list_hypotheses(question, who, episode))
    return read_hypotheses(reply, [option.label for option in question.options])


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
        return Hypothesis(_knowledge(question, who, episode, known[1]), aim, find) if aim else None
    if _UNKNOWN.fullmatch(option):
        return Hypothesis("", neither, f"something that {who.subject} does not know")
    if wish := _WANTED.fullmatch(option):
        return Hypothesis("", f"{wish['aim']} {other}", f"to {wish['wish']}")
    if left := _LEFT.fullmatch(option):
        place = _left_at(left["thing"], other, episode)
        return Hypothesis("", f"{left['aim']} {other}", f"to have the {left['thing']} {place}")
    return None


def _knowledge(question: Question, who: People, episode: Episode, place: str) -> str:
    """What is known about the thing asked for: where it was, as far as the episode tells."""
    options = [_PREAMBLE.sub("", option.text) for option in question.options]
    matches = [pattern.fullmatch(text) for text in options for pattern in (_HELPED, _HINDERED)]
    things = {match["thing"] for match in matches if match}
    facts = [fact for fact in episode.initial if any(_names(fact, thing) for thing in things)]
    return " ".join(facts) if facts else f"{who.subject} knows {place}"


def _left_at(thing: str, name: str, episode: Episode) -> str:
    """Where a person last put a thing, as the actions have it."""
    for action in reversed(episode.person(name).actions):
        put = re.search(r"\b(?:put|puts|place|places|placed|set|sets|move|moves|moved)\b", action)
        where = re.search(r"\b(?:on|onto|in|into|inside|at)\b.*", action)
        if put and where and _names(action, thing):
            return where[0].rstrip(". ")
    return f"stay where {name} put it"


def _names(text: str, thing: str) -> bool:
    """Whether a text names a thing, in whole words and without its article."""
    bare = re.sub(r"^(?:the|an?|some) ", "", thing)
    return re.search(rf"\b{re.escape(bare)}\b", text, re.IGNORECASE) is not None


# --- Agreement of both readings ------------------------------------------------------------------

# All words but those in which statements of the same thing differ.
_WORD = re.compile(
    r"\b(?!(?:an?|the|some|this|that|there|it|is|are|was|were|be|been|to|of|in|on|at|inside|into|onto"
    r"|will|want(?:s|ed)?|places?|placed|puts?|ha[sd]|have|stay|located|believe[sd]?)\b)[\w'’]+"
)
# What the rules say where an option leaves open what exactly is intended or known.
_GENERAL = re.compile(r"\basks for$|\bdoes not know$|\bknows what is\b")
_AIMS = (
    ("neither", re.compile(r"\b(?:neither|indifferen|independen|neutral|no(?:ne|t)?\b)", re.I)),
    ("hinder", re.compile(r"\b(?:hinder|prevent|obstruct|harm)", re.I)),
    ("help", re.compile(r"\b(?:help|assist|support)", re.I)),
)


def agreement(answer: Answer) -> dict[str, bool] | None:
    """Whether rules and model read the same in all options, by variable; None if incomparable.

    Aims are compared by help, hinder or neither, all else by its content words. What the rules
    say in general terms is not compared.
    """
    same: dict[str, bool] = {}
    rules, model = answer.get("rules", {}), answer.get("hypotheses", {})
    for name in VARIABLES:
        pairs = [(mind[name], model[label][name]) for label, mind in rules.items()]
        pairs = [pair for pair in pairs if pair[0] and not _GENERAL.search(pair[0])]
        if pairs:
            same[name] = all(_content(name, a) == _content(name, b) for a, b in pairs)
    return same or None


def _content(name: str, text: str) -> Any:
    if name == "social_goal":
        return next((aim for aim, pattern in _AIMS if pattern.search(text)), text)
    return frozenset(_WORD.findall(text.casefold()))


def agreement_shares(agreements: Iterable[dict[str, bool] | None]) -> dict[str, Any]:
    """How many questions were compared (``n``), and in which shares all and each agree."""
    compared = [entry for entry in agreements if entry]
    flags = {"all": [all(entry.values()) for entry in compared]}
    flags |= {name: [e[name] for e in compared if name in e] for name in VARIABLES}
    return {"n": len(compared)} | {name: sum(f) / len(f) for name, f in flags.items() if f}


# --- Files ---------------------------------------------------------------------------------------


def to_json(episode: Episode) -> dict[str, Any]:
    """An episode as :func:`from_json` reads it."""
    return json.loads(json.dumps(asdict(episode)))


def from_json(field: Field) -> Episode:
    """An episode from ``{"initial": [...], "people": {name: {"actions", "utterances"}}}``.

    Lists may be left out; a RecordError names file, episode and field.
    """
    entries = field.get("people").entries()
    if len(entries) != 2:
        field.get("people").fail(f"must name two people, names {len(entries)}")
    people = {
        name: Person(_texts(entry, "actions"), _texts(entry, "utterances"))
        for name, entry in entries.items()
    }
    return Episode(people, _texts(field, "initial"))


def read_entries(path: Path) -> dict[str, Field]:
    """The entries of a JSON file by episode, not yet checked."""
    entries = read_json(path).entries()
    return {number: Field(e.value, f"{path}, episode {number}") for number, e in entries.items()}


def account_of(entry: Field) -> Account:
    """What a film shows: field ``action`` of an entry, a text or a list of texts."""
    actions = entry.get("action")
    if actions.value in ("", []):
        actions.fail("is empty, as in the published file, which holds prompts alone; fill it in")
    if isinstance(actions.value, list):
        return tuple(cleaned(item) for item in actions.items())
    return cleaned(actions)


def _texts(entry: Field, name: str) -> tuple[str, ...]:
    entry.entries()
    return tuple(cleaned(item) for item in entry.get(name).items()) if entry.has(name) else ()


def accounts_of(
    config: LimpConfig, items: Sequence[Question], parsed: Mapping[str, Episode]
) -> dict[str, Account] | None:
    """What the films of the chosen episodes show; None if they are to be watched."""
    todo = {item.group: item for item in items if item.group not in parsed}
    if config.actions is None:
        for group, item in todo.items():
            if not any(media.path for media in item.media):
                raise HarnessError(
                    f"episode {group}: its film is not in {config.data}; put it there, or give "
                    "what films show with --actions, or whole episodes with --parsed"
                )
        return None
    entries = read_entries(config.actions)
    if missing := [group for group in todo if group not in entries]:
        raise HarnessError(f"--actions {config.actions}: has no entry for episode {missing[0]}")
    return {group: account_of(entries[group]) for group in todo}


# --- Run -----------------------------------------------------------------------------------------


def video_frames(item: Question, most_pixels: int | None = None) -> np.ndarray:
    """The frames that the benchmark takes, ``uint8 [F, height, width, 3]``."""
    return read_clip(item.media[0], "full", MUMA_TOM.sampling, most_pixels or MOST_PIXELS).frames


@claims("a LIMP run")
@within_memory("use a smaller --batch-size, or say what films show with --actions")
def run(
    config: LimpConfig,
    vector: SteeringVector | None = None,
    console: Console | None = None,
    loaded: LoadedModel | None = None,
    frames: Callable[[Question], np.ndarray] | None = None,
) -> pd.DataFrame:
    """Do the whole run in ``config.folder``; what is there is not asked again.

    ``vector`` steers the likelihoods in place of the one in ``config.steer``, ``loaded`` is the
    model if it is loaded already, and ``frames`` gives a question's frames in place of its film.
    Returns the table of :func:`sally_anne.harness.planning.score`.
    """
    console = console or Console()
    check_second(config, "perceiver")
    if config.perceiver is not None and config.actions is not None:
        raise HarnessError(
            "--perceiver watches films, and --actions says what they show: leave one out"
        )
    vector, items, subset = begin(config, vector, MUMA_TOM, console)
    groups = persons(items)
    entries = {} if config.parsed is None else read_entries(config.parsed)
    parsed = {number: from_json(entry) for number, entry in entries.items()}
    accounts = accounts_of(config, items, parsed)
    watched = accounts is None and not groups.keys() <= parsed.keys()
    budget = Budget(config.endpoint_limit)
    models = open_models(config, vector, loaded, budget, watched and config.perceiver is None)
    perceiver = _open_perceiver(config, budget) if watched else None
    others = {} if perceiver is None else {"perceiver": perceiver}
    read = sorted((n, to_json(e)) for n, e in parsed.items())
    gathering = {
        **models.about,
        **{role: model.about for role, model in others.items()},
        **({} if config.max_pixels is None else {"max_pixels": config.max_pixels}),
        "max_new_tokens": config.max_new_tokens,
        "data": fingerprint([[(i.item_id, i.question, i.options, i.context) for i in items]]),
        "actions": fingerprint([sorted(accounts.items())]) if accounts is not None else None,
        "parsed": fingerprint([read]) if parsed else None,
    }
    forms: dict[str, Any] = {"latents": config.latents, "utterance_goal": config.utterance_goal}
    about = gathering | models.judging.about | forms

    def write(text: str, clip: np.ndarray | None = None, most: int = config.max_new_tokens) -> str:
        model = models.reading if clip is None or perceiver is None else perceiver
        return model.generate([Prompt(text, clip)], most)[0]

    frames = frames or partial(video_frames, most_pixels=config.max_pixels)
    sources = Sources(write, frames, accounts, parsed)
    model = partial(judge_likely, models.judging, config.batch_size)
    with ExitStack() as kept, Bars(console) as bar:
        keep_usage(kept, config.folder, {"": models.reading, **others})
        with Journal(config.folder / GATHERED, gathering) as journal:
            save_config(config.folder, saved_options(config))
            task = bar.add_task("episodes", total=len(groups))
            episodes = gather_all(items, sources, journal, lambda: bar.advance(task))
        with Journal(config.folder / ANSWERS, about) as journal:
            judging = bar.add_task("questions", total=len(items))
            advance = partial(bar.advance, judging)
            answers = judge_all(items, episodes, sources, model, journal, advance, **forms)
        table = score(items, answers, posterior_of_judgements)
        if config.choice == "model":
            with Journal(config.folder / CHOICES, about | {"mode": config.mode}) as journal:
                letter = partial(write, most=LETTER)
                chosen = choose_all(items, answers, config.mode, letter, journal)
            marks = [marked("model", label, i) for label, i in zip(chosen, items, strict=True)]
            table = table.join(pd.DataFrame(marks, index=table.index))
    text = json.dumps({n: to_json(e) for n, e in episodes.items()}, indent=2) + "\n"
    write_atomic(config.folder / EPISODES, text.encode())
    further = {}
    if config.latents == "model":
        same = list(map(agreement, answers))
        table["latents_agree"] = [entry and all(entry.values()) for entry in same]
        further = {"latents": agreement_shares(same)}
    choosers = ["model"] if config.choice == "model" else []
    finish(console, config, items, table, models, about, subset, others, choosers, further)
    if shares := further.get("latents"):
        parts = ", ".join(
            f"{k} {100 * shares[k]:.1f} %" for k in ("all", *VARIABLES) if k in shares
        )
        console.print(
            f"the model and the rules read the same in {shares['n']} questions: {parts or 'none'}",
            soft_wrap=True,
        )
    return table


def _open_perceiver(config: LimpConfig, budget: Budget) -> AnyModel | None:
    """Who watches films in the place of the model that reads, if anybody does."""
    if config.perceiver is None:
        return None
    if "://" in config.perceiver:
        return open_endpoint(config, budget, "perceiver")
    own = {"name": config.perceiver, "revision": None}
    return SteeredModel(load_model(**config.opening() | own, videos=True))


def gather_all(
    items: Sequence[Question],
    sources: Sources,
    journal: Journal,
    on_progress: Callable[[], None] = lambda: None,
) -> dict[str, Episode]:
    """The episode of each group; what the open journal holds is not gathered again."""
    who = persons(items)
    episodes: dict[str, Episode] = {}
    for item in {item.group: item for item in items}.values():
        if item.group not in journal.answers:
            episode = gather(item, who[item.group], sources)
            journal.add([{"item_id": item.group, "episode": to_json(episode)}])
        kept = Field(journal.answers[item.group], f"{journal.path}, episode {item.group}")
        episodes[item.group] = from_json(kept.get("episode"))
        on_progress()
    return episodes


def judge_all(
    items: Sequence[Question],
    episodes: Mapping[str, Episode],
    sources: Sources,
    model: LikelihoodModel,
    journal: Journal,
    on_progress: Callable[[], None] = lambda: None,
    latents: Latents = "rules",
    utterance_goal: bool = True,
) -> list[Answer]:
    """The answer to each question; what the open journal holds is not judged again."""
    who = persons(items)

    def answer(item: Question) -> Answer:
        pair, episode = who[item.group], episodes[item.group]
        todo = steps(episode.person(pair.subject))
        if not todo:
            return {"problem": f"nothing is known of what {pair.subject} says or does"}
        rules = by_rules(item, pair, episode)
        by_reading = latents == "model" or rules is None
        minds = by_model(item, pair, episode, sources.write) if by_reading else rules
        if minds is None:
            return {"problem": "the options' wording was not understood"}
        kept: Answer = {"hypotheses": {k: asdict(mind) for k, mind in minds.items()}}
        if by_reading and rules is not None:
            kept["rules"] = {label: asdict(mind) for label, mind in rules.items()}
        requests = {
            label: [judge_step(step, mind, pair, episode, utterance_goal) for step in todo]
            for label, mind in minds.items()
        }
        return judge(model, requests, kept)

    return answer_all(items, journal, answer, on_progress)


def choose_all(
    items: Sequence[Question],
    answers: Sequence[Answer],
    mode: Mode,
    write: Callable[[str], str],
    journal: Journal,
) -> list[str | None]:
    """The option that a model chooses, with the posterior in its prompt; None for none."""
    judged = {item.item_id: a.get("judged", {}) for item, a in zip(items, answers, strict=True)}

    def answer(item: Question) -> Answer:
        posterior = posterior_of_judgements(judged[item.item_id])
        beliefs = posterior.official
        if mode == "log":
            beliefs = {label: math.exp(value) for label, value in posterior.log.items()}
        return {"reply": write(choose(item, beliefs)) if beliefs else ""}

    replies = answer_all(items, journal, answer)
    return [
        parse_choice(reply["reply"], item.options, "robust")
        for item, reply in zip(items, replies, strict=True)
    ]
