"""An evaluation from config to table: a model, steered or not, is asked the questions of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pandas as pd

from sally_anne.core.console import Console, counting, many, print_lines
from sally_anne.core.errors import BenchmarkError, ContextError, HarnessError
from sally_anne.core.files import read_object
from sally_anne.core.folder import Journal, claims, fingerprint, require_own, save_config
from sally_anne.core.processes import AUTO, fitting, here, in_batches, within_memory
from sally_anne.data.items import Question, short_name
from sally_anne.data.samples import Lineage
from sally_anne.data.speech import RATE
from sally_anne.figures.report import write_report
from sally_anne.harness import protocols
from sally_anne.harness.chat_endpoint import ChatCompletion, ChatEndpoint, open_endpoint
from sally_anne.harness.config import DEFAULT_BATCH, EvalConfig, check, model_name
from sally_anne.harness.judge import agreement, judge_answers, open_judge, read_labels, read_sheet
from sally_anne.harness.model import Completion, Prompt, SteeredModel, laid_out
from sally_anne.harness.report import print_evaluation, save, save_items
from sally_anne.harness.score import counts, results_of, score, write_submission
from sally_anne.harness.tasks import TaskItems, open_task
from sally_anne.hooks.identity import SEEN, require_fitted
from sally_anne.hooks.vector import RECORD, SteeringVector
from sally_anne.models import estimate
from sally_anne.models.estimate import Figure, Load, exact, open_described
from sally_anne.models.families import check_senses
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prefix import split_common_prefix
from sally_anne.models.processor import RAW
from sally_anne.models.prompts import reply_prompt, sound_tokens
from sally_anne.models.videos import REMEDY, check_room

KIND = "an evaluation"
ANSWERS, TABLE = "answers.jsonl", "answers.parquet"
SUBMISSION = "submission.json"
_SOUND_REMEDY = "play less of the film (--window focused), or take another --view"
# What a frame's time takes in a note at most, and the words around the times.
_NOTE_OF_A_FRAME, _NOTE = "0000 min:00.00 sec, ", 200 * " "


def run(config: EvalConfig) -> None:
    """Carry out an evaluation; what is done already is not done again."""
    if config.dry_run:
        dry_run(config)
        return
    evaluate(config)
    if here().first:
        print(f"report: {write_report(config.folder)}")


@claims(KIND)
def evaluate(
    config: EvalConfig,
    vector: SteeringVector | None = None,
    console: Console | None = None,
    loaded: LoadedModel | None = None,
    same_stories_as: SteeringVector | None = None,
) -> pd.DataFrame:
    """Do the whole evaluation in ``config.folder``; what is there is not asked again.

    Processes of a launcher share the items; the first judges open replies, saves and prints.

    Args:
        vector: steers in place of the one in ``config.steer``.
        same_stories_as: a vector that does not steer here; the test stories that it was fitted on
            are left out, so that this run can be compared with one that it steers.

    Returns:
        What :func:`sally_anne.harness.score.score` gives, and the judge's columns.
    """
    processes = here()
    device_map = processes.device_map(config.place)
    processes.begin()
    console = (console or Console()) if processes.first else Console(quiet=True)
    check(config)
    if vector is None and config.steer is not None:
        vector = SteeringVector.load(config.steer, allow_mismatch=config.allow_mismatch)
    fitted = vector or same_stories_as
    work = asked_by(config, fitted.fitted if fitted else None, console)
    said = {} if config.replies is None else dict(read_sheet(config.replies, "reply").to_numpy())
    if config.replies is not None:
        work = replace(work, items=[item for item in work.items if item.item_id in said])
        if not work.items:
            raise HarnessError(f"{config.replies}: has no reply to any of these questions")
    judge = open_judge(config, work.items, device_map) if processes.first else None
    human = None if config.human is None else read_labels(config.human)
    size = DEFAULT_BATCH if config.batch_size == AUTO else config.batch_size
    mismatch, model = "", cast(Any, None)
    if config.endpoint is not None:
        model = open_endpoint(config)
    elif config.replies is None:
        videos, sounds = (any(map(attrgetter(name), work.items)) for name in ("clip", "sound"))
        opening = config.opening() | {"device_map": device_map}
        loaded = loaded or load_model(**opening, videos=videos, sounds=sounds)
        check_senses(loaded, videos, sounds)
        check_items(loaded, work.items, config.reply_tokens, config.retold_tokens)
        mismatch = require_fits(vector, loaded, config.alpha) if vector else ""
        model = SteeredModel(loaded, vector, config.alpha)
    about = {
        **(model.about if model else {"replies": fingerprint(sorted(said.items()))}),
        "task": short_name(config.task),
        "max_new_tokens": config.reply_tokens,
        "options": config.options,
        **work.about,
    }
    if config.endpoint is not None and config.max_pixels:  # an opened model names it itself
        about["max_pixels"] = config.max_pixels
    kept = Journal(config.folder / ANSWERS, about, processes)
    replies = model.keeping(config.folder) if model else nullcontext()
    with kept as journal, replies, counting(console, f"{model_name(config)}, {work.title}") as show:
        if processes.first:
            save_config(config.folder, asdict(config), loaded)
        if said and not journal.answers:
            names = (item.item_id for item in work.items)
            journal.add({"item_id": i, "reply": said[i], "ended": True} for i in names)
        table = ask(model, work.items, journal, config, show)
    if not processes.first:
        processes.wait()
        return pd.read_parquet(config.folder / TABLE)
    if judge is not None:
        # Each judge keeps its own verdicts in the folder.
        own = fingerprint(sorted(judge.about.items()))[:8]
        kept = Journal(config.folder / f"verdicts-{own}.jsonl", {**judge.about, **about})
        with kept as journal, judge.model.keeping(config.folder, f"judge-{own}"):
            table = judge_answers(table, judge, journal, size)
    if open_task(config.task).submission:
        write_submission(table, config.folder / SUBMISSION, work.missing)
    texts = [text for item in work.items for text in (item.before, item.text) if text]
    saved = {
        # A model behind an endpoint goes by its name there, people by that of their sheet.
        "config": asdict(config) | {"model": model_name(config)},
        "counts": counts(table, work.missing),
        "results": results_of(table, work.breakdowns, work.cells, work.beliefs),
        "agreement": None if human is None else agreement(table, human),
        "about": about,
        "beliefs": work.beliefs,
        "unseen": None if work.left_out is None else asdict(work.left_out),
        "mismatch": mismatch,
    }
    save_items(config.folder, work.items, table)
    save(console, config.folder / TABLE, table, saved, loaded, texts)
    print_evaluation(console, config, work, saved, table)
    processes.wait()
    return table


def asked_by(config: EvalConfig, facts: Mapping[str, Any] | None, console: Console) -> TaskItems:
    """What a run asks, without stories that a vector of these facts has seen."""
    work = open_task(config.task).load(config, fitted_on(config.model, facts))
    print_lines(console, work.lines())
    return work


def check_items(
    loaded: LoadedModel, items: Sequence[Question], reply: int, retold: int = protocols.RETOLD
) -> None:
    """ContextError if an item does not fit with ``reply`` tokens; no frame is decoded."""
    tokens = cache(partial(sound_tokens, loaded))

    def check_one(item: Question, exact: bool) -> None:
        shape = item.shape(exact) if item.shape else None
        notes: Mapping[str, str] = {}
        if exact and item.notes:
            notes = item.notes()
        elif item.notes and shape:
            marks = (protocols.FRAMES_MARK, *protocols.MARKS.values())
            notes = dict.fromkeys(marks, _NOTE + _NOTE_OF_A_FRAME * shape[0])
        turns = Prompt(item.first_prompt(notes), system=item.system).turns
        pieces = tokens(round(RATE * item.seconds())) if item.seconds and item.seconds() else []
        prompt = reply_prompt(loaded, turns, shape is not None, len(pieces))
        written, sound = retold if item.before else reply, sum(pieces) - len(pieces)
        remedy = _SOUND_REMEDY if pieces and shape is None else REMEDY
        check_room(loaded, f"item {item.item_id}", prompt, shape, written, remedy, sound)
        if item.before:
            prompt = reply_prompt(loaded, item.text, False)
            check_room(loaded, f"item {item.item_id}", prompt, None, retold + reply)

    for item in items:
        if item.clip is not None and item.shape is None:
            continue
        with suppress(BenchmarkError):
            try:
                check_one(item, exact=False)
            except ContextError:
                # There may be fewer frames in the film, and shorter notes.
                check_one(item, exact=True)


@within_memory("use a smaller --batch-size, and if it is 1 smaller --max-pixels or fewer --frames")
def ask(
    model: SteeredModel | ChatEndpoint,
    items: Sequence[Question],
    journal: Journal,
    config: EvalConfig,
    on_progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Ask what the journal does not hold yet, and score all.

    Batches are planned over all items, answered or not, and the journal's processes share them: a
    prompt's company, and with it the last digits of its numbers, is the same in every run.
    """

    def unanswered(some: Sequence[Question]) -> list[Question]:
        return [item for item in some if item.item_id not in journal.answers]

    def trial(size: int) -> None:
        longest = max(in_batches(items, size), key=lambda b: max(len(i.first_text) for i in b))
        for some, prompts in by_shape(longest):
            before = bool(some[0].before)
            model.replies(prompts, config.retold_tokens if before else config.reply_tokens)

    size = DEFAULT_BATCH if config.batch_size == AUTO else config.batch_size
    if config.batch_size == AUTO and not isinstance(model, ChatEndpoint) and unanswered(items):
        size = fitting(model.loaded.model, trial, DEFAULT_BATCH, journal.processes)
    todo = [batch for batch in in_batches(items, size) if unanswered(batch)]
    todo = journal.processes.share(todo)
    done = len(items) - len(unanswered(items))
    total = done + sum(len(unanswered(batch)) for batch in todo)
    on_progress(done, total)
    for planned in todo:
        for batch, prompts in by_shape(planned):
            if new := unanswered(batch):
                answers = _answers(model, batch, prompts, config)
                journal.add(answers[item.item_id] for item in new)
                done += len(new)
                on_progress(done, total)
    journal.gather(item.item_id for item in items)
    return score(items, [journal.answers[item.item_id] for item in items])


