"""LIMP: language model-based inverse multi-agent planning (MuMA-ToM paper, section 4, appendix 11).

A run gathers each episode once, judges the questions one by one, and keeps both in journals. Where
people talk, the utterances are evidence and the film shows what the one who asks does; where nobody
talks, the text tells one person's actions and the film the other's, as in the released code. The
prompts are our own; files of the user's may stand in their place (docs/protocols.md).
"""

from __future__ import annotations

import ast
import json
import math
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from sally_anne.core.console import Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import claims, fingerprint
from sally_anne.core.media import MOST_PIXELS
from sally_anne.core.processes import within_memory
from sally_anne.data.items import Question
from sally_anne.data.media import read_clip
from sally_anne.data.muma_tom import MUMA_TOM, People, cleaned, people
from sally_anne.data.read import Field, read_json
from sally_anne.harness import planning
from sally_anne.harness.config import check_second
from sally_anne.harness.method_config import LimpConfig
from sally_anne.harness.model import Prompt
from sally_anne.harness.parse import parse_choice
from sally_anne.harness.protocols import read_template
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel

GATHERED, CHOICES = "episodes.jsonl", "choices.jsonl"
LETTER = 16  # tokens of a reply that is one letter, at most
Account = str | tuple[str, ...]
# The reply to a text, and frames with it ``uint8 [F, height, width, 3]``.
Write = Callable[..., str]


@dataclass(frozen=True)
class Person:
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


_LIST = "Reply with a JSON list of short texts and nothing else."
_ACTIONS = (
    "Account:\n{account}\n\nList what {name} does there, in order, without the name and without "
    "what others do or what is said: walks to a place, opens or closes something, takes something "
    "from a place, puts something somewhere. Name the room where it is clear, and the things "
    f'themselves rather than "it" or "something". {_LIST}'
)
# What is asked in each step; without one of the user's "likely" is ``planning.likely_prompt``.
PROMPTS = {
    "watch": (
        "These are frames of a film from a home, in order. What does {name} do? Tell each action "
        "in order on one line: where from things are taken, where they are put, what is opened "
        "and closed. A raised arm often opens something or takes something. If a thing cannot be "
        'made out, call it "something".'
    ),
    "text": _ACTIONS,
    # Things that cannot be made out in a film are named by what else is known.
    "film": "What else is known:\n{known}\n\n" + _ACTIONS,
    "initial": (
        "{actions}\n\nWhere were the things that are taken here before anybody acted? One "
        f'statement a thing, like "There is a cup on the table." {_LIST}'
    ),
    "hypotheses": (
        "At the beginning:\n{initial}\n{actions}\n\nQuestion: {question}\n{options}\n\nFor each "
        "option, tell what it says of {name}: belief (what {name} takes to be where), social_goal "
        "(help, hinder or neither, towards {other}), believed_goal (what {name} thinks that "
        "{other} wants). Reply with a JSON object by option label, with these three fields."
    ),
}
# What a step is judged by, each in a line of its own.
_LINES = {
    "social_goal": "{name}'s aim towards {other}: {}",
    "belief": "{name} believes: {}",
    "believed_goal": "{name} thinks that {other} wants: {}",
    "said": '{other} said: "{}"',
    "initial": "At the beginning: {}",
    "before": "{}",
}
FIELDS = {
    step: [part[1] for part in string.Formatter().parse(text) if part[1]]
    for step, text in PROMPTS.items()
} | {"likely": ["step", "name", "other", *_LINES]}
_SAYING = (
    "Who helps says what they take to be true. Who hinders says something else than what they take "
    "to be true."
)
_DOING = (
    "Who helps brings things to where they think the other one wants them. Who hinders takes "
    "things away from there. Walking about fits any aim."
)


def prompts_of(folder: Path | None) -> dict[str, str]:
    """The prompts by step, of which a folder's ``<step>.txt`` replace ours."""
    if folder is None:
        return PROMPTS
    files = {step: file for step in FIELDS if (file := folder / f"{step}.txt").exists()}
    if not files:
        raise HarnessError(f"--templates {folder}: holds none of {', '.join(FIELDS)} (.txt)")
    own = {k: read_template(f, "--templates", FIELDS[k], [FIELDS[k]]) for k, f in files.items()}
    return PROMPTS | own


