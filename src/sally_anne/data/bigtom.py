"""BigToM: short stories with a true or a false belief (Gandhi et al., NeurIPS 2023).

The official files are one folder for each condition, one story a row. A folder is named
``{0|1}_{variable}_{condition}``: whether the story tells what the person believes at first (1) or
hides it (0); what is asked for; and what happens. In ``true_belief`` and ``false_belief`` something
changes and the person notices it or does not; in ``true_control`` and ``false_control`` something
else happens, which the person notices or not and which leaves the belief as it was.

A row is story; question; right answer; wrong answer. The same row of all folders is about the same
story, so its questions form a group.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Benchmark, BenchmarkItem, Context, two_options
from sally_anne.data.read import Field, csv_rows, needed, read_bytes

STORIES = "stories.csv"
# Of a clone of the authors' repository (cicl-stanford/procedural-evals-tom): what their script
# makes the conditions from, as seen from the repository, its data or its data/bigtom.
TEMPLATES = "bigtom.csv"
MAKE = "cd code/src && python generate_conditions.py"
# Where the folders may be below the benchmark's folder.
PLACES = ("", "conditions", "data/conditions")
VARIABLES = ("forward_belief", "forward_action", "backward_belief", "percept_to_belief")
CONDITIONS = {
    "true_belief": "TB",
    "false_belief": "FB",
    "true_control": "TB control",
    "false_control": "FB control",
}
INITIAL = {"0": "hidden", "1": "told"}
COLUMNS = ("story", "question", "right answer", "wrong answer")
LAYOUT = (
    "folders such as 0_forward_belief_false_belief (or conditions/... or data/conditions/...), "
    f"each with {STORIES}"
)
_ALMOST = re.compile(r"[01]_\w+")


class Cell(NamedTuple):
    """What a folder's ``name`` says.

    ``initial`` is the first belief, ``hidden`` or ``told``; ``variable`` is asked for; the
    ``condition`` is TB, FB, ``TB control`` or ``FB control``.
    """

    name: str
    initial: str
    variable: str
    condition: str

    @property
    def asked(self) -> str:
        """Belief or action; the questions about one are the same for all folders."""
        return "action" if self.variable.endswith("action") else "belief"


CELLS = {
    name: Cell(name, initial, variable, condition)
    for digit, initial in INITIAL.items()
    for variable in VARIABLES
    for happens, condition in CONDITIONS.items()
    for name in [f"{digit}_{variable}_{happens}"]
}


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions of a folder, see :data:`LAYOUT`, in the order of its folders' names.

    Raises:
        RecordError: there are no folders, a folder's name is not known, or a row is unusable;
            names file, line and field.
    """
    items: list[BenchmarkItem] = []
    firsts: dict[tuple[str, int], tuple[BenchmarkItem, Field]] = {}
    for path, cell in _files(Path(folder)):
        for number, (item, record) in enumerate(read_stories(read_bytes(path), path, cell)):
            first, at = firsts.setdefault((cell.asked, number), (item, record))
            texts = [{option.text for option in one.options} for one in (first, item)]
            if first.question != item.question or texts[0] != texts[1]:
                Field(item.question, record.where, "question").fail(
                    f"and answers differ from those of {at.where}; row {number + 1} of every "
                    "folder must be about one story"
                )
            items.append(item)
    return items


def read_stories(content: bytes, path: Path, cell: Cell) -> list[tuple[BenchmarkItem, Field]]:
    """Every row of a file as an item, with the first cell that it comes from."""
    # Which answer is a) is drawn row by row, as in the authors' code/src/evaluate_conditions.py.
    draws = random.Random(0)
    rows = enumerate(csv_rows(content, str(path), ";"), start=1)
    found = []
    for number, row in rows:
        draws.shuffle(right_first := [True, False])
        found.append((read_row(row, cell, number, right_first[0]), row[0]))
    if not found:
        raise RecordError(f"{path}: has no stories")
    return found


def read_row(row: list[Field], cell: Cell, number: int, right_first: bool = True) -> BenchmarkItem:
    """The question of one row, numbered from 1; ``right_first`` is what the authors' code draws."""
    if len(row) != len(COLUMNS):
        row[0].fail(
            f"must have {len(COLUMNS)} columns ({', '.join(COLUMNS)}) parted by semicolons, has "
            f"{len(row)}; put a column with a semicolon in quotation marks"
        )
    named = [replace(field, path=name) for field, name in zip(row, COLUMNS, strict=True)]
    story, question, right, wrong = map(needed, named)
    if right == wrong:
        named[3].fail("is the right answer too")
    item_id = f"{cell.name}/{number:03d}"
    options, answer = two_options(item_id, right, wrong)
    first = [option.label == answer for option in options].index(right_first)
    return BenchmarkItem(
        item_id=item_id,
        benchmark="bigtom",
        split="test",
        group=f"story-{number:03d}",
        question=question,
        options=options,
        answer=answer,
        context=Context(scene=story),
        tags={
            "variable": (cell.variable,),
            "condition": (cell.condition,),
            "initial_belief": (cell.initial,),
        },
        licence="MIT",
        drawn=(first, 1 - first),
    )


def _files(folder: Path) -> Iterator[tuple[Path, Cell]]:
    for place in (folder / name if name else folder for name in PLACES):
        found = sorted(place.glob(f"*/{STORIES}")) if place.is_dir() else []
        known = [(path, cell) for path in found if (cell := CELLS.get(path.parent.name))]
        if not known:
            continue
        for path in found:
            if path.parent.name not in CELLS and _ALMOST.fullmatch(path.parent.name):
                raise RecordError(
                    f"{path}: a folder must be named 0 or 1, one of {', '.join(VARIABLES)}, and "
                    f"one of {', '.join(CONDITIONS)}, joined by _"
                )
        yield from known
        return
    if clone := _clone(folder):
        made = clone / "data" / "conditions"
        if made.is_dir():
            raise RecordError(f"{folder}: has no condition; give {made}")
        raise RecordError(
            f"{folder}: its conditions are not made yet; run `{MAKE}` in {clone}, which writes "
            "them to data/conditions"
        )
    raise RecordError(f"{folder}: has no condition; it must hold {LAYOUT}")


def _clone(folder: Path) -> Path | None:
    """The clone of the authors' repository that this is, or is the data of; None if it is none."""
    folder = folder.absolute()
    places = (folder, *folder.parents[:2])
    return next((p for p in places if (p / "data" / "bigtom" / TEMPLATES).is_file()), None)


BIGTOM = Benchmark(
    name="bigtom",
    official="bigtom",
    load=load,
    views={"text": ("scene",), "none": ()},
    breakdowns=("variable", "condition", "initial_belief"),
    layout=LAYOUT,
    # The paper's headline figures.
    cells=("initial_belief", "variable"),
)