def _answers(
    model: SteeredModel | ChatEndpoint,
    batch: Sequence[Question],
    prompts: Sequence[Prompt],
    config: EvalConfig,
) -> dict[str, dict[str, Any]]:
    first: Sequence[Any] = ()
    if batch[0].before:
        first = cast(Sequence[Any], model.replies(prompts, config.retold_tokens))
        prompts = [second_step(i, one.text) for i, one in zip(batch, first, strict=True)]
    how: dict[str, Any] = {}
    if isinstance(model, SteeredModel) and model.loaded.prompt == RAW:
        # What goes on with a text does not end with the answer; its line does.
        lines = all(item.text.rstrip().endswith(":") for item in batch)
        how = {"stops": ("\n",), "after_text": True} if lines else {}
    replies: Sequence[Completion | ChatCompletion] = model.replies(
        prompts, config.reply_tokens, **how
    )
    answers: dict[str, dict[str, Any]] = {
        item.item_id: {"item_id": item.item_id, "reply": reply.text, "ended": reply.ended}
        for item, reply in zip(batch, replies, strict=True)
    }
    for answer, one in zip(answers.values(), first, strict=False):
        answer |= {"perspective": one.text, "perspective_ended": one.ended}
    choices = all(item.options and not item.names for item in batch)
    if config.options and choices and not isinstance(model, ChatEndpoint):
        labels = [[o.label for o in item.options] for item in batch]
        probabilities = model.option_log_probs(prompts, labels)
        for answer, log_probs in zip(answers.values(), probabilities, strict=True):
            answer["option_log_probs"] = log_probs
    return answers


