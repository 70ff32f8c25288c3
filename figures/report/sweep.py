"""The page of a sweep: every K and alpha, the chosen one beside its controls, and what it costs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.core.run_folder import RESULTS
from sally_anne.figures.command import run_table
from sally_anne.figures.report.page import Page, Table, facts, percent
from sally_anne.figures.sweep import (
    CONTROLS,
    MADE_BY,
    MEASURES,
    SIDES,
    SPLIT,
    TABLE,
    curves,
    read_choice,
    read_sweep,
    read_title,
    refused,
)
from sally_anne.hooks.geometry import Head
from sally_anne.hooks.saved_run import saved_results

# Stories whose replies stand in the page, and characters of a reply.
STORIES, LONGEST = 6, 300
CHOSEN = "chosen"


def page(folder: Path) -> Page:
    """The page of a finished sweep; raises as :func:`figures.sweep.read_sweep`."""
    shown = curves(read_sweep(folder))
    whole = run_table(folder, TABLE, MADE_BY, "sweep")
    saved = saved_results(folder / RESULTS, MADE_BY) or {}
    config, chosen = saved.get("config", {}), saved.get("chosen")
    title = read_title(folder) or [folder.resolve().name]
    reader = config.get("reader", "robust")
    said, badges = _test(saved, whole)
    tested = _tested(chosen, whole)
    return Page(
        kind="sweep",
        title=f"Steering {title[0]}",
        parts=[*title[1:], f"label {config.get('label', 'not recorded')}"],
        sentence=said,
        badges=badges,
        verdicts=_controls(saved),
        warnings=_warnings(saved),
        commands=_commands(folder, saved),
        data={
            "curves": shown,
            "chosen": chosen,
            "refused": refused(shown, read_choice(folder))[["panel", "heads", "k", "alpha"]],
            "measures": [*MEASURES, *SIDES],
            "controls": CONTROLS,
            "replies": _replies(folder, reader) if saved else {},
            "table": whole,
            "tested": tested,
        },
        tables=[*_test_table(tested), *_left_out(saved)],
        provenance=facts(config, about=saved.get("about"), probing_run=saved.get("run")),
        repeat=f"sally-anne sweep --config {shlex.quote(str(folder))}",
    )


def _of(table: pd.DataFrame, cell: str, measure: str, split: str = "test") -> dict[str, Any] | None:
    rows = table[(table["split"] == split) & (table["measure"] == measure)]
    rows = rows[rows["cell"] == cell]
    return None if rows.empty else rows.iloc[0].to_dict()


def _test(saved: Mapping[str, Any], table: pd.DataFrame) -> tuple[str, list[tuple[str, str]]]:
    """What the chosen setting does on test stories, and in two words beside its controls."""
    chosen = saved.get("chosen")
    if not chosen:
        return "This sweep keeps no choice.", []
    what = f"{chosen['k']} heads by {chosen['alpha']:g} standard deviations"
    split = "test" if "test" in saved else SPLIT
    before, after = (_of(table, name, "Both", split) for name in ("baseline", chosen["name"]))
    if before is None or after is None:
        return f"Chosen: {what}.", []
    said = (
        f"Steering {what} takes Both from {percent(before)} to {percent(after)} % of "
        f"{int(after['n'])} {split} stories"
    )
    found: Mapping[str, Any] = saved.get("test", {}).get(chosen["name"], {}).get("difference", {})
    badges = []
    if "Both" in found:
        gain = found["Both"]
        said += f", a paired difference of {percent(gain)} points"
        good = gain["low"] > 0
        badges.append(("gains" if good else "no gain beyond chance", "good" if good else "bad"))
    if (rank := saved.get("specificity")) is not None:
        words = "specific" if rank["specific"] else "not specific"
        words = f"rank {rank['rank']} of {rank['of']} among its controls: {words}"
        badges.append((words, "good" if rank["specific"] else "bad"))
    else:
        badges.append(("no controls on test stories", "bad"))
    return said + ".", badges


def _controls(saved: Mapping[str, Any]) -> list[str]:
    found = []
    if rank := saved.get("specificity"):
        draws = "; ".join(
            f"{kind['n']} {CONTROLS[name]}: {percent(kind)}" for name, kind in rank["kinds"].items()
        )
        found.append(
            f"Both minus as it is on {rank['stories']} test stories: {100 * rank['gain']:.1f} "
            f"points; with steps of the same length {draws} (mean, lowest to highest)."
        )
    for side, words in SIDES.items():
        for split, gain in saved.get(side, {}).items():
            found.append(f"Cost, {words} on {split} stories: {percent(gain)} points.")
    if worse := saved.get("worse"):
        found.append(f"Made worse: {percent(worse)} % of the test stories.")
    return found


def _warnings(saved: Mapping[str, Any]) -> list[str]:
    said = [
        f"The model can but guess the {SIDES[side]} ({percent(right)} %, chance "
        f"{100 * right['chance']:.1f} %): it does not say what steering costs."
        for side, right in saved.get("guessed", {}).items()
    ]
    if not saved.get("test"):
        said.append("No test stories were asked: the choice was made on the stories shown.")
    if (rank := saved.get("specificity")) and not rank["specific"]:
        said.append("Random directions or heads with steps of this length may do as well.")
    if (seen := saved.get("unseen")) and not seen.get("known", True):
        said.append("What the vector's run has seen is not known.")
    return said


def _commands(folder: Path, saved: Mapping[str, Any]) -> list[tuple[str, str]]:
    config = saved.get("config", {})
    if not saved.get("vector"):
        return []
    vector = shlex.quote(str(folder / saved["vector"]))
    model = shlex.quote(str(config.get("model")))
    order = config.get("order", "1")
    return [
        (
            "ask the steered model all test questions",
            f"sally-anne evaluate --model {model} --order {order} --steer {vector}",
        ),
        (
            "see what else the vector changes",
            f"sally-anne side-effects --model {model} --vector {vector}",
        ),
        (
            "write a checkpoint with it",
            f"sally-anne bake --model {model} --vector {vector} --out steered-model",
        ),
    ]


def _tested(chosen: Mapping[str, Any] | None, table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Test stories, by measure: as it is, chosen, and of the draws the mean and their ends."""
    own = table[table["split"] == "test"]
    if own.empty or not chosen:
        return {}
    numbers = ["value", "low", "high", "n"]
    found = {
        name: own[own["cell"] == cell].groupby("measure")[numbers].first().to_dict("index")
        for name, cell in (("as it is", "baseline"), (CHOSEN, chosen["name"]))
    }
    for control, words in CONTROLS.items():
        drawn = own[own["direction"] == control]
        if drawn.empty or control == chosen["direction"]:
            continue
        ends = drawn.groupby("measure")["value"].agg(["mean", "min", "max", "count"])
        ends.columns = numbers
        found[f"{drawn['cell'].nunique()} {words}"] = ends.to_dict("index")
    return found


