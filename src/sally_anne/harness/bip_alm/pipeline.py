"""A run of BIP-ALM from config to files, question by question."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

import pandas as pd

from sally_anne.core.commands import no_command
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.run_folder import BIP_ALM, claims, save_config
from sally_anne.data.items import BenchmarkItem
from sally_anne.data.mmtom_qa import MMTOM_QA
from sally_anne.data.mmtom_qa.actions import read_actions
from sally_anne.data.mmtom_qa.contents import Contents
from sally_anne.harness.bip_alm import prompts
from sally_anne.harness.bip_alm.command import BipAlmConfig
from sally_anne.harness.bip_alm.minds import hypotheses, steps
from sally_anne.harness.drawing import draw_items
from sally_anne.harness.endpoint.limits import Budget
from sally_anne.harness.endpoint.model import EndpointModel, kept_in
from sally_anne.harness.endpoint.options import saved as saved_options
from sally_anne.harness.inverse_planning.models import (
    check_planning,
    judged_by,
    open_models,
    said_by,
)
from sally_anne.harness.inverse_planning.posterior import HeldBack, judge, of_judged, of_said
from sally_anne.harness.inverse_planning.results import ANSWERS, Answer, answer_all, finish, score
from sally_anne.harness.journal import Journal, fingerprint
from sally_anne.harness.model import SteeredModel
from sally_anne.hooks.batch_size import within_memory
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel

# What is asked of a step: a prompt, with the action as its reply unless the action is judged.
Asked = str | tuple[str, str]


@claims(BIP_ALM)
@within_memory("use a smaller --batch-size")
def run(
    config: BipAlmConfig,
    vector: SteeringVector | None = None,
    console: Console | None = None,
    loaded: LoadedModel | None = None,
) -> pd.DataFrame:
    """Do the whole run in ``config.folder``; what is there is not asked again.

    ``vector`` steers the likelihoods in place of the one in ``config.steer``; ``loaded`` is the
    model if it is loaded already. Bad input is named before long work. What is returned is
    :func:`~sally_anne.harness.inverse_planning.results.score` of the questions.
    """
    console = console or Console()
    vector = check_planning(config, vector)
    if config.likelihood == "reply" and config.endpoint is not None:
        raise HarnessError(
            "--likelihood reply needs a model here: an endpoint tells how probable its own replies "
            "are, and not a given one; take judged"
        )
    every = MMTOM_QA.load(config.data)
    items, drawn = draw_items(every, MMTOM_QA.breakdowns, config.limit, config.limit_seed)
    if drawn:
        console.print(str(drawn), soft_wrap=True)
    models = open_models(config, vector, loaded, Budget(config.endpoint_limit))
    told = [(i.item_id, i.question, i.options, i.context, i.person) for i in items]
    about = {
        **models.about,
        **models.judging.about,
        "data": fingerprint([told]),
        "likelihood": config.judges,
    }
    judging, size = models.judging, config.batch_size
    if config.judges == "reply":
        assert isinstance(judging, SteeredModel)
        model: Callable[[Any], list[Any]] = partial(said_by, judging, size)
        ask: Callable[..., Asked] = prompts.next_action
        weigh: Callable[[Any], Any] = of_said
    else:
        model, ask, weigh = partial(judged_by, judging, size), prompts.judged_action, of_judged
    with ExitStack() as kept, Bars(console) as bar:
        if isinstance(judging, EndpointModel):
            kept.enter_context(judging.endpoint.keeping(kept_in(config.folder)))
        journal = kept.enter_context(Journal(config.folder / ANSWERS, about))
        save_config(config.folder, saved_options(config))
        done = bar.add_task("questions", total=len(items))
        answers = answer_all(
            items, journal, partial(answer, ask=ask, model=model), lambda: bar.advance(done)
        )
    table = score(items, answers, weigh)
    finish(console, config, "BIP-ALM", items, table, models, about, drawn)
    return table


def answer(
    item: BenchmarkItem, ask: Callable[..., Asked], model: Callable[[Any], list[Any]]
) -> Answer:
    """How likely what the person does is under each option, or why that cannot be said."""
    contents = Contents(item.context.scene)
    course = read_actions(item.context.actions, contents)
    for name, known in (("what is in the apartment", contents.rooms), ("any step", course.actions)):
        if not known:
            return {"problem": f"the text does not tell {name}"}
    minds = hypotheses(item, contents)
    if minds is None:
        return {"problem": "the options' wording was not understood"}
    asked = {
        label: [
            ask(step, mind.goal, item.person, contents) for step in steps(mind, course, contents)
        ]
        for label, mind in minds.items()
    }
    found = {"hypotheses": {label: asdict(mind) for label, mind in minds.items()}}
    try:
        return {"problem": "", **found, "judged": judge(model, asked)}
    except HeldBack as error:
        return {"problem": str(error), **found}


if __name__ == "__main__":
    no_command("bip-alm")
