"""The page of a probing run: every head, what its probe reads, and whether that is used."""

from __future__ import annotations

import math
import shlex
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.figures import style
from sally_anne.figures.causal import KINDS, kinds_of
from sally_anne.figures.choose import best
from sally_anne.figures.report.frames import strips_of
from sally_anne.figures.report.page import Page, Table, facts
from sally_anne.figures.report.points import points_of, samples_of
from sally_anne.hooks.saved_run import LEVEL, Run, given_away, verdicts

FEW = 5  # clusters below which an interval says little


def page(run: Run) -> Page:
    """The page of a finished probing run; raises FigureError as :class:`Run`."""
    heads = run.heads.sort_values(["layer", "head"], ignore_index=True)
    rows, samples = samples_of(run, len(heads))
    kinds = kinds_of(heads)
    data = {
        "labels": [_label(run, heads, label) for label in run.labels],
        "kinds": [
            {
                "name": kind,
                "said": KINDS[kind],
                "verdicts": {
                    label: _verdicts(heads, kind, label)
                    for label in run.labels
                    if f"{label}_p_family" in heads
                },
            }
            for kind in kinds
        ],
        "heads": heads.drop(columns=[f"{kind}_verdict" for kind in kinds], errors="ignore"),
        "sizes": list(run.config.get("sizes") or ()),
        "samples": samples,
        "points": points_of(run, heads, rows),
        "frames": strips_of(run, rows),
        "name": run.folder.resolve().name,
    }
    return Page(
        kind="probing",
        title=f"Heads of {run.title[0]}",
        parts=run.title[1:],
        sentence=" ".join(_sentence(run, label) for label in run.labels[:2]),
        verdicts=_said(run),
        badges=_badges(run, kinds),
        warnings=_warnings(run),
        commands=_commands(run, kinds),
        data=data,
        tables=[*_set_tables(run), *_audit_table(run), *_confound_table(run)],
        provenance=facts(
            run.config,
            model_read=run.saved.get("model"),
            data=run.saved.get("data"),
            nulls=run.saved.get("nulls"),
            versions=run.saved.get("versions"),
        ),
        repeat=f"sally-anne probe --config {_quoted(run)}",
    )


def spoken(label: str) -> str:
    """A label as a page writes it: GridToM's with the perspective."""
    said = {"y_p": "Y_p", "y_o": "Y_o"}.get(label, label)
    return f"{said} ({style.PERSPECTIVE[label]})" if label in style.PERSPECTIVE else said


def _label(run: Run, heads: pd.DataFrame, label: str) -> dict[str, Any]:
    top = best(heads, label)
    chance = run.found.get("results", {}).get(label, {}).get("chance_test_accuracy")
    classes = len(run.saved.get("labels", {}).get(label, (0, 1)))
    threshold = heads[f"{label}_threshold"].iloc[0] if f"{label}_threshold" in heads else None
    return {
        "name": label,
        "said": spoken(label),
        "short": spoken(label).partition(" (")[0],
        "best": [top.layer, top.head],
        "chance": chance or 1 / max(2, classes),
        "threshold": threshold,
    }


def _verdicts(heads: pd.DataFrame, kind: str, label: str) -> list[str]:
    """As the scan wrote them of its label; empty where it could not say what is used."""
    asked = heads[f"{kind}_verdict"] != ""
    return list(np.where(asked, verdicts(heads, kind, label), ""))


def _sentence(run: Run, label: str) -> str:
    """The best head of a label, by validation, and how many heads stand above the null."""
    heads, top = run.heads, best(run.heads, label)
    row = heads[(heads["layer"] == top.layer) & (heads["head"] == top.head)].iloc[0]
    results = run.found.get("results", {}).get(label, {})
    counts = run.samples["split"].value_counts()
    split = "test" if counts.get("test", 0) else "validation"
    said = f"{top} tells {spoken(label)} in {100 * row[f'{label}_{split}_accuracy']:.1f} %"
    if split == "test" and "best_test_low" in results:
        low, high = 100 * results["best_test_low"], 100 * results["best_test_high"]
        said += f" [{low:.1f}, {high:.1f}]"
    said += f" of {counts[split]} {split} samples"
    if f"{label}_p_family" in heads and not heads[f"{label}_p_family"].isna().all():
        above = int((heads[f"{label}_p_family"] <= LEVEL).sum())
        said += f"; {above} of {len(heads)} heads are above the null of permuted labels"
        threshold = float(heads[f"{label}_threshold"].iloc[0])
        said += f" ({threshold:.2f} on validation)" if math.isfinite(threshold) else ""
    return said[0].upper() + said[1:] + "."


def _said(run: Run) -> list[str]:
    found = [run.causes[kind]["verdict"] for kind in KINDS if kind in run.causes]
    if found:
        return found
    return [
        "Readable is not used: whether the model's answer needs these heads was not asked "
        f"(`sally-anne causal {_quoted(run)}`)."
    ]