def _test_table(tested: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    there = {measure for measures in tested.values() for measure in measures}
    columns = [measure for measure in (*MEASURES, *SIDES) if measure in there]
    rows = [
        (name, *(percent(measures.get(measure, {})) for measure in columns))
        for name, measures in tested.items()
    ]
    caption = "Test stories (%): 95 % intervals; of draws mean, lowest and highest"
    return [Table(caption, ("setting", *columns), rows)] if rows else []


def _left_out(saved: Mapping[str, Any]) -> list[Table]:
    rows = [
        (str(Head(row["layer"], row["head"])), percent(row)) for row in saved.get("left_out") or ()
    ]
    title = "One head left out: loss of Both (points)"
    return [Table(title, ("head", "loss"), rows)] if rows else []


def _replies(folder: Path, reader: str) -> dict[str, Any]:
    """What was said of a few validation stories at every strength, by cell."""
    answers = run_table(folder, "answers.parquet", MADE_BY, "sweep")
    answers = answers[answers["split"] == SPLIT]
    right = f"{reader}_correct"
    if answers.empty or right not in answers:
        return {}
    stories = answers["story"].unique()
    kept = stories[np.linspace(0, len(stories), min(STORIES, len(stories)), False).astype(int)]
    answers = answers[answers["story"].isin(kept)]
    items = answers[answers["k"] == 0]
    found: dict[str, Any] = {
        "items": [
            {name: str(row[name]) for name in ("story", "condition", "answer")}
            for _, row in items.iterrows()
        ],
        "cells": {},
    }
    order = list(items["item_id"])
    names = ["direction", "heads", "k", "alpha"]
    if "heads" not in answers:
        answers = answers.assign(heads="probe")
    for (direction, heads, k, alpha), own in answers.groupby(names, sort=False):
        own = own.drop_duplicates("item_id").set_index("item_id").reindex(order)
        key = "unsteered" if k == 0 else f"{direction}/{heads}/{k}/{alpha:g}"
        said = own["reply"].fillna("").astype(str).str.slice(0, LONGEST)
        found["cells"][key] = [[text, bool(ok)] for text, ok in zip(said, own[right], strict=True)]
    return found
