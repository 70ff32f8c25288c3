"""LIMP: language model-based inverse multi-agent planning (MuMA-ToM paper, section 4, appendix 11).

A run gathers each episode once, judges the questions one by one, and keeps both in journals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import Journal, claims, fingerprint, save_config
from sally_anne.data.items import Question
from sally_anne.data.media import read_clip
from sally_anne.data.muma_tom import MUMA_TOM, People, people
from sally_anne.data.pictures import MOST_PIXELS
from sally_anne.data.read import Field
from sally_anne.harness.chat_endpoint import Budget, ChatEndpoint, open_endpoint
from sally_anne.harness.config import check_second, saved_options
from sally_anne.harness.limp_reading import (
    VARIABLES,
    Account,
    Episode,
    Hypothesis,
    Sources,
    account_of,
    agreement,
    agreement_shares,
    by_model,
    by_rules,
    choose,
    from_json,
    gather,
    judge_step,
    read_entries,
    steps,
    to_json,
)
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.parse import parse_choice
from sally_anne.harness.planning import (
    ANSWERS,
    Answer,
    AnyModel,
    FilteredError,
    LikelyUnlikely,
    answer_all,
    check_planning,
    finish,
    judge,
    judge_likely,
    marked,
    open_models,
    posterior_of_judgements,
    score,
)
from sally_anne.harness.planning_config import Latents, LimpConfig, Mode
from sally_anne.harness.tasks import sample_items
from sally_anne.hooks.batch_size import within_memory
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model

GATHERED, CHOICES, EPISODES = "episodes.jsonl", "choices.jsonl", "episodes.json"
# The most tokens of a reply that is one letter.
LETTER = 16
# Prompts to how the model judges each.
LikelihoodModel = Callable[[Sequence[str]], list[LikelyUnlikely]]


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

    Args:
        config: the options.
        vector: steers the likelihoods in place of the one in ``config.steer``.
        console: where results are printed.
        loaded: the model, if it is loaded already.
        frames: gives a question's frames in place of its film.

    Returns:
        The table of :func:`sally_anne.harness.planning.score`.
    """
    console = console or Console()
    vector = check_planning(config, vector)
    check_second(config, "perceiver")
    if config.perceiver is not None and config.actions is not None:
        raise HarnessError(
            "--perceiver watches films, and --actions says what they show: leave one out"
        )
    every = MUMA_TOM.load(config.data)
    items, drawn = sample_items(every, MUMA_TOM.breakdowns, config.limit, config.limit_seed)
    if drawn:
        console.print(str(drawn), soft_wrap=True)
    groups = {item.group for item in items}
    persons(items)
    parsed = {}
    if config.parsed is not None:
        parsed = {number: from_json(entry) for number, entry in read_entries(config.parsed).items()}
    accounts = _accounts(config, items, parsed)
    watched = accounts is None and not groups <= parsed.keys()
    budget = Budget(config.endpoint_limit)
    models = open_models(config, vector, loaded, budget, watched and config.perceiver is None)
    perceiver = _open_perceiver(config, budget) if watched else None
    read = sorted((n, to_json(e)) for n, e in parsed.items())
    gathering = {
        **models.about,
        **({} if perceiver is None else {"perceiver": perceiver.about}),
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
    others = {} if perceiver is None else {"perceiver": perceiver}
    with ExitStack() as kept, Bars(console) as bar:
        for role, each in {"": models.reading, **others}.items():
            if isinstance(each, ChatEndpoint):
                kept.enter_context(each.keeping(config.folder, role))
        with Journal(config.folder / GATHERED, gathering) as journal:
            save_config(config.folder, saved_options(config))
            done = bar.add_task("episodes", total=len(groups))
            episodes = gather_all(items, sources, journal, lambda: bar.advance(done))
        with Journal(config.folder / ANSWERS, about) as journal:
            judged = bar.add_task("questions", total=len(items))
            answers = judge_all(
                items, episodes, sources, model, journal, lambda: bar.advance(judged), **forms
            )
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
        same = list(map(_agreement, answers))
        table["latents_agree"] = [entry and all(entry.values()) for entry in same]
        further = {"latents": agreement_shares(same)}
    choosers = ["model"] if config.choice == "model" else []
    finish(console, config, "LIMP", items, table, models, about, drawn, others, choosers, further)
    if further:
        console.print(_agreement_line(further["latents"]), soft_wrap=True)
    return table


def persons(items: Iterable[Question]) -> dict[str, People]:
    """Who each episode's questions are about; HarnessError if they name no two persons."""
    texts: dict[str, list[str]] = {}
    for item in items:
        texts.setdefault(item.group, []).extend([item.question, *(o.text for o in item.options)])
    named = {}
    for group, wording in texts.items():
        who = people(wording)
        if who is None:
            raise HarnessError(
                f"episode {group}: its questions do not say whose mind they are about and who the "
                "other person is; LIMP knows the official wording"
            )
        named[group] = who
    return named


def gather_all(
    items: Sequence[Question],
    sources: Sources,
    journal: Journal,
    on_progress: Callable[[], None] = lambda: None,
) -> dict[str, Episode]:
    """The episode of each group; what the open journal holds is not gathered again."""
    who = persons(items)
    episodes = {}
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
    """The answer to each question; those that the open journal holds are not judged again."""
    who = persons(items)

    def answer(item: Question) -> Answer:
        pair, episode = who[item.group], episodes[item.group]
        todo = steps(episode.person(pair.subject))
        if not todo:
            return {"problem": f"nothing is known of what {pair.subject} says or does"}
        rules = by_rules(item, pair, episode)
        read = latents == "model" or rules is None
        options = by_model(item, pair, episode, sources.write) if read else rules
        if options is None:
            return {"problem": "the options' wording was not understood"}
        kept: Answer = {"hypotheses": {k: asdict(v) for k, v in options.items()}}
        if read and rules is not None:
            kept["rules"] = {label: asdict(entry) for label, entry in rules.items()}
        requests = {
            label: [judge_step(step, mind, pair, episode, utterance_goal) for step in todo]
            for label, mind in options.items()
        }
        try:
            return {"problem": "", **kept, "judged": judge(model, requests)}
        except FilteredError as error:
            return {"problem": str(error), **kept}

    return answer_all(items, journal, answer, on_progress)


def choose_all(
    items: Sequence[Question],
    answers: Sequence[Answer],
    mode: Mode,
    write: Callable[[str], str],
    journal: Journal,
) -> list[str | None]:
    """The option that a model chooses that is given the posterior; None where it chooses none."""
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


def _agreement(answer: Answer) -> dict[str, bool] | None:
    """Whether the model and the rules read the same, where both read; None elsewhere."""
    both = [answer.get(name) for name in ("rules", "hypotheses")]
    if not all(both):
        return None
    rules, model = ({k: Hypothesis(**v) for k, v in one.items()} for one in both if one)
    return agreement(rules, model)


def _agreement_line(shares: Mapping[str, Any]) -> str:
    if "all" not in shares:
        return "no question was read by both the model and the rules"
    parts = [f"{n.replace('_', ' ')} {100 * shares[n]:.1f}" for n in VARIABLES if n in shares]
    return (
        f"the model and the rules read the same out of the options in {100 * shares['all']:.1f} % "
        f"of {shares['n']} questions ({', '.join(parts)})"
    )


def _open_perceiver(config: LimpConfig, budget: Budget) -> AnyModel | None:
    """Who watches films in the place of the model that reads, if anybody does."""
    if config.perceiver is None:
        return None
    if "://" in config.perceiver:
        return open_endpoint(config, budget, "perceiver")
    own = {"name": config.perceiver, "revision": None}
    return SteeredModel(load_model(**config.opening() | own, videos=True))


def _accounts(
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
