"""``python -m experiments.table1 --model M``: table 1 of the GridToM paper, measured here.

Both orders, three settings; the model as it is, steered, and under both controls. K and alpha are
chosen on validation stories and reported on test stories. Each part is a sweep of its own, in a
folder of its own, so the command goes on where it was stopped.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sally_anne.core.commands import command
from sally_anne.core.run_folder import RESULTS, TABLE1, claims, save_config
from sally_anne.models.options import ModelOptions
from steering.config import SweepConfig

SETTINGS = ("multimodal", "video", "text")
ORDERS: tuple[Literal["1", "2"], ...] = ("1", "2")


@dataclass(frozen=True)
class Table1Config(ModelOptions):
    """Measure table 1.

    Attributes:
        k: numbers of heads to choose from; as steering.sweep's by default.
        alpha: strengths to choose from; as steering.sweep's by default.
        settings: which settings.
        orders: which orders.
        limit: only the first so many stories of each split; probing runs that have to be made then
            have three times so many in all, at least 20.
        style: plain questions, or questions that ask for a JSON object.
        data: folder in the release layout; stories are generated if none is given.
        out: folder; named after the model by default. An existing one is resumed.
        batch_size: prompts that are read together.
        rows: answers that are given together; auto takes as many as fit in memory, 64 at most.
        force: take probing runs of another model.
    """

    k: Annotated[tuple[int, ...] | None, tyro.conf.arg(name="K")] = None
    alpha: tuple[float, ...] | None = None
    settings: tuple[Literal["multimodal", "video", "text"], ...] = SETTINGS  # type: ignore[assignment]
    orders: tuple[Literal["1", "2"], ...] = ORDERS
    limit: int | None = None
    style: Literal["plain", "json"] = "plain"
    data: Path | None = None
    out: Path | None = None
    batch_size: int = 8
    rows: int | Literal["auto"] = "auto"
    force: bool = False

    @property
    def folder(self) -> Path:
        """Where the table is kept."""
        return self.out or Path("runs") / f"table1-{Path(self.model).name}"


@claims(TABLE1)
def run(config: Table1Config) -> list[dict[str, Any]]:
    """Measure and print the table.

    Returns:
        One row an order, setting and method: ``order, setting, method, TB, FB, Both, invalid``,
        each measure a dict of value, low, high, n; how many test stories were ``left_out`` as they
        were seen in fitting; also written to ``results.json``.
    """
    from sally_anne.core.console import Console
    from sally_anne.core.files import write_sealed
    from sally_anne.harness.metrics import over
    from sally_anne.models.loading import load_model
    from steering.cells import cell_metrics
    from steering.pipeline import run as sweep

    console = Console()
    loaded = load_model(**config.opening())
    rows: list[dict[str, Any]] = []
    names = ["k", "alpha", "limit", "style", "data", "batch_size", "rows", "force"]
    options = config.model_options() | {name: getattr(config, name) for name in names}
    base = SweepConfig(**options)
    for setting in config.settings:
        for order in config.orders:
            part = replace(
                base, setting=setting, order=order, out=config.folder / f"order{order}-{setting}"
            )
            found = sweep(part, console, loaded)
            if found.test is None:
                continue
            methods = {"baseline": "baseline", found.chosen.name: "+ alpha"}
            methods |= {c.name: f"control: {c.direction}" for c in found.controls}
            for name, metrics in cell_metrics(found.test, part.reader).items():
                row = {"order": int(order), "setting": setting, "method": methods[name]}
                row |= {"cell": name, "left_out": found.unseen.left_out}
                row |= {"intervals_over": over(found.test)}
                row |= {m: vars(getattr(metrics, m)) for m in ("TB", "FB", "Both", "invalid")}
                rows.append(row)
    save_config(config.folder, asdict(config))
    write_sealed(config.folder / RESULTS, {"config": asdict(config), "rows": rows})
    print_table(console, config.model, loaded.family.name, rows)
    console.print(f"table: {config.folder / RESULTS}", soft_wrap=True)
    return rows


def print_table(console: Any, model: str, family: str, rows: list[dict[str, Any]]) -> None:
    """Ours with intervals, and the paper's numbers of the full-size model of this family."""
    from rich.table import Table

    from experiments.paper_table1 import PAPER
    from sally_anne.harness.reporting import BELIEF, percent

    maps = any(row.get("intervals_over") == "map" for row in rows)
    over = "maps" if maps else "stories"
    table = Table(title=f"Table 1: {model}, test stories (%), 95 % intervals over {over}")
    for column in ("setting", "order", "method"):
        table.add_column(column)
    for column in BELIEF:
        table.add_column(column, justify="right")
    table.add_column(f"paper's 7B {family} (TB / FB / Both)", justify="right")
    for row in rows:
        steered = {"baseline": False, "+ alpha": True}.get(row["method"])
        key = (family, row["setting"], row["order"], bool(steered))
        numbers = PAPER.get(key) if steered is not None else None
        paper = " / ".join("?" if n is None else f"{n:.1f}" for n in numbers) if numbers else ""
        cells = (percent(row[column]) for column in BELIEF)
        table.add_row(row["setting"], str(row["order"]), row["method"], *cells, paper)
    console.print(table)


main = command("sally-anne table1", Table1Config, run, resumes=True)


if __name__ == "__main__":
    main()
