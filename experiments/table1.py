"""``sally-anne table1 --model M``: table 1 of the GridToM paper, measured here.

K and alpha are chosen on validation stories and reported on test stories. Each part is a sweep of
its own, in a folder of its own, so the command goes on where it was stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd
from rich.markup import escape

from sally_anne.core.console import Console, percent
from sally_anne.core.console import print_table as table
from sally_anne.core.errors import BenchmarkError, HarnessError
from sally_anne.core.files import write_json
from sally_anne.core.folder import RESULTS, claims, save_config
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.items import Setting
from sally_anne.experiments.config import Table1Config
from sally_anne.figures.report import NAME, write_index
from sally_anne.figures.sweep import CONTROLS, SIDES
from sally_anne.harness.compare import Finished
from sally_anne.harness.config import EvalConfig, check
from sally_anne.harness.evaluate import check_items, evaluate
from sally_anne.harness.protocols import Baseline, Prompting
from sally_anne.harness.report import BELIEF, published
from sally_anne.harness.score import differences, estimates, over, scores
from sally_anne.harness.tasks import load_items
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.probing.probes import NoDirectionError
from sally_anne.steering.config import ControlTask, SteeringOptions, SweepConfig
from sally_anne.steering.points import BASELINE, by_kind, ends, rows_of
from sally_anne.steering.questions import made_worse
from sally_anne.steering.sweep import NOT_SPECIFIC, NothingToChooseError, Sweep
from sally_anne.steering.sweep import run as sweep

# How the method of rows begins that are of other prompts, and of other models.
PROMPTING, OTHER = "prompting: ", "model: "


@claims("a table 1")
def run(config: Table1Config) -> list[dict[str, Any]]:
    """Measure, print and write the table; a part that cannot be steered has its baseline alone."""
    console = Console()
    failed: dict[str, str] = {}
    parts = list(product(config.settings, config.orders))
    stories = open_stories(config.data) if config.data and "2" in config.orders else None
    try:
        if stories is not None:
            stories.check_order(2)
    except BenchmarkError as error:
        parts = [part for part in parts if part[1] != "2"]
        if not parts:
            raise
        failed["order 2"] = str(error)
        console.print(f"order 2 is left out: {escape(str(error))}", soft_wrap=True)
    others = [Finished.open(folder) for folder in config.baselines]
    for one in others:
        if place_of(one) not in parts or one.options.get("steer") is not None:
            where = " or ".join(f"--setting {setting} --order {order}" for setting, order in parts)
            raise HarnessError(f"--baselines {one.folder} is steered, or not of {where}")
        asked = one.saved["config"]
        other = [n for n in ("data", "data_seed") if str(asked.get(n)) != str(getattr(config, n))]
        usual = {"style": "plain", "prompting": "direct"}
        other += [name for name, value in usual.items() if asked.get(name, value) != value]
        if other or asked.get("split") in ("train", "validation"):
            why = ", ".join(other) or f"--split {asked['split']}"
            raise HarnessError(
                f"--baselines {one.folder} does not ask the table's questions: {why}"
            )
    prompting = [evaluation(config, *part, how) for part, how in product(parts, config.prompting)]
    for asked in prompting:
        check(asked)
    loaded = load_model(**config.opening())
    rows: list[dict[str, Any]] = []
    folders: list[Path] = []
    shared = {field.name: getattr(config, field.name) for field in fields(SteeringOptions)}
    save_config(config.folder, asdict(config), loaded)
    for asked in prompting:
        # Prompts that the model has no room for are refused before the long work.
        check_items(loaded, load_items(asked).items, asked.reply_tokens, asked.retold_tokens)
    for setting, order in parts:
        shared["out"] = config.folder / f"order{order}-{setting}"
        part = SweepConfig(**shared, setting=setting, order=order)
        try:
            found = sweep(part, console, loaded)
        except (NoDirectionError, NothingToChooseError) as error:
            failed[f"order {order}, {setting}"] = str(error)
            alone = evaluation(config, setting, order, "direct")
            answers = evaluate(alone, console=console, loaded=loaded)
            rows.append(a_row(part, answers, "baseline", BASELINE.name))
        else:
            folders.append(part.folder)
            rows += steered_rows(part, found)
            for how in config.prompting:
                folders.append(evaluation(config, setting, order, how).folder)
                rows.append(prompted(config, part, found, how, loaded, console))
        for one in others:
            if place_of(one) == (setting, order):
                name = str(one.options["model"])
                rows.append(a_row(part, one.answers, f"{OTHER}{name}", name))
    saved = {"config": asdict(config), "rows": rows, "not_steered": failed}
    write_json(config.folder / RESULTS, saved)
    print_table(console, config.model, loaded.family.name, rows)
    lines = [f"{where} is not steered: {escape(why)}" for where, why in failed.items()]
    lines += [*against_prompting(rows), f"table: {config.folder / RESULTS}"]
    if folders:
        lines.append(f"report: {write_index(folders, config.folder / NAME)}")
    for line in lines:
        console.print(line, soft_wrap=True)
    return rows


def a_row(
    part: SweepConfig, answers: pd.DataFrame, method: str, point: str, left_out: int = 0
) -> dict[str, Any]:
    """What every row has, from the answers to a part's test questions."""
    about = {"order": int(part.order), "setting": part.setting, "left_out": left_out}
    how = {"intervals_over": over(answers), "method": method, "point": point}
    found = estimates(scores(answers, part.parser), beliefs=True)
    return {**about, **how, **{name: vars(found[name]) for name in BELIEF}}