def judge_steps(
    mind: Hypothesis,
    who: People,
    episode: Episode,
    utterance_goal: bool = True,
    prompts: Mapping[str, str] = PROMPTS,
) -> list[str]:
    """Is each utterance of a person, and then each action, likely under a hypothesis?

    An utterance is judged by what its speaker believes and was asked, an action by what both did
    before, as in the released code.
    """
    subject, other = (episode.people[name] for name in who)
    names = {"name": who.subject, "other": who.other}
    held: dict[str, Sequence[str]] = {k: [text] * bool(text) for k, text in vars(mind).items()}

    def likely(by: Mapping[str, Sequence[str]], step: str, rule: str) -> str:
        if "likely" in prompts:
            fields = {kind: "\n".join(by.get(kind, ())) for kind in _LINES}
            return prompts["likely"].format(**names, **fields, step=step)
        lines = [form.format(t, **names) for kind, form in _LINES.items() for t in by.get(kind, ())]
        return planning.likely_prompt([*lines, f"Then {step}"], rule)

    asked = held | {"said": other.utterances} | ({} if utterance_goal else {"believed_goal": ()})
    steps = [likely(asked, f'{who.subject} said: "{text}"', _SAYING) for text in subject.utterances]
    before = [f"{who.other}: {text}" for text in other.actions]
    for text in subject.actions:
        step = f"{who.subject}: {text}"
        steps.append(likely(held | {"initial": episode.initial, "before": before}, step, _DOING))
        before.append(step)
    return steps


def choose(question: Question, beliefs: Mapping[str, float]) -> str:
    options = "\n".join(
        f"{o.label}. {o.text} (probability that this is so: {beliefs[o.label]:.4f})"
        for o in question.options
    )
    return (
        f"Question: {question.question}\n{options}\n\nGo by these probabilities. Reply with the "
        "letter of the option that answers the question, and nothing else."
    )


def actions_of(parts: Mapping[str, Person]) -> str:
    done = [[f"What {name} did:", *part.actions] for name, part in parts.items() if part.actions]
    return "\n".join(map("\n- ".join, done))


_BULLET = re.compile(r"^\s*(?:[-*•]\s*|\(?\d+[.):]\s*|\(?[A-Da-d][.)]\s+)")
_NOTHING = {"", "none", "nothing", "n/a", "null", "blank", "[]"}
# A reply that repeats itself up to its last token is no list of actions.
MOST = 40


# A list in brackets; in JSON its texts may hold others.
_BRACKETS = re.compile(r'\[(?:[^\[\]"]|"(?:[^"\\\n]|\\.)*")*\]|\[[^\[\]]*\]')


def read_list(reply: str) -> tuple[str, ...]:
    """At most :data:`MOST` texts of a list: JSON, Python, bulleted or numbered, or one a line."""
    lines = [line for line in reply.splitlines() if line.strip() and not line.startswith("```")]
    listed = [_BULLET.sub("", line) for line in lines if _BULLET.match(line)]
    if len(lines) == 1:
        lines = re.split(r"(?<=[.;!?])\s+", lines[0])
    listed = listed or [line for line in lines if not line.rstrip().endswith(":")]
    listed = [text.strip(" ,;\"“”'") for text in listed]
    for part in reversed(_BRACKETS.findall(reply)):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                value = read(part)
                listed = value if all(isinstance(entry, str) for entry in value) else listed
                break
    texts = (" ".join(text.split()) for text in listed)
    some = (text for text in texts if text.casefold().rstrip(".") not in _NOTHING)
    return tuple(text for text, _ in groupby(some))[:MOST]


# An option's label before its latent variables, and one of these.
_LABEL = re.compile(r"\b([A-Z])\b[\"'.)]*\s*:\s*(?=\{|Belief\b)", re.IGNORECASE)
_LATENT = re.compile(
    r"\b(belief|social[ _]goal|believed[ _]goal)([\"'])?\s*:\s*"
    r"(?:null\b|None\b|\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^;}\n]*))",
    re.IGNORECASE,
)
# What JSON and Python write for a character.
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")


