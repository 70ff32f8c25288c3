"""``sally-anne evaluate --dry-run``: what an evaluation would ask and need.

Nothing is computed or written; of the catalogue's models no weights are needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from sally_anne.core.console import Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import require_own
from sally_anne.data.items import Question
from sally_anne.harness.config import DEFAULT_BATCH, EvalConfig, check
from sally_anne.harness.evaluate import KIND, by_shape, facts_of, fitted_on, second_step
from sally_anne.harness.model import Prompt, laid_out
from sally_anne.harness.protocols import KNOWN_MARK, RETOLD
from sally_anne.harness.tasks import open_task
from sally_anne.hooks.batch_size import AUTO, in_batches
from sally_anne.models.decoding import split_common_prefix
from sally_anne.models.estimate import Counter, Figure, Load, exact, needs, show, tokens_each
from sally_anne.models.published import open_described


def dry_run(config: EvalConfig, console: Console | None = None) -> dict[str, Figure]:
    """Print what the evaluation would ask and need, judges aside; each figure by its name.

    Raises the evaluation's own errors, as far as they can be known without weights.
    """
    check(config)
    require_own(config.folder, KIND)
    work = open_task(config.task).load(config, fitted_on(config.model, facts_of(config.steer)))
    console = console or Console()
    for line in work.lines():
        console.print(escape(line), soft_wrap=True)
    items = work.items
    if any(item.sound for item in items):
        raise HarnessError(
            f"--dry-run counts no tokens of sounds; leave it or --view {config.view} out"
        )
    if config.endpoint is not None:
        return show(console, config.endpoint_model, _requests(config, items))
    loaded = open_described(config, videos=any(item.clip for item in items))
    size = DEFAULT_BATCH if config.batch_size == AUTO else config.batch_size
    counter = Counter(loaded)
    loads = [
        load
        for batch in in_batches(items, size)
        for load in loads_of(counter, batch, config.reply_tokens, config.retold_tokens)
    ]
    figures = [
        exact("items", len(items), "of the chosen split"),
        exact("batches", len(loads), f"of {size} prompts at most"),
        *tokens_of(counter, loads, config.reply_tokens),
        *needs(loaded, loads, config.quantization).values(),
    ]
    return show(console, loaded.name, figures)


def _requests(config: EvalConfig, items: Sequence[Question]) -> list[Figure]:
    """What an endpoint would be asked; how it counts tokens is its own affair."""
    shapes = [item.shape(True) for item in items if item.shape]
    words = sum(len(item.system) + len(item.first_prompt()) for item in items)
    words += sum(len(item.text) - len(KNOWN_MARK) for item in items if item.before)
    twice = sum(bool(item.before) for item in items)
    written = len(items) * config.reply_tokens + twice * config.retold_tokens
    each = "two an item" if twice else "one an item"
    often = f"{each}; equal ones are made once, tries that fail come on top"
    retold = ", without what simtom's first step retells" if twice else ""
    return [
        exact("requests", len(items) + twice, often),
        exact("frames sent", sum(shape[0] for shape in shapes), "as pictures"),
        exact("characters sent", words, f"of all prompts' words{retold}"),
        exact("tokens written", written, "by all requests, at most"),
    ]


def loads_of(
    counter: Counter, batch: Sequence[Question], reply: int, retold: int = RETOLD
) -> list[Load]:
    """What a batch of items asks: a pass for each shape of clips; replies have ``reply`` tokens.

    SimToM's items ask twice, first for ``retold`` tokens, which the second prompt holds.
    """
    found = []
    for items, prompts in by_shape(batch):
        if items[0].before:
            found.append(_load(counter, prompts, retold))
            second = [second_step(item, "") for item in items]
            found.append(_load(counter, second, reply, retold))
        else:
            found.append(_load(counter, prompts, reply))
    return found


def _load(counter: Counter, prompts: Sequence[Prompt], reply: int, more: int = 0) -> Load:
    """One pass; its contexts have ``more`` tokens than the prompts."""
    contexts, endings, patches = [], [], 0
    for prompt in prompts:
        cut = split_common_prefix(counter.loaded, [laid_out(counter.loaded, prompt)])
        tokens, seen = counter.context(cut.beginning, prompt.shape)
        contexts.append(tokens + more)
        endings.append(counter.ending(cut.endings[0]))
        patches += seen
    return Load(tuple(contexts), tuple(endings), patches, reply)


def tokens_of(counter: Counter, loads: Sequence[Load], reply: int) -> list[Figure]:
    """Tokens of a prompt, and those written at most."""
    # A sweep asks several times after one context; its first row stands for the prompt.
    rows = [row for load in loads for row in zip(load.contexts, load.endings, strict=False)]
    tokens = [context + end for context, end in rows]
    written = sum(load.rows * load.reply for load in loads)
    how = f"rows x {reply}, at most"
    if any(load.reply != reply for load in loads):
        how = "by all rows, at most"
    return [
        tokens_each("tokens a prompt", tokens, counter),
        exact("tokens written", written, how),
    ]
