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
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import Journal, claims, fingerprint, save_config
from sally_anne.data.items import Question
from sally_anne.data.media import MOST_PIXELS, read_clip
from sally_anne.data.muma_tom import MUMA_TOM, People, cleaned, people
from sally_anne.data.read import read_json
from sally_anne.harness.chat_endpoint import Budget, open_endpoint
from sally_anne.harness.config import check_second, saved_options
from sally_anne.harness.method_config import LimpConfig
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
    keeping,
    likely_prompt,
    marked,
    open_models,
    posterior_of_judgements,
    score,
)
from sally_anne.hooks.batch_size import within_memory
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model

GATHERED, CHOICES = "episodes.jsonl", "choices.jsonl"
# The most tokens of a reply that is one letter.
LETTER = 16
# A text, or a list of actions.
Account = str | tuple[str, ...]
# The reply to a text, and frames with it ``uint8 [F, height, width, 3]``.
Write = Callable[..., str]


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


@dataclass(frozen=True)
class Hypothesis:
    """The latent variables of one option (appendix 11.3); empty where it leaves one open."""

    belief: str = ""
    social_goal: str = ""
    believed_goal: str = ""


EPISODE = TypeAdapter(Episode)


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


def list_initial(parts: Mapping[str, Person]) -> str:
    """What was where before anybody acted."""
    return (
        f"{_actions_of(parts)}\n\nWhere were the things that are taken here before anybody "
        'acted? One statement a thing, like "There is a cup on the table." ' + _LIST
    )


def list_hypotheses(question: Question, who: People, episode: Episode) -> str:
    """What each option says about a mind, where its wording is unknown."""
    initial = "\n".join(episode.initial)
    options = "\n".join(f"{option.label}. {option.text}" for option in question.options)
    return (
        f"At the beginning:\n{initial}\n{_actions_of(episode.people)}\n\n"
        f"Question: {question.question}\n{options}\n\nFor each option, tell what it says of "
        f"{who.subject}: belief (what {who.subject} takes to be where), social_goal (help, hinder "
        f"or neither, towards {who.other}), believed_goal (what {who.subject} thinks that "
        f"{who.other} wants). Reply with a JSON object by option label, with these three fields."
    )


def judge_step(
    step: Step, hypothesis: Hypothesis, who: People, episode: Episode, utterance_goal: bool = True
) -> str:
    """Is a step likely under a hypothesis?

    An utterance is judged by what its speaker believes and was asked (with ``utterance_goal`` also
    by what the other seems to want), an action by what both did before, as in the released code.
    """
    lines = [
        f"{who.subject}'s aim towards {who.other}: {hypothesis.social_goal}",
        f"{who.subject} believes: {hypothesis.belief}",
    ]
    if step.kind == "action" or utterance_goal:
        lines.append(f"{who.subject} thinks that {who.other} wants: {hypothesis.believed_goal}")
    known = [line for line in lines if not line.endswith(": ")]
    other = episode.people[who.other]
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


