"""Films by how social they are: MoMentS chose its films by synopses that a model had read.

The paper's prompt (appendix A.3) asks for a percentage; our own, without ``--template``, for one of
five labels.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from sally_anne.core.console import Console, print_table
from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import claims
from sally_anne.core.processes import within_memory
from sally_anne.data.items import Option
from sally_anne.data.read import Field, named_lines, one_line
from sally_anne.harness.chat_endpoint import AnyModel
from sally_anne.harness.distractors import require_room, write_lines
from sally_anne.harness.method_config import FilmsConfig
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.parse import parse_choice
from sally_anne.harness.planning import Session
from sally_anne.harness.protocols import read_template
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
FIELDS = ("synopsis", "captions", "title")
PROMPT = "\n".join(
    (
        "Synopsis of a film: {synopsis}\n\nWhat is the film mainly about?",
        *(f"{option.label}. {option.text}" for option in SCALE),
        f"Reply with {', '.join(_LABELS[:-1])} or {_LABELS[-1]} only.\nAnswer:",
    )
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Of a reply that is a number, perhaps with words.
_TOKENS = 16


def read_films(path: Path, template: str = PROMPT) -> pd.DataFrame:
    """``id, title, prompt, key`` of each line; without a synopsis the prompt is empty."""
    films = []
    for record in named_lines(path, "film", "id", "{}", ("id", *FIELDS)).values():
        # Tables write an absent text as an empty one.
        given = [name for name in FIELDS if record.value.get(name) not in (None, "")]
        texts = dict.fromkeys(FIELDS, "") | {n: one_line(record.get(n).text()) for n in given}
        prompt = template.format(**texts) if texts["synopsis"] else ""
        title = record.get("title").text()
        films.append([record.opt("id", Field.name) or title, title, prompt])
    table = pd.DataFrame(films, columns=["id", "title", "prompt"])
    # In the journal: a synopsis that is changed is read again.
    return table.assign(key=[hashlib.sha256(text.encode()).hexdigest() for text in table["prompt"]])


@claims("a ranking of films")
@within_memory("use a smaller --batch-size")
def run(
    config: FilmsConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> pd.DataFrame:
    """Rank all films, in ``config.folder``; a synopsis that was read there is not read again.

    A model here gives the mean of :data:`SCALE` by its labels' probabilities; of one at an endpoint
    the label is read, and of replies to a template the first number. Best first: ``rank`` (films of
    one score share the best of their places), ``score``, ``id, title``; last those without a score.
    """
    with Session(config, console) as session:
        file = config.template
        own = file and read_template(file, "--template", FIELDS, [FIELDS[:1]])
        films = read_films(config.data, own or PROMPT)
        asked = {film.key: film for film in films.itertuples() if film.prompt}
        model = session.open(loaded)
        for film in asked.values():
            what = f"{config.data}, film {film.id}"
            require_room(model, what, film.prompt, _TOKENS, "shorten its synopsis")
        if isinstance(model, SteeredModel) and asked and not own:
            # Labels that begin with one token, or an unknown one, would all be as probable.
            tokens = model.continuations(Prompt(next(iter(asked.values())).prompt), _LABELS)
            first = {ids[0] for ids in tokens} - {model.loaded.processor.tokenizer.unk_token_id}
            if len(first) < len(_LABELS):
                known = f"the tokenizer of {model.loaded.name!r} does not distinguish"
                raise HarnessError(f"{known} {', '.join(_LABELS)}")
        scoring = partial(_scores, model, bool(own))
        answers = session.answers(SCORES, model.about, asked, scoring, config.batch_size)
        scores = [answers.get(key, {}).get("score") for key in films["key"]]
        films["score"] = pd.Series(scores, dtype=float)
        films["rank"] = films["score"].rank(ascending=False, method="min").astype("Int64")
        # Ties stay in their order.
        table = films.sort_values("rank", kind="stable", na_position="last", ignore_index=True)
        table = table[["rank", "score", "id", "title"]]
        rows = table.astype(object).where(table.notna(), None).to_dict("records")
        write_lines(config.folder / TABLE, rows)
        scored = table.dropna(subset="rank")
        shown = [[one.title, one.rank, f"{one.score:.2f}"] for one in scored[:20].itertuples()]
        title = f"Films by how social they are ({f'as {file.name} asks' if file else '1 to 5'})"
        print_table(session.console, title, ["film", "rank", "score"], shown)
        session.end(f"{len(scored)} of {len(table)} films are ranked, all of them in {TABLE}")
        return table


def _scores(model: AnyModel, numbers: bool, films: Sequence[Any]) -> Iterator[dict[str, Any]]:
    prompts = [Prompt(film.prompt) for film in films]
    if isinstance(model, SteeredModel) and not numbers:
        found = [*map(mean, model.option_log_probs(prompts, [_LABELS] * len(prompts)))]
    else:
        replies = model.generate(prompts, _TOKENS)
        read = [_NUMBER.findall(r)[:1] if numbers else [parse_choice(r, SCALE)] for r in replies]
        found = [float(label[0]) if label and label[0] else None for label in read]
    return ({"film": f.id, "score": score} for f, score in zip(films, found, strict=True))


def mean(log_probs: Sequence[float]) -> float | None:
    with np.errstate(invalid="ignore"):
        value = float(softmax(log_probs) @ np.arange(1, 1 + len(SCALE)))
    return None if np.isnan(value) else value
