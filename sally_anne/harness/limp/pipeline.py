"""A run of LIMP from config to files: episodes are gathered once, questions judged one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
from rich.markup import escape

from hooks.batch_size import within_memory
from hooks.vector import SteeringVector
from sally_anne.benchmarks.clips import read_clip
from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.items import BenchmarkItem
from sally_anne.benchmarks.muma_tom import MUMA_TOM, People, people
from sally_anne.benchmarks.pictures import MOST_PIXELS
from sally_anne.core.commands import no_command
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic
from sally_anne.core.run_folder import LIMP, claims, save_config
from sally_anne.harness.config import check_steered
from sally_anne.harness.drawing import Drawn, draw
from sally_anne.harness.endpoint.limits import Budget
from sally_anne.harness.endpoint.model import EndpointModel, kept_in, open_endpoint, said_usage
from sally_anne.harness.endpoint.options import check_endpoint, check_second, named
from sally_anne.harness.endpoint.options import saved as saved_options
from sally_anne.harness.journal import Journal, fingerprint
from sally_anne.harness.limp.command import LimpConfig
from sally_anne.harness.limp.episode import (
    Episode,
    from_json,
    read_entries,
    read_episodes,
    steps,
    to_json,
)
from sally_anne.harness.limp.likelihood import MODES, HeldBack, LikelihoodModel, judge, posterior
from sally_anne.harness.limp.models import log_probs, open_perceiver
from sally_anne.harness.limp.understanding import Account, Sources, account, gather, hypotheses
from sally_anne.harness.metrics import accuracy
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.reporting import print_table, save, steered_by
from sally_anne.harness.vectors import open_vector, require_fits
from sally_anne.models.loading import LoadedModel, load_model

GATHERED, ANSWERS = "episodes.jsonl", "answers.jsonl"
EPISODES, TABLE = "episodes.json", "answers.parquet"


def video_frames(item: BenchmarkItem, most_pixels: int | None = None) -> np.ndarray:
    """The frames that the benchmark takes, ``uint8 [F, height, width, 3]``."""
    return read_clip(item.media[0], "full", MUMA_TOM.sampling, most_pixels or MOST_PIXELS).frames


@claims(LIMP)
@within_memory("use a smaller --batch-size, or tell what films show with --actions")
def run(
    config: LimpConfig,
    vector: SteeringVector | None = None,
    console: Console | None = None,
    loaded: LoadedModel | None = None,
    frames: Callable[[BenchmarkItem], np.ndarray] | None = None,
) -> pd.DataFrame:
    """Do the whole run in ``config.folder``; what is there is not asked again.

    ``vector`` steers the likelihoods in place of the one in ``config.steer``; ``loaded`` is the
    model if it is loaded already; ``frames`` gives a record's frames. Bad input is named before
    long work wherever it can be known. What is returned is :func:`score` of the questions.
    """
    console = console or Console()
    check_steered(config)
    check_endpoint(config)
    check_second(config, "perceiver")
    if config.perceiver is not None and config.actions is not None:
        raise HarnessError(
            "--perceiver watches films, and --actions says what they show: leave one out"
        )
    if vector is None and config.steer is not None:
        vector = open_vector(config.steer, config.force)
    every = MUMA_TOM.load(config.data)
    rows, kinds = [(item.group, item.tags) for item in every], MUMA_TOM.breakdowns
    groups = draw(rows, kinds, config.limit, config.limit_seed)
    items = [item for item in every if item.group in groups]
    drawn = None
    if config.limit is not None:
        drawn = Drawn.of([row for row in rows if row[0] in groups], kinds, config.limit_seed)
        console.print(str(drawn), soft_wrap=True)
    persons(items)
    parsed = read_episodes(config.parsed) if config.parsed is not None else {}
    accounts = _accounts(config, items, parsed)
    watched = accounts is None and not groups <= parsed.keys()
    budget = Budget(config.endpoint_limit)
    distant = None if config.endpoint is None else open_endpoint(config, budget)
    if loaded is None and distant is None:
        loaded = load_model(**config.opening(), videos=watched and config.perceiver is None)
    planner = distant or SteeredModel(cast(LoadedModel, loaded))
    perceiver = open_perceiver(config, budget) if watched else None
    read = sorted((n, to_json(e)) for n, e in parsed.items())
    gathering = {
        **(distant.about if distant else cast(LoadedModel, loaded).about),
        **({} if perceiver is None else {"perceiver": perceiver.about}),
        **({} if config.max_pixels is None else {"max_pixels": config.max_pixels}),
        "max_new_tokens": config.max_new_tokens,
        "data": fingerprint([[(i.item_id, i.question, i.options, i.context) for i in items]]),
        "actions": fingerprint([sorted(accounts.items())]) if accounts is not None else None,
        "parsed": fingerprint([read]) if parsed else None,
    }
    judging = distant or SteeredModel(cast(LoadedModel, loaded), vector, config.alpha)
    about = gathering | judging.about
    forced = require_fits(vector, loaded, config.alpha) if vector and loaded else ""

    def write(text: str, clip: np.ndarray | None = None) -> str:
        asked = planner if clip is None or perceiver is None else perceiver
        return asked.generate([Prompt(text, clip)], config.max_new_tokens)[0]

    shown = frames or partial(video_frames, most_pixels=config.max_pixels)
    sources = Sources(write, shown, accounts, parsed)
    model = partial(log_probs, judging, config.batch_size)
    both = {"model": planner, "perceiver": perceiver}
    distants = {name: m.endpoint for name, m in both.items() if isinstance(m, EndpointModel)}
    with ExitStack() as kept, Bars(console) as bar:
        for role, endpoint in distants.items():
            file = kept_in(config.folder, "" if role == "model" else role)
            kept.enter_context(endpoint.keeping(file))
        with Journal(config.folder / GATHERED, gathering) as journal:
            save_config(config.folder, saved_options(config))
            done = bar.add_task("episodes", total=len(groups))
            episodes = gather_all(items, sources, journal, lambda: bar.advance(done))
        with Journal(config.folder / ANSWERS, about) as journal:
            judged = bar.add_task("questions", total=len(items))
            table = answer_all(
                items, episodes, sources, model, journal, lambda: bar.advance(judged)
            )
    results = summarise(table)
    forms = {number: to_json(episode) for number, episode in episodes.items()}
    text = json.dumps(forms, indent=2, default=str) + "\n"
    write_atomic(config.folder / EPISODES, text.encode())
    chosen = {f"{config.mode}_{name}": name for name in ("label", "correct", "invalid")}
    saved_table = table.assign(**{new: table[old] for old, new in chosen.items()})
    saved = {
        "config": saved_options(config),
        "about": about,
        "results": results,
        "drawn": drawn and asdict(drawn),
        "forced": forced,
        "endpoints": {role: endpoint.usage for role, endpoint in distants.items()},
    }
    save(console, config.folder / TABLE, saved_table, saved, loaded, map(_words, items))
    _print(console, config, results)
    for role, endpoint in distants.items():
        console.print(said_usage(role, endpoint.usage), soft_wrap=True)
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)
    return table


def persons(items: Iterable[BenchmarkItem]) -> dict[str, People]:
    """Who each episode's questions are about; HarnessError if they name no two persons."""
    texts: dict[str, list[str]] = {}
    for item in items:
        texts.setdefault(item.group, []).extend([item.question, *(o.text for o in item.options)])
    named = {}
    for group, wording in texts.items():
        who = people(wording)
        if who is None:
            raise HarnessError(
                f"episode {group}: its questions do not tell whose mind they are about and who the "
                "other person is; LIMP knows the official wording"
            )
        named[group] = who
    return named