def _actions_of(parts: Mapping[str, Person]) -> str:
    return "\n".join(
        "\n- ".join([f"What {name} did:", *part.actions])
        for name, part in parts.items()
        if part.actions
    )


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
        entries = {
            str(name).casefold().removeprefix("option").strip(" .):("): entry
            for name, entry in (value.items() if isinstance(value, dict) else ())
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
    texts = [values.get(variable.name) or "" for variable in fields(Hypothesis)]
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


def gather(
    question: Question, who: People, write: Write, account: Callable[[Question, str], Account]
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
        watched = who.other if actor == who.subject else who.subject
        done[actor] = read_list(write(list_actions(context.actions, actor)))
    seen = account(question, watched)
    if isinstance(seen, str):
        # Things that cannot be made out in a film are named by the text.
        known = context.dialogue or context.actions
        seen = read_list(write(list_actions(seen, watched, known)))
    done[watched] = seen
    parts = {name: Person(done.get(name, ()), said.get(name, ())) for name in names}
    return Episode(parts, read_list(write(list_initial(parts))))


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
    accounts: dict[str, Account] = {}
    for episode in episodes:
        actions = Field(read_json(path), str(path)).get(episode).get("action")
        listed = isinstance(actions.value, list) and tuple(map(cleaned, actions.items()))
        accounts[episode] = listed or cleaned(actions)
    return accounts


def frames_of(item: Question, most_pixels: int | None) -> np.ndarray:
    """The frames that the benchmark takes, ``uint8 [F, height, width, 3]``."""
    return read_clip(item.media[0], "full", MUMA_TOM.sampling, most_pixels or MOST_PIXELS).frames


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
    model: Callable[[Sequence[str]], list[LikelyUnlikely]],
    write: Write,
    latents: str = "rules",
    utterance_goal: bool = True,
) -> Answer:
    """How likely is what a person says and does under each option, or why that cannot be judged?

    ``model`` judges prompts; ``write`` reads options that the rules do not know, or all of them.
    """
    todo = steps(episode.people[who.subject])
    if not todo:
        return {"problem": f"nothing is known of what {who.subject} says or does"}
    minds = by_rules(item, who, episode) if latents == "rules" else None
    if minds is None:
        reply = write(list_hypotheses(item, who, episode))
        minds = read_hypotheses(reply, [option.label for option in item.options])
    if minds is None:
        return {"problem": "the options' wording was not understood"}
    requests = {
        label: [judge_step(step, mind, who, episode, utterance_goal) for step in todo]
        for label, mind in minds.items()
    }
    return judge(model, requests, minds)


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
    console = console or Console()
    check_second(config, "perceiver")
    if config.perceiver is not None and config.actions is not None:
        raise HarnessError("--perceiver watches films, --actions says what they show: give one")
    vector, items, subset = begin(config, vector, MUMA_TOM, console)
    who = persons(items)
    first = {item.group: item for item in items}
    accounts = None if config.actions is None else read_accounts(config.actions, first)
    if accounts is None:
        for group, item in first.items():
            if item.media[0].path is None:
                raise HarnessError(
                    f"episode {group}: its film is not in {config.data}; put it there, or give "
                    "what films show with --actions"
                )
    budget = Budget(config.endpoint_limit)
    films_here = accounts is None and config.perceiver is None
    models = open_models(config, vector, loaded, budget, films_here)
    perceiver = None if config.perceiver is None else _open_perceiver(config, budget)
    others = {} if perceiver is None else {"perceiver": perceiver}
    gathering = {
        **models.reading.about,
        **{role: model.about for role, model in others.items()},
        **({} if config.max_pixels is None else {"max_pixels": config.max_pixels}),
        "max_new_tokens": config.max_new_tokens,
        "data": fingerprint([[(i.item_id, i.question, i.options, i.context) for i in items]]),
        "actions": None if accounts is None else fingerprint([sorted(accounts.items())]),
    }
    forms: dict[str, Any] = {"latents": config.latents, "utterance_goal": config.utterance_goal}
    about = gathering | models.judging.about | forms

    def write(text: str, clip: np.ndarray | None = None, most: int = config.max_new_tokens) -> str:
        reader = models.reading if clip is None else perceiver or models.reading
        return reader.generate([Prompt(text, clip)], most)[0]

    def account(item: Question, name: str) -> Account:
        if accounts is not None:
            return accounts[item.group]
        return write(watch(name), frames_of(item, config.max_pixels))

    def gathered(item: Question) -> Answer:
        return {"episode": asdict(gather(item, who[item.group], write, account))}

    def judged(item: Question) -> Answer:
        group = item.group
        return answer(item, who[group], episodes[group], model, write, **forms)

    def chosen(item: Question) -> Answer:
        beliefs = posterior_of_judgements(judgements[item.item_id])[config.mode]
        if config.mode == "log":
            beliefs = {label: math.exp(value) for label, value in beliefs.items()}
        return {"reply": write(choose(item, beliefs), most=LETTER) if beliefs else ""}

    model = partial(judge_likely, models.judging, config.batch_size)
    by_id = {item.item_id: item for item in items}
    with keeping(config.folder, {"": models.reading, **others}), Bars(console) as bar:
        with Journal(config.folder / GATHERED, gathering) as journal:
            save_config(config.folder, saved_options(config))
            task = bar.add_task("episodes", total=len(first))
            found = answer_all(first, journal, gathered, lambda: bar.advance(task))
        episodes = {
            group: EPISODE.validate_python(kept["episode"])
            for group, kept in zip(first, found, strict=True)
        }
        with Journal(config.folder / ANSWERS, about) as journal:
            judging = bar.add_task("questions", total=len(items))
            answers = answer_all(by_id, journal, judged, lambda: bar.advance(judging))
        table = score(items, answers, posterior_of_judgements)
        if config.choice == "model":
            judgements = {i: a.get("judged", {}) for i, a in zip(by_id, answers, strict=True)}
            with Journal(config.folder / CHOICES, about | {"mode": config.mode}) as journal:
                replies = answer_all(by_id, journal, chosen)
            marks = [
                marked("model", parse_choice(reply["reply"], item.options, "robust"), item)
                for item, reply in zip(items, replies, strict=True)
            ]
            table = table.join(pd.DataFrame(marks, index=table.index))
    choosers = ["model"] if config.choice == "model" else []
    finish(console, config, items, table, models, about, subset, others, choosers)
    return table


def _open_perceiver(config: LimpConfig, budget: Budget) -> AnyModel:
    """Who watches films in the place of the model that reads."""
    name = str(config.perceiver)
    if "://" in name:
        return open_endpoint(config, budget, "perceiver")
    own = {"name": name, "revision": None}
    return SteeredModel(load_model(**config.opening() | own, videos=True))