def place_of(run: Finished) -> tuple[str, ...]:
    return tuple(str(run.saved["about"].get(name)) for name in ("setting", "order"))


def steered_rows(part: SweepConfig, found: Sweep) -> list[dict[str, Any]]:
    """Rows of the baseline, the chosen setting, and each kind of random control.

    ``heads`` is the loss of Both without each; side questions are changes of accuracy.
    """
    measure = found.measure
    rows: list[dict[str, Any]] = []
    for method, point in (("baseline", BASELINE), ("+ alpha", found.chosen)):
        answers = rows_of(found.test, point)
        rows.append(a_row(part, answers, method, point.name, found.unseen.left_out))
    if found.worse is not None:
        rows[-1]["worse"] = vars(found.worse)
    rows[-1] |= {task: vars(gain["test"]) for task, gain in found.gains.items()}
    rows[-1] |= {"control_rank": found.control_rank, "heads": found.left_out}
    rows[-1]["chosen"] = asdict(found.chosen)
    randoms = found.random_controls
    each = [measure.of(rows_of(found.test, point)) for point in randoms]
    numbers = {m: [metrics[m].value for metrics in each] for m in BELIEF}
    for task in found.gains:
        table = found.tables[task, "test"]
        numbers[task] = [measure.gain(table, p, task, 1).value for p in randoms]
    columns = {name: by_kind(randoms, own) for name, own in numbers.items()}
    if found.control_rank is not None:
        columns["worse"] = found.control_rank["worse"]
    for kind in dict.fromkeys(point.direction for point in randoms):
        row = {**rows[0], "method": f"control: {kind}", "point": kind}
        rows.append(row | {name: column[kind] for name, column in columns.items()})
    return rows


def evaluation(
    config: Table1Config, setting: Setting, asked: Literal["1", "2"] | ControlTask, how: Prompting
) -> EvalConfig:
    """The run of the harness that asks beliefs or side questions in another way."""
    names = ["limit", "data", "batch_size", "max_new_tokens", "split_seed", "data_seed"]
    names += ["protocol"] * (how == "direct")
    what = asked if asked in get_args(ControlTask) else f"order{asked}"
    options = config.model_options(*names) | {"out": config.folder / f"{what}-{setting}-{how}"}
    return EvalConfig(order=asked, setting=setting, prompting=how, **options)


def prompted(
    config: Table1Config,
    part: SweepConfig,
    found: Sweep,
    how: Baseline,
    loaded: LoadedModel,
    console: Console,
) -> dict[str, Any]:
    """The row of the unsteered model that is asked in another way, on a sweep's test stories."""
    # Stories that it has seen are left out.
    vector = SteeringVector.load(found.vector, allow_mismatch=config.allow_mismatch)

    def asked(what: Any) -> Any:
        setting: Any = part.setting
        each, how_asked = evaluation(config, setting, what, how), {"same_stories_as": vector}
        return evaluate(each, console=console, loaded=loaded, **how_asked)

    before, steered = (scores(rows, part.parser) for rows in ends(found.test, found.chosen))
    answers = asked(part.order)
    row = a_row(part, answers, f"{PROMPTING}{how}", how, found.unseen.left_out)
    after = scores(answers, part.parser)
    row["worse"] = vars(made_worse(before, after))
    gains = differences(steered, after, beliefs=True)
    row["over_steered"] = {name: vars(gains[name]) for name in BELIEF[:-1]}
    for task in found.gains:
        direct = rows_of(found.tables[task, "test"], BASELINE)
        own = scores(asked(task), part.parser)
        row[task] = vars(differences(scores(direct, part.parser), own, False)["overall"])
    return row