def gather_all(
    items: Sequence[BenchmarkItem],
    sources: Sources,
    journal: Journal,
    on_progress: Callable[[], None] = lambda: None,
) -> dict[str, Episode]:
    """The episode of each group; what the open journal holds is not gathered again."""
    who = persons(items)
    found = {}
    for item in {item.group: item for item in items}.values():
        if item.group not in journal.answers:
            episode = gather(item, who[item.group], sources)
            journal.add([{"item_id": item.group, "episode": to_json(episode)}])
        kept = Field(journal.answers[item.group], f"{journal.path}, episode {item.group}")
        found[item.group] = from_json(kept.get("episode"))
        on_progress()
    return found


def answer_all(
    items: Sequence[BenchmarkItem],
    episodes: Mapping[str, Episode],
    sources: Sources,
    model: LikelihoodModel,
    journal: Journal,
    on_progress: Callable[[], None] = lambda: None,
) -> pd.DataFrame:
    """Judge what the open journal does not hold yet; :func:`score` of all items."""
    who = persons(items)
    for item in items:
        if item.item_id not in journal.answers:
            found = _answer(item, who[item.group], episodes[item.group], sources, model)
            journal.add([{"item_id": item.item_id, **found}])
        on_progress()
    return score(items, [journal.answers[item.item_id] for item in items])