def _badges(run: Run, kinds: list[str]) -> list[tuple[str, str]]:
    """Of the first label's best head, in two or three words each."""
    label, heads = run.labels[0], run.heads
    top = best(heads, label)
    row = heads[(heads["layer"] == top.layer) & (heads["head"] == top.head)].iloc[0]
    found = [(f"best head of {spoken(label)}: {top}", "plain")]
    p = row.get(f"{label}_p_family")
    if p is None or np.isnan(p):
        found.append(("no null was drawn", "bad"))
    elif not kinds:
        found.append(("readable" if p <= LEVEL else "inside the null", _tone(p <= LEVEL)))
    for kind in kinds:
        if words := str(row[f"{kind}_verdict"]):
            found.append((f"{KINDS[kind]}: {words}", _tone(words == "readable and used")))
    if not kinds:
        found.append(("used: not asked", "bad"))
    return found


def _tone(good: bool) -> str:
    return "good" if good else "bad"


def _warnings(run: Run) -> list[str]:
    results, label = run.found.get("results", {}), run.labels[0]
    said = [
        f"Confound ({row['condition']}): the {row['feature']} alone gives {spoken(row['label'])} "
        f"with accuracy {row['accuracy']:.2f}."
        for row in given_away(run.found)
    ]
    heads = run.heads
    for name in run.labels:
        p = heads.get(f"{name}_p_family")
        if p is None:
            said.append(
                f"{spoken(name)}: no null was drawn (`sally-anne probe` with permutations)."
            )
        elif p.isna().all():
            said.append(f"{spoken(name)} does not vary within groups: nothing can be permuted.")
        elif math.isinf(float(heads[f"{name}_threshold"].iloc[0])):
            said.append(f"{spoken(name)}: too few permutations for any head to stand out.")
    few = results.get(label, {}).get("test_clusters", FEW)
    if few < FEW:
        kind = results[label].get("clusters", "clusters")
        said.append(f"Intervals are over {few} {kind}: too few to say much.")
    for name, count in results.get("unconverged_heads", {}).items():
        if count:
            said.append(f"{name}: the solver stopped early at {count} heads; raise --max-iter.")
    unknown = run.saved.get("unknown_words") or {}
    if unknown.get("prompts"):
        said.append(
            f"{unknown['prompts']} of {unknown['of']} prompts hold words that the model lacks."
        )
    if run.prompts is None:
        said.append(
            "This run is of an earlier version and keeps no prompts; the same command adds them."
        )
    return said


def _commands(run: Run, kinds: list[str]) -> list[tuple[str, str]]:
    folder = _quoted(run)
    model = shlex.quote(str(run.config.get("model", "MODEL")))
    found = []
    if not kinds:
        found.append(("ask which heads are used", f"sally-anne causal {folder}"))
    if run.config.get("samples") is None and run.config.get("task", "gridtom") == "gridtom":
        order = run.config.get("order", 1)
        sweep = f"sally-anne sweep --model {model} --run {folder} --order {order}"
        found.append(("choose how many heads to steer, and how strongly", sweep))
    if not (run.folder / "audit.parquet").exists():
        found.append(("ask what else could explain the accuracy", f"sally-anne audit {folder}"))
    found.append(("draw the figures as PNG and PDF", f"sally-anne figures {folder}"))
    return found


def _set_tables(run: Run) -> list[Table]:
    """What sets of heads carry, beside random ones."""
    found = []
    for kind in KINDS:
        facts = run.causes.get(kind)
        if not facts:
            continue
        rows = []
        for row in facts["sets"]:
            by = {"cause": "most used", "random": "random sets"}.get(row["by"])
            limit = "" if row["by"] == "random" else _number(row.get("random_high"))
            between = f"{_number(row.get('low'))} to {_number(row.get('high'))}"
            name = by or f"best probes of {spoken(row['by'])}"
            rows.append((name, str(row["k"]), _number(row["share"]), between, limit))
        told = round(facts["told_apart"] * facts["pairs"])
        found.append(
            Table(
                f"Share of the gap that sets of heads carry: {KINDS[kind]} ({facts['pairs']} test "
                f"twins of {facts['clusters_drawn']} {facts['clusters']}, {told} told apart)",
                ("heads", "K", "share", "95 %", "97.5 % of random sets"),
                rows,
            )
        )
    return found


def _audit_table(run: Run) -> list[Table]:
    path = run.folder / "audit.parquet"
    if not path.exists():
        return []
    table = pd.read_parquet(path)
    shown = [c for c in ("label", "condition", "kind", "row") if c in table]
    numbers = [c for c in ("accuracy", "low", "high", "best", "samples") if c in table]
    rows = [
        (*(str(row[c]) for c in shown), *(_number(row[c]) for c in numbers))
        for _, row in table.iterrows()
    ]
    return [
        Table("Audit: what else gives the labels, beside the best head", [*shown, *numbers], rows)
    ]


def _confound_table(run: Run) -> list[Table]:
    rows = [
        (str(row["feature"]), str(row["condition"]), spoken(row["label"]), _number(row["accuracy"]))
        for row in run.found.get("confounds", ())
    ]
    title = "Control: accuracy on held-out samples of surface features alone"
    return [Table(title, ("feature", "condition", "label", "accuracy"), rows)] if rows else []


def _number(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _quoted(run: Run) -> str:
    return shlex.quote(str(run.folder))