def by_shape(items: Sequence[Question]) -> list[tuple[list[Question], list[Prompt]]]:
    """Items by the shape of their clips, which some models take as one tensor."""
    groups: dict[Any, tuple[list[Question], list[Prompt]]] = {}
    for item in items:
        prompt = prompt_of(item)
        batch, prompts = groups.setdefault(prompt.shape, ([], []))
        batch.append(item)
        prompts.append(prompt)
    return list(groups.values())


def prompt_of(item: Question) -> Prompt:
    clip, sound = (made() if made else None for made in (item.clip, item.sound))
    return Prompt(item.first_prompt(), clip, sound=sound, system=item.system)


def second_step(item: Question, retold: str) -> Prompt:
    return Prompt(item.text.replace(protocols.KNOWN_MARK, retold.strip(), 1))


def facts_of(folder: str | Path | None) -> dict[str, Any] | None:
    return None if folder is None else dict(SteeringVector.load(folder).fitted)


def fitted_on(model: str, facts: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Facts of a vector, with what it and one that is baked into the model have seen, if any."""
    record = Path(model).expanduser() / RECORD
    if not record.exists():
        return facts
    saved = read_object(record, HarnessError, "sally-anne bake", {"vector": ("fitted",)})
    baked = dict(saved["vector"]["fitted"])
    if facts is None:
        return baked
    first = Lineage.read(facts, "the vector")
    second = Lineage.read(baked, str(record))
    if first is None or second is None:
        return {name: fact for name, fact in facts.items() if name != SEEN}
    return {**facts, SEEN: first.chosen_on(second.seen).facts()}


def require_fits(vector: SteeringVector, loaded: LoadedModel, alpha: float | None) -> str:
    """How a model differs from the one that a vector was fitted on; an error unless allowed."""
    difference = require_fitted(vector, loaded.identity)
    with vector.apply(loaded.skeleton, alpha, allow_mismatch=True):
        return difference


def dry_run(config: EvalConfig, console: Console | None = None) -> dict[str, Figure]:
    """Print what the evaluation would ask and need, judges aside; each figure by its name."""
    check(config)
    require_own(config.folder, KIND)
    console = console or Console()
    items = asked_by(config, facts_of(config.steer), console).items
    if config.endpoint is not None or any(item.sound for item in items):
        raise HarnessError("--dry-run counts no tokens of sounds, and none of an endpoint's models")
    loaded = open_described(config, videos=any(item.clip for item in items))
    size = DEFAULT_BATCH if config.batch_size == AUTO else config.batch_size
    counter = estimate.Counter(loaded)
    loads = [
        load
        for batch in in_batches(items, size)
        for load in loads_of(counter, batch, config.reply_tokens, config.retold_tokens)
    ]
    figures = [
        exact("items", len(items), "of the chosen split"),
        exact("batches", len(loads), f"of {many(size, 'prompts')} at most"),
        *tokens_of(counter, loads),
        *estimate.needs(loaded, loads, config.quantization).values(),
    ]
    return estimate.show(console, loaded.name, figures)


def loads_of(
    counter: estimate.Counter, batch: Sequence[Question], reply: int, retold: int = protocols.RETOLD
) -> list[Load]:
    """A pass for each shape of clips; SimToM's items ask twice, first for ``retold`` tokens."""
    found = []
    for items, prompts in by_shape(batch):
        twice = bool(items[0].before)
        found.append(_load(counter, prompts, retold if twice else reply))
        if twice:
            found.append(_load(counter, [second_step(i, "") for i in items], reply, retold))
    return found


def _load(counter: estimate.Counter, prompts: Sequence[Prompt], reply: int, more: int = 0) -> Load:
    contexts, endings, patches = [], [], 0
    for prompt in prompts:
        cut = split_common_prefix(counter.loaded, [laid_out(counter.loaded, prompt)])
        tokens, seen = counter.context(cut.beginning, prompt.shape)
        contexts.append(tokens + more)
        endings.append(counter.ending(cut.endings[0]))
        patches += seen
    return Load(tuple(contexts), tuple(endings), patches, reply)


def tokens_of(counter: estimate.Counter, loads: Sequence[Load]) -> list[Figure]:
    # A sweep asks several times after one context; its first row stands for the prompt.
    rows = [row for load in loads for row in zip(load.contexts, load.endings, strict=False)]
    tokens = counter.each("tokens a prompt", [context + end for context, end in rows])
    written = sum(load.rows * load.reply for load in loads)
    return [tokens, exact("tokens written", written, "by all rows, at most")]