def against_prompting(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Whether the best way to prompt, chosen on the same stories, beats the steered model."""
    for setting, order in dict.fromkeys((row["setting"], row["order"]) for row in rows):
        there = [r for r in rows if (r["setting"], r["order"]) == (setting, order)]
        ways = [row for row in there if row["method"].startswith(PROMPTING)]
        if not ways:
            continue
        best = max(ways, key=lambda row: row["Both"]["value"])
        gain = best["over_steered"]["Both"]
        verdict = "neither is shown to beat the other"
        if gain["low"] > 0 or gain["high"] < 0:
            better = gain["low"] > 0
            verdict = "prompting beats steering" if better else "steering beats prompting"
        yield (
            f"{setting}, order {order}: {verdict}; Both of the best prompting ({best['point']}), "
            f"less the steered model's: {percent(gain)} points"
        )


def paper(model: str, setting: str, order: int) -> dict[str, list[float | None]]:
    """The paper's TB, FB and Both (%) of a family or a model, by method; None if not legible."""

    def same(row: Mapping[str, Any]) -> bool:
        one, other = (re.sub("[^a-z0-9]", "", n.lower()) for n in (row["who"], Path(model).name))
        return row.get("model") == model or one.endswith(other)

    return {
        "+ alpha" if row.get("steered") else "baseline": row["values"]
        for table in published()
        if (table["task"], table.get("order")) == ("gridtom", str(order))
        for row in table["rows"]
        if row.get("view") == setting and same(row)
    }


def print_table(console: Console, model: str, family: str, rows: list[dict[str, Any]]) -> None:
    """Ours with intervals, the paper's numbers, ranks among controls, and side questions."""
    accuracies: list[list[Any]] = []
    controls: list[list[Any]] = []
    tasks = [task for task in SIDES if any(task in row for row in rows)]
    place = None
    for row in rows:
        label, rank = row["method"].removeprefix("control: "), ""
        if place != (place := (row["setting"], row["order"])):
            accuracies.append([f"{place[0]}, order {place[1]}:"])
            controls.append(accuracies[-1])
            accuracies.append(["  paper, people", *paper("human", *place).get("baseline", ())])
        if label in CONTROLS:
            label = f"{row['Both']['n']} {CONTROLS[label]}"
        elif chosen := row.get("chosen"):
            by = "" if chosen["rank_by"] == "probe_accuracy" else f"\n  by {chosen['rank_by']}"
            label = f"K {chosen['k']}, alpha {chosen['alpha']:g}{by}"
        accuracies.append([label, *(row[column] for column in BELIEF)])
        other = row["method"].startswith(OTHER)
        who = row["point"] if other else family
        if numbers := paper(who, *place).get("baseline" if other else row["method"]):
            cells = ["not given" if number is None else f"{number:.1f}" for number in numbers]
            accuracies.append([f"  paper, {'' if other else '7B '}{who}", *cells])
        if found := row.get("control_rank"):
            rank = f"{found['rank']} of {found['of']}"
            rank += "" if found["beats_controls"] else f"\n{NOT_SPECIFIC}"
        if row["method"] != "baseline" and not other:
            controls.append([label, rank, *(row.get(name, "") for name in ("worse", *tasks))])
    unit = "maps" if any(row.get("intervals_over") == "map" for row in rows) else "stories"
    title = f"Table 1: {model}, test stories (%), 95 % intervals over {unit}"
    table(console, title, ["method", *BELIEF], accuracies)
    if any(len(row) > 1 for row in controls):
        note = (
            "rank: by Both among random controls with steps of the same length; of these the mean, "
            "the lowest and the highest"
        )
        title = "Controls: stories made worse (%), side questions (points)"
        names = ["method", "rank", "worse", *(SIDES[task] for task in tasks)]
        table(console, title, names, controls, note)
