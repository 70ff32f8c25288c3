"""``sally-anne table1 --model M``: table 1 of the GridToM paper, measured here.

K and alpha are chosen on validation stories and reported on test stories. Each part is a sweep of
its own, in a folder of its own, so the command goes on where it was stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import tyro
from rich.markup import escape

from sally_anne.core.folder import RESULTS, claims, save_config
from sally_anne.core.options import Natural, Seed
from sally_anne.data.items import Setting
from sally_anne.harness.protocols import Baseline
from sally_anne.models.options import ModelOptions
from sally_anne.steering.sweep import Direction, Heads, Side, SweepConfig

if TYPE_CHECKING:
    from sally_anne.harness.config import EvalConfig
    from sally_anne.models.loading import LoadedModel
    from sally_anne.steering.reporting import Sweep

SETTINGS: tuple[Setting, ...] = ("multimodal", "video", "text")
# How the method of such rows begins.
PROMPTING = "prompting: "
ORDERS: tuple[Literal["1", "2"], ...] = ("1", "2")


@dataclass(frozen=True)
class Table1Config(ModelOptions):
    """Measure table 1.

    Attributes:
        k: numbers of heads to choose from; as steering.sweep's by default.
        alpha: strengths to choose from; as steering.sweep's by default.
        direction: how directions are found.
        heads: rank heads by their probe, or by cause; of several the best is chosen.
        draws: of each kind of control, among which the chosen vector is ranked.
        control_stories: test stories on which draws are compared.
        leave_out: so many of the chosen heads are left out one at a time.
        max_initial_drop: how far the choice may lower the accuracy on initial-belief questions (a
            share, on validation stories); none does not ask them.
        max_reality_drop: the same of the question where the participant is in reality.
        prompting: ways to put the questions that are measured beside steering, on the same stories:
            cot, simtom, few-shot, as of ``sally-anne evaluate``. In AxBench prompts steer better
            than any vector.
        settings: which settings.
        orders: which orders.
        limit: only so many stories of each split, drawn evenly over maps; probing runs that have to
            be made then have three times so many in all, at least 20.
        style: plain questions, or questions that ask for a JSON object.
        data: folder in the release layout; stories are generated if none is given.
        out: folder; named after the model by default. An existing one is resumed.
        batch_size: prompts that are read together.
        decode_batch_size: answers that are given together; auto takes as many as fit in
            memory, 64 at most.
        max_new_tokens: length of a reply; 16 by default, and 64 for a JSON object; 512 for
            thoughts of cot.
        seed: of random directions and heads.
        split_seed: which stories test, train and validate.
        data_seed: seed of generated stories.
        allow_mismatch: take probing runs of another model.
    """

    k: Annotated[tuple[int, ...] | None, tyro.conf.arg(name="K")] = None
    alpha: tuple[float, ...] | None = None
    direction: Direction = "logistic"
    heads: tuple[Heads, ...] = ("probe",)
    draws: int = 20
    control_stories: int = 100
    leave_out: Natural = 8
    max_initial_drop: float | None = 0.01
    max_reality_drop: float | None = 0.01
    prompting: tuple[Baseline, ...] = ()
    settings: tuple[Setting, ...] = SETTINGS
    orders: tuple[Literal["1", "2"], ...] = ORDERS
    limit: int | None = None
    style: Literal["plain", "json"] = "plain"
    data: Path | None = None
    out: Path | None = None
    batch_size: int = 8
    decode_batch_size: int | Literal["auto"] = "auto"
    max_new_tokens: int | None = None
    seed: Seed = 0
    split_seed: Seed = 0
    data_seed: Seed = 2025
    allow_mismatch: bool = False

    @property
    def folder(self) -> Path:
        """Where the table is kept."""
        return self.out or Path("runs") / f"table1-{Path(self.model).name}"


@claims("a table 1")
def run(config: Table1Config) -> list[dict[str, Any]]:
    """Measure, print and write the table.

    Returns:
        Rows of ``order, setting, method, TB, FB, Both, invalid``, each of the last four a
        dict of value, low, high, n; how many test stories were ``left_out`` as seen. Of controls a
        row a kind: mean, lowest, highest and number of its draws. That of the chosen setting has
        its ``specificity`` among them, ``worse``, the share of stories made worse, ``heads``, what
        Both loses without each, and what was ``chosen``. ``initial`` and ``reality`` are the change
        of accuracy on side questions, of controls as mean, lowest and highest. A row of prompting
        has ``over_steered``: how much more TB, FB and Both it has than the steered model, paired.
        Parts in which too few heads have a direction are left out, and named.

    Raises:
        NoDirectionError: in all parts.
    """
    from sally_anne.core.console import Console
    from sally_anne.core.files import write_json
    from sally_anne.figures.report import NAME, write_index
    from sally_anne.harness.config import check
    from sally_anne.harness.report import BELIEF
    from sally_anne.harness.score import over
    from sally_anne.models.loading import load_model
    from sally_anne.probing.directions import NoDirectionError
    from sally_anne.steering.cells import cell_metrics
    from sally_anne.steering.controls import ranges, side_range
    from sally_anne.steering.pipeline import run as sweep

    console = Console()
    for way in product(config.settings, config.orders, config.prompting):
        check(evaluation(config, *way))
    loaded = load_model(**config.opening())
    rows: list[dict[str, Any]] = []
    folders: list[Path] = []
    failed: dict[str, str] = {}
    shared = {field.name for field in fields(SweepConfig)} & {
        field.name for field in fields(config)
    }
    base = SweepConfig(**{name: getattr(config, name) for name in shared})
    save_config(config.folder, asdict(config))
    require_room(config, loaded)
    for setting in config.settings:
        for order in config.orders:
            part = replace(
                base, setting=setting, order=order, out=config.folder / f"order{order}-{setting}"
            )
            try:
                found = sweep(part, console, loaded)
            except NoDirectionError as error:
                failed[f"order {order}, {setting}"] = str(error)
                continue
            if found.test is None:
                continue
            metrics = cell_metrics(found.test, part.parser)
            ways = [evaluation(config, setting, order, how) for how in config.prompting]
            folders += [part.folder, *(asked.folder for asked in ways)]

            def value(cell: str, measure: str, metrics: Any = metrics) -> float:
                return float(getattr(metrics[cell], measure).value)

            common: dict[str, Any] = {
                "order": int(order),
                "setting": setting,
                "left_out": found.unseen.left_out,
                "intervals_over": over(found.test),
            }
            for method, name in (("baseline", "baseline"), ("+ alpha", found.chosen.name)):
                row = {**common, "method": method, "cell": name}
                row |= {m: vars(getattr(metrics[name], m)) for m in BELIEF}
                rows.append(row)
            if found.worse is not None:
                rows[-1]["worse"] = vars(found.worse)
            for side, gains in found.gains(part.parser).items():
                rows[-1][side] = vars(gains["test"])
            rows[-1] |= {"specificity": found.specificity, "heads": found.left_out}
            rows[-1]["chosen"] = asdict(found.chosen)
            for kind, drawn in ranges(value, found.draws).items():
                row = {**common, "method": f"control: {kind}", "cell": kind, **drawn}
                for side, tables in found.sides.items():
                    row[side] = side_range(tables["test"], found.draws, part.parser)[kind]
                if found.specificity is not None:
                    row["worse"] = found.specificity["worse"][kind]
                rows.append(row)
            for how in config.prompting:
                rows.append(common | prompted(config, part, found, how, loaded, console))
    if len(failed) == len(config.settings) * len(config.orders):
        raise NoDirectionError("; ".join(f"{where}: {why}" for where, why in failed.items()))
    kept = {"config": asdict(config), "rows": rows, "not_steered": failed}
    write_json(config.folder / RESULTS, kept)
    print_table(console, config.model, loaded.family.name, rows)
    for where, why in failed.items():
        console.print(f"{where}: not steered, {escape(why)}", soft_wrap=True)
    for line in against_prompting(rows):
        console.print(line, soft_wrap=True)
    console.print(f"table: {config.folder / RESULTS}", soft_wrap=True)
    if folders:
        page = write_index(folders, config.folder / NAME)
        console.print(f"report: {page}", soft_wrap=True)
    return rows


def evaluation(
    config: Table1Config, setting: Setting, asked: Literal["1", "2"] | Side, how: Baseline
) -> EvalConfig:
    """The run of the harness that asks beliefs or side questions in another way."""
    from sally_anne.harness.config import EvalConfig

    names = ("style", "limit", "data", "batch_size", "max_new_tokens", "split_seed", "data_seed")
    kept = f"{asked if asked in get_args(Side) else f'order{asked}'}-{setting}-{how}"
    options = config.model_options(*names)
    return EvalConfig(
        order=asked, setting=setting, prompting=how, out=config.folder / kept, **options
    )


def require_room(config: Table1Config, loaded: LoadedModel) -> None:
    """Refuse prompts that cannot be made of the data, or that the model has no room for."""
    from sally_anne.harness.evaluate import check_items
    from sally_anne.harness.tasks import load_items

    for part in product(config.settings, config.orders, config.prompting):
        asked = evaluation(config, *part)
        check_items(loaded, load_items(asked).items, asked.reply_tokens, asked.retold_tokens)


def prompted(
    config: Table1Config,
    part: SweepConfig,
    found: Sweep,
    how: Baseline,
    loaded: LoadedModel,
    console: Any,
) -> dict[str, Any]:
    """The row of the unsteered model that is asked in another way, on a sweep's test stories."""
    from sally_anne.harness.evaluate import evaluate
    from sally_anne.harness.report import BELIEF
    from sally_anne.harness.score import belief_metrics, paired_accuracy, paired_difference, scores
    from sally_anne.hooks.vector import SteeringVector
    from sally_anne.steering.cells import BASELINE, before_and_in
    from sally_anne.steering.controls import made_worse

    # Stories that it has seen are left out.
    vector = SteeringVector.load(found.vector, allow_mismatch=config.allow_mismatch)

    def asked(what: Literal["1", "2"] | Side) -> Any:
        each = evaluation(config, part.setting, what, how)
        return scores(
            evaluate(each, console=console, loaded=loaded, same_stories_as=vector), part.parser
        )

    before, steered = before_and_in(found.test, found.chosen, part.parser)
    after = asked(part.order)
    metrics = belief_metrics(after)
    row: dict[str, Any] = {"method": f"{PROMPTING}{how}", "cell": how}
    row |= {name: vars(getattr(metrics, name)) for name in BELIEF}
    row["worse"] = vars(made_worse(before, after))
    row["over_steered"] = {k: vars(v) for k, v in paired_difference(steered, after).items()}
    for side, tables in found.sides.items():
        direct = tables["test"][tables["test"]["cell"] == BASELINE.name]
        gain = paired_accuracy(scores(direct, part.parser), asked(side))["overall"]
        row[side] = vars(gain)
    return row


