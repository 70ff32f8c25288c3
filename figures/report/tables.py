"""The page of a run that is numbers and pictures: comparisons, transfers, benches, and their like.

Whatever its ``results.json`` holds is shown: each estimate with its interval, each list of records
as a table that sorts, and the run's own figures. What it comes to is said by its kind.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from sally_anne.core import run_folder
from sally_anne.core.errors import MissingRunFileError, RunFolderError
from sally_anne.core.files import reading
from sally_anne.core.run_folder import RESULTS
from sally_anne.figures.correlations import READERS
from sally_anne.figures.report.page import Page, facts, percent
from sally_anne.figures.transfer import PANELS
from sally_anne.hooks.saved_run import saved_results

Saved = Mapping[str, Any]
# What is told of a run: the sentence, what follows it, and badges with a tone each.
Told = tuple[str, Sequence[str], Sequence[tuple[str, str]]]
ESTIMATE = {"value", "low", "high"}
# What stands elsewhere in the page.
ELSEWHERE = ("config", "about", "files", "models")
LIMIT = 1000  # rows of one table in the page


@dataclass(frozen=True)
class Form:
    """How a kind of run is told: its command, the page's title, and what it comes to."""

    command: str
    title: str
    tell: Callable[[Saved], Told]


def page(folder: Path, form: Form) -> Page:
    """The page of such a run; ``form`` is that of its kind.

    Raises:
        RunFolderError: the folder is damaged, or not as its command left it.
    """
    made_by = f"sally-anne {form.command}"
    path = folder / RESULTS
    saved = saved_results(path, made_by)
    if saved is None:
        raise MissingRunFileError(f"{path} is missing; `{made_by}` makes it")
    config = saved["config"]
    with reading(path, RunFolderError, made_by):
        sentence, verdicts, badges = form.tell(saved)
    asked = {"numbers": estimates(saved), **records(saved)}
    return Page(
        kind="tables",
        title=form.title,
        parts=[str(config[name]) for name in ("model", "task", "data") if config.get(name)]
        or [folder.resolve().name],
        sentence=sentence,
        verdicts=verdicts,
        badges=badges,
        data={
            "tables": {
                name: {"columns": table.head(LIMIT), "rows": len(table)}
                for name, table in asked.items()
                if len(table)
            }
        },
        more={"pictures": list(pictures(folder))},
        provenance=facts(config, about=saved.get("about"), counts=saved.get("counts")),
        repeat=f"{made_by} --config {shlex.quote(str(folder))}",
    )


def estimates(saved: Saved) -> pd.DataFrame:
    """Every number with an interval, by where it stands: ``of, value, low, high, n``."""
    return pd.DataFrame(list(_estimates(saved, ())))


def _estimates(found: Any, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    if not isinstance(found, Mapping):
        return
    if found.keys() >= ESTIMATE:
        numbers = {name: found.get(name) for name in ("value", "low", "high", "n")}
        yield {"of": ", ".join(path), **numbers}
        return
    for name, one in found.items():
        if path or name not in ELSEWHERE:
            yield from _estimates(one, path if name == "results" else (*path, str(name)))


def records(saved: Saved) -> dict[str, pd.DataFrame]:
    """Every list of records, as a table without columns in which nothing stands.

    Of an estimate its value, ``_low`` and ``_high``.
    """
    found = {}
    for name, rows in saved.items():
        if isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows):
            table = pd.DataFrame([dict(_flat(row)) for row in rows])
            found[name] = table.loc[:, (table.notna() & (table != "")).any()]
    return found


def _flat(row: Saved) -> Iterator[tuple[str, Any]]:
    for name, one in row.items():
        if isinstance(one, Mapping) and "value" in one:
            yield name, one["value"]
            yield from ((f"{name}_{end}", one[end]) for end in ("low", "high") if end in one)
        else:
            yield name, ", ".join(map(str, one)) if isinstance(one, list) else one


def pictures(folder: Path) -> Iterator[tuple[str, str]]:
    """The run's figures: names, and PNG files in base64."""
    for path in sorted([*folder.glob("*.png"), *folder.glob("figures/*.png")]):
        yield path.stem, base64.b64encode(path.read_bytes()).decode()


