"""Films by how social they are: MoMentS chose its films by synopses that a model had read.

The paper (section 3.2) names neither prompt nor scale; both are our own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from sally_anne.core.console import Console, print_lines, print_table
from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import claims
from sally_anne.core.processes import within_memory
from sally_anne.data.items import Option
from sally_anne.data.read import Field, named_lines
from sally_anne.harness.chat_endpoint import AnyModel
from sally_anne.harness.distractors import require_room, write_lines
from sally_anne.harness.method_config import FilmsConfig
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.parse import parse_choice
from sally_anne.harness.planning import Session
from sally_anne.models.loading import LoadedModel

SCORES, TABLE = "scores.jsonl", "films.jsonl"
SCALE = (
    Option("1", "one person alone, or nature, machines or abstract pictures"),
    Option("2", "people who hardly have to do with one another"),
    Option("3", "people who meet, but whose thoughts hardly matter"),
    Option("4", "people who want, know or feel different things"),
    Option("5", "people who misread, deceive, hide from or try to understand one another"),
)
_LABELS = [option.label for option in SCALE]
_PROMPT = """\
Synopsis of a film: {synopsis}

What is the film mainly about?
{scale}
Reply with {labels} only.
Answer:"""
# Of a reply that is a number, perhaps with words.
_TOKENS = 16
# Rows that are printed; the file has all.
_SHOWN = 20


def read_films(path: Path) -> pd.DataFrame:
    """``id, title, prompt`` of each line; the prompt is empty where there is no synopsis."""
    scale = "\n".join(f"{option.label}. {option.text}" for option in SCALE)
    labels = f"{', '.join(_LABELS[:-1])} or {_LABELS[-1]}"
    films = []
    for record in named_lines(path, "film", "id", "{}", ("id", "title", "synopsis")).values():
        title = record.get("title").text()
        # Tables write an absent text as an empty one.
        blank = record.value.get("synopsis") in (None, "")
        synopsis = "" if blank else " ".join(record.get("synopsis").text().split())
        prompt = _PROMPT.format(synopsis=synopsis, scale=scale, labels=labels) if synopsis else ""
        films.append(
            {"id": record.opt("id", Field.name) or title, "title": title, "prompt": prompt}
        )
    return pd.DataFrame(films)


@claims("a ranking of films")
@within_memory("use a smaller --batch-size")
def run(
    config: FilmsConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> pd.DataFrame:
    """Rank all films, in ``config.folder``; a synopsis that was read there is not read again.

    A model here gives the mean of :data:`SCALE` by the probabilities of its five labels; of one at
    an endpoint the label is read. Returns the table of ``films.jsonl``, best first: ``rank`` (films
    of one score share the best of their places), ``score``, ``id, title``; films without a
    synopsis, or with a reply that names no label, come last and have neither rank nor score, and
    ``why`` gives the reason.
    """
    with Session(config, console) as session:
        films = read_films(config.data)
        asked = {_key(film.prompt): film for film in films.itertuples() if film.prompt}
        model = session.open(loaded)
        for film in asked.values():
            what = f"{config.data}, film {film.id}"
            require_room(model, what, film.prompt, _TOKENS, "shorten its synopsis")
        if isinstance(model, SteeredModel) and asked:
            _check_labels(model, Prompt(next(iter(asked.values())).prompt))
        scoring = partial(_scores, model)
        answers = session.answers(SCORES, model.about, asked, scoring, config.batch_size)
        scores = [answers.get(_key(prompt), {}).get("score") for prompt in films["prompt"]]
        table = ranked(films.assign(score=pd.Series(scores, dtype=float)))
        rows = table.astype(object).where(table.notna(), None).to_dict("records")
        write_lines(config.folder / TABLE, rows)
        _report(session.console, table)
        session.end()
        return table


def _key(prompt: str) -> str:
    """In the journal: a synopsis that is changed is read again."""
    return hashlib.sha256(prompt.encode()).hexdigest()


def ranked(films: pd.DataFrame) -> pd.DataFrame:
    """The table of :func:`run`, from ``id, title, prompt, score``; ties stay in their order."""
    rank = films["score"].rank(ascending=False, method="min").astype("Int64")
    why = films["prompt"].map(lambda prompt: "unread" if prompt else "no synopsis")
    table = films.assign(rank=rank, why=why.where(films["score"].isna(), ""))
    table = table.sort_values("rank", kind="stable", na_position="last", ignore_index=True)
    return table[["rank", "score", "id", "title", "why"]]


def _check_labels(model: SteeredModel, prompt: Prompt) -> None:
    """Labels that begin with one token, or an unknown one, would all be as probable."""
    first = [ids[0] for ids in model.continuations(prompt, _LABELS)]
    unknown = model.loaded.processor.tokenizer.unk_token_id
    if len(set(first)) < len(first) or unknown in first:
        raise HarnessError(
            f"the tokenizer of {model.loaded.name!r} does not distinguish {', '.join(_LABELS)}"
        )


def _scores(model: AnyModel, films: Sequence[Any]) -> Iterator[dict[str, Any]]:
    prompts = [Prompt(film.prompt) for film in films]
    if isinstance(model, SteeredModel):
        found = [*map(mean, model.option_log_probs(prompts, [_LABELS] * len(prompts)))]
    else:
        labels = [parse_choice(r, SCALE, "robust") for r in model.generate(prompts, _TOKENS)]
        found = [None if label is None else float(label) for label in labels]
    return ({"film": f.id, "score": score} for f, score in zip(films, found, strict=True))


def mean(log_probs: Sequence[float]) -> float | None:
    """Mean label where each has a log-probability (nats); None if one is no number."""
    with np.errstate(invalid="ignore"):
        value = float(softmax(log_probs) @ np.arange(1, 1 + len(SCALE)))
    return None if np.isnan(value) else value


def _report(console: Console, table: pd.DataFrame) -> None:
    scored = table.dropna(subset="rank")
    rows = [[film.title, film.rank, f"{film.score:.2f}"] for film in scored[:_SHOWN].itertuples()]
    print_table(console, "Films by how social they are (1 to 5)", ["film", "rank", "score"], rows)
    lines = [f"{len(scored) - _SHOWN} more are in {TABLE}"] if len(scored) > _SHOWN else []
    if tied := scored["rank"].duplicated(keep=False).sum():
        lines.append(f"{tied} of {len(scored)} films share their rank with another")
    for why, rest in table[table["why"] != ""].groupby("why")["title"]:
        names = ", ".join(rest.head(5)) + (", ..." if len(rest) > 5 else "")
        lines.append(f"{len(rest)} films are not ranked ({why}): {names}")
    print_lines(console, lines)