def _answer(
    item: BenchmarkItem, who: People, episode: Episode, sources: Sources, model: LikelihoodModel
) -> dict[str, Any]:
    if not steps(episode.person(who.subject)):
        return {"problem": f"nothing is known of what {who.subject} says or does"}
    options = hypotheses(item, who, episode, sources.write)
    if options is None:
        return {"problem": "the options' wording was not understood"}
    found = {label: asdict(entry) for label, entry in options.items()}
    try:
        return {
            "problem": "",
            "hypotheses": found,
            "judged": judge(model, episode, who, options),
        }
    except HeldBack as error:
        return {"problem": str(error), "hypotheses": found}


def score(items: Sequence[BenchmarkItem], answers: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row a question, in both forms of the rule.

    Columns ``item_id, story, type, polarity, answer, steps, problem``, for each of the modes
    ``log`` and ``official`` ``<mode>_label``, ``<mode>_correct``, ``<mode>_invalid`` (no option
    stands out, or there is a problem) and ``<mode>_scores`` (posterior by label as JSON-like text;
    logarithms for ``log``), and ``agree``: whether both choose the same.
    """
    rows = []
    for item, answer in zip(items, answers, strict=True):
        judged = answer.get("judged", {})
        try:
            found = posterior({k: [(p, q) for p, q in pairs] for k, pairs in judged.items()})
        except HarnessError as error:
            raise HarnessError(f"item {item.item_id}: {error}") from error
        row: dict[str, Any] = {
            "item_id": item.item_id,
            "story": item.group,
            "type": "|".join(item.tags.get("type", ())),
            "polarity": item.polarity,
            "answer": item.answer,
            "steps": max((len(pairs) for pairs in judged.values()), default=0),
            "problem": answer["problem"],
        }
        for mode in MODES:
            label = found.choose(item.polarity, mode)
            right = label is not None and label == item.answer
            row |= {f"{mode}_label": label, f"{mode}_correct": right}
            row[f"{mode}_invalid"] = label is None
            beliefs: dict[str, float] = getattr(found, mode)
            row[f"{mode}_scores"] = ", ".join(f"{k}: {v!r}" for k, v in beliefs.items())
        row["agree"] = row["log_label"] == row["official_label"]
        rows.append(row)
    return pd.DataFrame(rows)


def summarise(table: pd.DataFrame) -> dict[str, Any]:
    """Accuracy in both forms of the rule, overall and by type, and how often they agree."""
    found: dict[str, Any] = {}
    for mode in MODES:
        names = {f"{mode}_correct": "correct", f"{mode}_invalid": "invalid"}
        theirs = table[["item_id", "story", "type", *names]].rename(columns=names)
        found[mode] = asdict(accuracy(theirs, by="type"))
    found["agreement"] = float(table["agree"].mean())
    found["problems"] = {
        str(problem): int(n) for problem, n in table["problem"].value_counts().items() if problem
    }
    return found


def _accounts(
    config: LimpConfig, items: Sequence[BenchmarkItem], parsed: Mapping[str, Episode]
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
    return {group: account(entries[group]) for group in todo}


def _words(item: BenchmarkItem) -> str:
    """All that is told and asked in a question."""
    context = item.context
    words = (context.scene, context.actions, context.dialogue)
    return "\n".join([*words, item.question, *(option.text for option in item.options)])


def _print(console: Console, config: LimpConfig, results: Mapping[str, Any]) -> None:
    """Accuracy by type, the run's own form of the rule first."""
    modes = sorted(MODES, key=lambda mode: mode != config.mode)
    rows = []
    for kind in ("overall", *results[modes[0]]["groups"], "invalid"):
        cells = [results[mode].get(kind) or results[mode]["groups"][kind] for mode in modes]
        rows.append(["all" if kind == "overall" else kind, cells[0]["n"], *cells])
    title = f"LIMP, {named(config)}, {steered_by(config)} (% right)"
    print_table(console, title, ["questions", "n", *modes], rows)
    console.print(f"both forms choose the same in {100 * results['agreement']:.1f} % of questions")
    for problem, n in results["problems"].items():
        console.print(escape(f"{n} questions without an answer: {problem}"), soft_wrap=True)


if __name__ == "__main__":
    no_command("limp")