def against_prompting(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Of each setting and order with prompting: whether the best of it beats the steered model.

    The best is chosen on the stories that it is compared on, which favours it.
    """
    from sally_anne.harness.report import percent

    for setting, order in dict.fromkeys((row["setting"], row["order"]) for row in rows):
        there = [r for r in rows if (r["setting"], r["order"]) == (setting, order)]
        ways = [row for row in there if row["method"].startswith(PROMPTING)]
        if not ways:
            continue
        best = max(ways, key=lambda row: row["Both"]["value"])
        gain = best["over_steered"]["Both"]
        if gain["low"] > 0:
            verdict = "prompting beats steering"
        elif gain["high"] < 0:
            verdict = "steering beats prompting"
        else:
            verdict = "neither is shown to beat the other"
        yield (
            f"{setting}, order {order}: {verdict}; Both of the best prompting ({best['cell']}), "
            f"less the steered model's: {percent(gain)} points"
        )


def paper(family: str, setting: str, order: int) -> dict[str, tuple[float | None, ...]]:
    """The paper's TB, FB and Both (%) of this family's 7B model, by method; None if not legible."""
    from sally_anne.harness.report import published

    return {
        "+ alpha" if row.steered else "baseline": row.values
        for table in published()
        if (table.task, table.order) == ("gridtom", str(order))
        for row in table.rows
        if (row.model, row.view) == (family, setting)
    }


def print_table(console: Any, model: str, family: str, rows: list[dict[str, Any]]) -> None:
    """Ours with intervals, and the paper's numbers of the full-size model of this family.

    Below them what stands beside a steered model's numbers: its rank among the draws, the share of
    stories made worse, and how the side questions move. Both fit in 80 columns.
    """
    from sally_anne.harness.report import BELIEF, TIGHT
    from sally_anne.harness.report import print_table as table
    from sally_anne.steering.controls import CONTROL_LABELS, NOT_SPECIFIC, SIDE_LABELS

    accuracies: list[list[Any]] = []
    beside: list[list[Any]] = []
    sides = [side for side in SIDE_LABELS if any(side in row for row in rows)]
    part = None
    for row in rows:
        if part != (row["setting"], row["order"]):
            part = (row["setting"], row["order"])
            accuracies.append([f"{part[0]}, order {part[1]}:"])
            beside.append([f"{part[0]}, order {part[1]}:"])
        method = row["method"]
        if kind := method.removeprefix("control: ") if method != "+ alpha" else "":
            label = f"{row['Both']['n']} {CONTROL_LABELS[kind]}" if kind in CONTROL_LABELS else kind
        elif chosen := row.get("chosen"):
            by = "" if chosen["heads"] == "probe" else f" by {chosen['heads']}"
            label = f"K {chosen['k']}{by}, alpha {chosen['alpha']:g}"
        else:
            label = method
        accuracies.append([label, *(row[column] for column in BELIEF)])
        if numbers := paper(family, row["setting"], row["order"]).get(method):
            told = ["?" if number is None else f"{number:.1f}" for number in numbers]
            accuracies.append([f"  paper, 7B {family}", *told])
        if method == "baseline":
            continue
        rank = ""
        if found := row.get("specificity"):
            rank = f"{found['rank']} of {found['of']}"
            rank += "" if found["specific"] else f"\n{NOT_SPECIFIC}"
        cells = [rank, row.get("worse", ""), *(row.get(side, "") for side in sides)]
        beside.append([label, *cells])
    unit = "maps" if any(row.get("intervals_over") == "map" for row in rows) else "stories"
    title = f"Table 1: {model}, test stories (%), 95 % intervals over {unit}"
    table(console, title, ["method", *BELIEF], accuracies, **TIGHT)
    names = ["rank", "worse", *(SIDE_LABELS[side] for side in sides)]
    if any(row["method"] != "baseline" for row in rows):
        note = (
            "rank: by Both among random draws with steps of the same length; of draws the mean, "
            "the lowest and the highest"
        )
        title = "Beside them: stories made worse (%), side questions (points)"
        tighter = {**TIGHT, "padding": 0}
        table(console, title, ["method", *names], beside, note, **tighter)