def _compared(saved: Saved) -> Told:
    """The first reader's measure over all that was asked, of those who understood a reply."""
    # It loads torch, which no other page needs.
    from sally_anne.harness.compare.printed import understood

    table = understood(pd.DataFrame(saved["results"]))
    whole = table[table["kind"] == ""]
    there = set(whole["reader"])
    reader = next(r for r in (*READERS, *whole["reader"]) if r in there)
    own = whole[whole["reader"] == reader].to_dict("records")
    told = [row for row in own if row["measure"] == "Both"] or own[:1]
    said = [
        f"{row['measure']}: {row['run']} {_share(row, 'second')} %, {row['against']} "
        f"{_share(row, 'first')} %, a paired difference of {_share(row, 'difference', '+')} points "
        f"over {row['n']} (p {row['p']:.2g}), read by {row['reader']}."
        for row in told
    ]
    badges = [("differ", "good") if told[0]["p"] < 0.05 else ("no difference shown", "plain")]
    left = [str(words) for words in saved.get("left_out", [])]
    return said[0], [*said[1:], *left], badges


def _share(row: Saved, name: str, sign: str = "") -> str:
    """A number of a flat row with its two ends."""
    ends = {"value": name, "low": f"{name}_low", "high": f"{name}_high"}
    return percent({end: row[column] for end, column in ends.items()}, sign)


def _transferred(saved: Saved) -> Told:
    """Of each measure, how many cells off the diagonal are above their control."""
    off = [c for c in saved["cells"] if c["fitted_on"] != c["tested_on"] and c["value"] is not None]
    said = []
    for measure, (words, *_) in PANELS.items():
        if own := [cell for cell in off if cell["measure"] == measure]:
            above, values = sum(bool(cell["above"]) for cell in own), [c["value"] for c in own]
            said.append(
                f"{words[0].upper() + words[1:]}: {above} of {len(own)} above their control, "
                f"values {min(values):.2f} to {max(values):.2f}."
            )
    if not said:
        return "Nothing could be tested on another part.", [], []
    probes = [cell for cell in off if cell["measure"] == "accuracy"]
    carried = bool(probes) and all(cell["above"] for cell in probes)
    badges = [("probes carry over" if carried else "probes do not all carry over", "plain")]
    return said[0], said[1:], badges


def _localised(saved: Saved) -> Told:
    """Recall of each localiser, by kind of planted model."""
    said = []
    for kind in dict.fromkeys(row["kind"] for row in saved["rows"]):
        own = [row for row in saved["rows"] if row["kind"] == kind]
        found = ", ".join(f"{row['localiser']} {_plain(row['recall'])}" for row in own)
        said.append(f"Recall of the planted heads, {kind}, {own[0]['models']} models: {found}.")
    return said[0], said[1:], []


def _plain(found: Saved) -> str:
    said = f"{found['value']:.2f}"
    return f"{said} [{found['low']:.2f}, {found['high']:.2f}]" if "low" in found else said


def _aside(saved: Saved) -> Told:
    """What a vector does to neutral words, and to each task."""
    said = [f"The next word of neutral prompts moves by {_plain(saved['kl'])} nats."]
    for task, found in saved["tasks"].items():
        right = found["overall"]
        said.append(
            f"{task}: right {percent(right['plain'])} % as it is, {percent(right['steered'])} % "
            f"steered, a paired difference of {percent(right['difference'])} points."
        )
    ends = [one["overall"]["difference"] for one in saved["tasks"].values()]
    costs = any(one["high"] < 0 for one in ends)
    return said[0], said[1:], [("costs answers", "bad")] if costs else []


def _biased(saved: Saved) -> Told:
    """How often the right option is found without what it is asked of."""
    found = saved["results"]["overall"]
    said = (
        f"Without context the right option is found in {percent(found['no_context'])} % of "
        f"{found['no_context']['n']} questions; the distractors of {percent(found['biased'])} % "
        "give it away."
    )
    return said, [], []


def _planned(saved: Saved) -> Told:
    """By inverse planning: by the rule that answers for the run, which stands first."""
    results = saved["results"]
    first, found = next(iter(results.items()))
    said = (
        f"Right {percent(found['overall'])} %, over {found['overall']['n']} questions, by the "
        f"rule {first}; both forms of the rule choose the same in "
        f"{100 * results['agreement']:.1f} %."
    )
    verdicts = [f"{n} questions without an answer: {why}" for why, n in results["problems"].items()]
    return said, verdicts, []


_OF = {
    run_folder.COMPARED: Form("compare", "Evaluations compared", _compared),
    run_folder.TRANSFER: Form("transfer", "Fitted on one, tested on another", _transferred),
    run_folder.LOCALISATION: Form("localisation", "Who finds the planted heads", _localised),
    run_folder.SIDE_EFFECTS: Form("side-effects", "What a vector moves beside", _aside),
    run_folder.DISTRACTORS: Form("distractors", "Answers found without context", _biased),
    run_folder.LIMP: Form("limp", "LIMP: answers by inverse planning", _planned),
    run_folder.BIP_ALM: Form("bip-alm", "BIP-ALM: answers by inverse planning", _planned),
}
# By the kind's name, as a run folder says it.
FORMS = {kind.name: form for kind, form in _OF.items()}