def _plain(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else " " if escape[2] in "nrt" else escape[2]


def read_hypotheses(reply: str, labels: Sequence[str]) -> dict[str, Hypothesis] | None:
    """Latent variables by label from a JSON or Python object; None if a label is left out.

    Or as the paper asks for them: "A: Belief: ...; Social goal: ...; Believed Goal: ... B: ...".
    """
    minds: dict[str, Hypothesis] = {}
    _, *parts = _LABEL.split(reply)
    for label, part in zip(parts[::2], parts[1::2], strict=True):
        found = {}
        for name, quote, *texts in _LATENT.findall(part):
            if quote and texts[2].strip():
                return None  # neither a text nor null
            text = " ".join(_ESCAPE.sub(_plain, "".join(texts)).split()).rstrip(".")
            if text.casefold() not in _NOTHING:
                found[name.lower().replace(" ", "_")] = text
        if found:
            minds.setdefault(label.upper(), Hypothesis(**found))
    return {label: minds[label] for label in labels} if {*labels} <= {*minds} else None


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
    prompts: Mapping[str, str] = PROMPTS,
) -> Episode:
    """The episode that a question is about; ``account`` says what its film shows of a person."""
    context, watched = question.context, who.other
    said: dict[str, tuple[str, ...]] = {}
    done: dict[str, tuple[str, ...]] = {}
    if context.dialogue:
        lines = [line.partition(": ") for line in context.dialogue.splitlines()]
        said = {n: tuple(text for speaker, _, text in lines if speaker == n) for n in who}
    else:
        actor = actor_of(context.actions, who, question.group)
        (watched,) = {*who} - {actor}
        asked = prompts["text"].format(account=context.actions, name=actor)
        done[actor] = read_list(write(asked))
    seen = account(question, watched)
    if isinstance(seen, str):
        known = context.dialogue or context.actions
        seen = read_list(write(prompts["film"].format(account=seen, name=watched, known=known)))
    done[watched] = seen
    parts = {name: Person(done.get(name, ()), said.get(name, ())) for name in who}
    asked = prompts["initial"].format(actions=actions_of(parts))
    return Episode(parts, read_list(write(asked)))


def actor_of(text: str, who: People, episode: str) -> str:
    """Whose actions a text tells: the person whom it names first."""
    named = re.search(rf"\b(?:{re.escape(who.subject)}|{re.escape(who.other)})\b", text)
    if named is None:
        raise HarnessError(f"episode {episode}: its text names neither {' nor '.join(who)}")
    return named[0]


def read_accounts(path: Path, episodes: Iterable[str]) -> dict[str, Account]:
    """What films show, from a file like actions_extracted.json with its ``action`` filled in."""
    entries = read_json(path)

    def account(actions: Field) -> Account:
        listed = isinstance(actions.value, list) and tuple(map(cleaned, actions.items()))
        return listed or cleaned(actions)

    return {episode: account(entries.get(episode).get("action")) for episode in episodes}


_GIVEN_GOAL = re.compile(r"\bif \w+ has been trying to (help|hinder) \w+")
_KNOWN_PLACE = re.compile(r"\bassuming that \w+ knows (what is [^,]+)")
_BELIEVED = re.compile(r"\w+ believed that (there (?:was|were|is|are) .+?)\.?")
# To help, and to hinder.
_AIMS = (
    re.compile(r"\w+ has been trying to help \w+ (?:to )?(?:locate|find) (?P<thing>.+?)\.?"),
    re.compile(r"\w+ has been trying to prevent \w+ from \w+ing (?P<thing>.+?)\.?"),
)
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
    texts = {o.label: _PREAMBLE.sub("", o.text) for o in question.options}
    # What is known of the thing asked for: where it was, as far as the episode tells.
    things = {m["thing"] for text in texts.values() for f in _AIMS if (m := f.fullmatch(text))}
    facts = " ".join(fact for fact in episode.initial if any(_names(fact, t) for t in things))
    how = (question.question, who, episode, facts)
    minds = {label: mind for label, text in texts.items() if (mind := _by_wording(text, *how))}
    return minds if len(minds) == len(texts) else None


def _by_wording(
    option: str, question: str, who: People, episode: Episode, facts: str
) -> Hypothesis | None:
    other, find = who.other, f"to find what {who.other} asks for"
    neither = f"neither help nor hinder {other}"
    if given := _GIVEN_GOAL.search(question):
        believed = _BELIEVED.fullmatch(option)
        return Hypothesis(believed[1], f"{given[1]} {other}", find) if believed else None
    if known := _KNOWN_PLACE.search(question):
        aims = (f"help {other}", f"hinder {other}", neither)
        pairs = zip(aims, (*_AIMS, _INDIFFERENT), strict=True)
        aim = next((aim for aim, wording in pairs if wording.fullmatch(option)), None)
        return Hypothesis(facts or f"{who.subject} knows {known[1]}", aim, find) if aim else None
    if _UNKNOWN.fullmatch(option):
        return Hypothesis("", neither, f"something that {who.subject} does not know")
    if wish := _WANTED.fullmatch(option):
        return Hypothesis("", f"{wish['aim']} {other}", f"to {wish['wish']}")
    if left := _LEFT.fullmatch(option):
        place = _left_at(left["thing"], other, episode)
        return Hypothesis("", f"{left['aim']} {other}", f"to have the {left['thing']} {place}")
    return None


def _left_at(thing: str, name: str, episode: Episode) -> str:
    for action in reversed(episode.people[name].actions):
        put = re.search(r"\b(?:put|puts|place|places|placed|set|sets|move|moves|moved)\b", action)
        where = re.search(r"\b(?:on|onto|in|into|inside|at)\b.*", action)
        if put and where and _names(action, thing):
            return where[0].rstrip(". ")
    return f"stay where {name} put it"


def _names(text: str, thing: str) -> bool:
    bare = re.sub(r"^(?:the|an?|some) ", "", thing)
    return re.search(rf"\b{re.escape(bare)}\b", text, re.IGNORECASE) is not None


def answer(
    item: Question,
    who: People,
    episode: Episode,
    model: Callable[[Sequence[str]], list[planning.LikelyUnlikely | None]],
    write: Write,
    latents: str = "rules",
    utterance_goal: bool = True,
    prompts: Mapping[str, str] = PROMPTS,
) -> planning.Answer:
    """``model`` judges prompts, ``write`` reads options that the rules do not know, or all."""
    if episode.people[who.subject] == Person():
        return {"problem": f"nothing is known of what {who.subject} says or does"}
    minds = by_rules(item, who, episode) if latents == "rules" else None
    if minds is None:
        asked = prompts["hypotheses"].format(
            **{"initial": "\n".join(episode.initial), "actions": actions_of(episode.people)},
            **{"question": item.question, "name": who.subject, "other": who.other},
            options="\n".join(f"{option.label}. {option.text}" for option in item.options),
        )
        minds = read_hypotheses(write(asked), [option.label for option in item.options])
    if minds is None:
        return {"problem": "the options' wording was not understood"}
    how = (who, episode, utterance_goal, prompts)
    return planning.judge(model, {k: judge_steps(mind, *how) for k, mind in minds.items()}, minds)


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
    prompts = prompts_of(config.templates)
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
            "perceiver": None if watching is reading else watching.about,
            "max_pixels": config.max_pixels,
            "templates": config.templates and fingerprint(prompts.items()),
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
            return {"reply": write(choose(item, beliefs), most=LETTER) if beliefs else ""}

        by_id = {item.item_id: item for item in items}
        kept = session.answers(GATHERED, gathering, first, partial(map, gathered))
        read = TypeAdapter(Episode).validate_python
        episodes = {name: read(one["episode"]) for name, one in kept.items()}
        answers = session.answers(planning.ANSWERS, about, by_id, partial(map, judged))
        table = planning.score(items, answers, planning.posterior_of_judgements)
        if config.choice == "model":
            own = about | {"mode": config.mode}
            replies = session.answers(CHOICES, own, by_id, partial(map, chosen))
            labels = (parse_choice(replies[i.item_id]["reply"], i.options) for i in items)
            marks = [planning.marked("model", *one) for one in zip(labels, items, strict=True)]
            table = table.join(pd.DataFrame(marks, index=table.index))
        return session.finish(table, about)
