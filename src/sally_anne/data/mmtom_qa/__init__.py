"""MMToM-QA: what a person in a household video believes and wants (Jin et al., ACL 2024).

One question a line of ``questions.json``; the videos are folders of frames, each with a pickle that
tells at which frame each step of the episode ends. A question is about all that happens up to its
``end_time``, which counts steps from 0. Types: 1.1 true belief, 1.2 false belief, 1.3 belief
tracked over a longer time; 2.1 to 2.4 goals.
"""

from __future__ import annotations

import hashlib
import pickletools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sally_anne.core.errors import RecordError
from sally_anne.data.items import (
    Benchmark,
    Context,
    Media,
    Option,
    Question,
    Sampling,
    Setting,
    tags_of,
)
from sally_anne.data.mmtom_qa.scenes import Contents
from sally_anne.data.read import Field, find_files, json_lines, read_bytes, some
from sally_anne.data.samples import Sample, SampleSet
from sally_anne.data.samples import sample_set as from_samples

QUESTIONS = "questions.json"
LAYOUT = (
    "questions.json (or Benchmark/questions.json) and, for videos, "
    "videos/task_EPISODE/frame_intervals.pik and videos/task_EPISODE/script/0/Action_*_normal.png"
)
TYPES = ("1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "2.4")
CONDITIONS = {"1.1": "TB", "1.2": "FB"}
LABELS = ("a", "b")
# A question's text; each heading stands once, those of scene and actions at most once.
HEADINGS = ("What's inside the apartment:", "Actions taken by ", "Question:", "(a)", "(b)")
_FORM = re.compile(
    r"\s*(?:What's inside the apartment:(?P<scene>.*?))?"
    r"(?:Actions taken by (?P<person>[^:]*):(?P<actions>.*?))?"
    r"Question:(?P<question>.*?)\(a\)(?P<a>.*?)\(b\)(?P<b>.*?)"
    r"(?:Please respond with either a or b\s*\.?\s*)?\Z",
    re.DOTALL,
)
# Far more frames than any episode has.
MOST = 999_999
URL = "http://virtual-home.org/release/MMToMQA/benchmark.zip"
NOT_HERE = Media(url=URL)
# Where the archive may have been unpacked, below the benchmark's folder: there, or a folder deeper.
PLACES = ("videos", "benchmark")
INTERVALS = "frame_intervals.pik"
# Pickles are not loaded: of their instructions those that make nested lists of numbers are read.
NUMBERS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"}
LISTS = {"PROTO", "FRAME", "MARK", "STOP", "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "TUPLE"}
LISTS |= {"TUPLE2", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}


def load(folder: Path) -> list[Question]:
    """All questions of a folder, see :data:`LAYOUT`; RecordError names file, line and field."""
    folder = Path(folder)
    path = find_files(folder, (QUESTIONS, f"Benchmark/{QUESTIONS}"), LAYOUT)[0]
    videos = episode_media(folder)
    items: dict[str, Question] = {}
    for record in json_lines(read_bytes(path), path, "question"):
        item = read_record(record, videos)
        if item.item_id in items:
            record.get("episode").fail("with its type and times repeats a question; remove one")
        items[item.item_id] = item
    return some([*items.values()], path)


def read_record(
    record: Field, videos: Callable[[str, Field], Media] = lambda *_: NOT_HERE
) -> Question:
    # Published as a number with one decimal.
    published = record.get("question_type")
    kind = replace(published, value=str(published.value).strip()).one_of(TYPES)
    episode = record.get("episode").name().strip()
    start, end = (record.get(name).number() for name in ("start_time", "end_time"))
    parts = take_apart(record.get("question"))
    answer = record.get("answer")
    return Question(
        item_id=f"episode-{episode}/{kind}/{start}-{end}",
        benchmark="mmtom_qa",
        split="test",
        group=f"episode-{episode}",
        question=parts["question"],
        options=tuple(Option(label, parts[label]) for label in LABELS),
        answer=replace(answer, value=answer.stripped().lower()).one_of(LABELS),
        media=(videos(episode, record.get("end_time")),),
        context=Context(scene=parts["scene"], actions=parts["actions"]),
        tags=tags_of(
            type=kind,
            family="belief" if kind.startswith("1") else "goal",
            modality=[entry.text() for entry in record.get("test").items()],
            condition=CONDITIONS.get(kind, ""),
        ),
        polarity="least" if "less likely" in parts["question"] else "most",
        asked=record.get("question").text(),
        person=parts["person"],
    )


def take_apart(text: Field) -> dict[str, str]:
    """Scene, actions and person (empty where the text has none), question, and options a and b."""
    match = _FORM.fullmatch(text.text())
    parts = {k: part and part.strip() for k, part in match.groupdict().items()} if match else {}
    twice = any(text.value.count(heading) > 1 for heading in HEADINGS)
    if twice or not parts or "" in parts.values() or parts["a"] == parts["b"]:
        text.fail(
            f"must have these headings, each once and in this order: {', '.join(HEADINGS)}, and "
            "a text after each"
        )
    return {name: part or "" for name, part in parts.items()}


def picture(number: int) -> str:
    return f"Action_{number:04d}_0_normal.png"


def episode_media(folder: Path) -> Callable[[str, Field], Media]:
    places = ("", *(f"{place}/{deeper}" for place in PLACES for deeper in ("", "*/")))
    found = [path for place in places for path in sorted(folder.glob(f"{place}task_*"))]
    tasks = {path.name: path for path in reversed(found)}

    @cache
    def film(task: Path) -> tuple[tuple[tuple[int, int], ...], tuple[Path, ...]]:
        steps = read_intervals(task / INTERVALS)
        files = tuple(task / "script/0" / picture(number) for number in range(steps[-1][1] + 1))
        # The last step ends with the number of frames, at which there is no frame any more.
        return steps, files if files[-1].exists() else files[:-1]

    def media(episode: str, step: Field) -> Media:
        if (task := tasks.get(f"task_{episode}")) is None:
            return NOT_HERE
        steps, files = film(task)
        if step.number() >= len(steps):
            step.fail(f"must be a step of {task / INTERVALS}: has {len(steps)}, counted from 0")
        frames = range(min(steps[step.number()][1] + 1, len(files)))
        path = task / "script/0" if (task / "script/0").is_dir() else None
        return Media(path=path, url=URL, frames=tuple(frames), files=files)

    return media


def read_intervals(path: Path) -> tuple[tuple[int, int], ...]:
    """First frame and frame of the end of each step, from a pickled list of pairs.

    RecordError names an instruction of a pickle that makes anything else.
    """
    data = read_bytes(path, "; it has the frames at which steps end: unpack it with the frames")
    numbers: list[Any] = []
    try:
        for instruction, argument, _ in pickletools.genops(data):
            if instruction.name not in NUMBERS | LISTS:
                raise ValueError(f"uses instruction {instruction.name}; refused")
            numbers += [argument] if instruction.name in NUMBERS else []
        if not all(type(n) in (int, float) and 0 <= n <= MOST and n == int(n) for n in numbers):
            raise ValueError(f"has other numbers than frames from 0 to {MOST}")
        steps = list(zip(map(int, numbers[::2]), map(int, numbers[1::2]), strict=True))
        if not steps or any(first > last for first, last in steps):
            raise ValueError("must be pairs, each a first and a last frame, rising")
    except ValueError as error:
        raise RecordError(f"{path}: is no pickle of intervals ({str(error)[:100]})") from error
    return tuple(steps)


_WORDS = ("scene", "actions")
MMTOM_QA = Benchmark(
    name="mmtom_qa",
    official="mmtom_qa",
    load=load,
    # The official multimodal condition shows frames, scene and actions; the official video
    # condition shows the frames alone.
    views={"multimodal": _WORDS, "video": (), "text": _WORDS, "none": ()},
    default_view="multimodal",
    sampling=Sampling(count=8),
    breakdowns=("family", "type", "condition"),
    layout=LAYOUT,
)


# Pairs of belief statements for probes (GridToM paper, appendix H and section 4.4).
#
# The paper filters the belief questions by hand for true and false beliefs. Here both follow from
# the records: the right option is what the person believes, the description of the apartment says
# what is so, and the belief is true if the two agree. In the published questions the right
# statement says "is inside" for all of types 1.1 and 1.2 and "is not inside" for all of 1.3, and
# all of 1.3 are false beliefs: "not" alone would do; :func:`balanced` keeps as many of each.

# The two statements about one belief, the true one first: labelled inputs on one context.
BeliefPair = tuple[Sample, Sample]
MEANING = {
    "y_p": "does the statement fit the person's belief?",
    "y_o": "does the statement fit reality?",
}
FEATURES = {"says": "word inside or not inside in the statement"}
_GOAL = re.compile(r"If (?P<goal>[^,]+), which one of the following statements is more likely\b")
STATEMENT = re.compile(
    r"(?P<person>.+?) thinks that the (?P<thing>.+?) is (?P<no>not )?inside the (?P<place>.+?)\.?"
)


def sample_set(
    items: Iterable[Question], setting: Setting = "text", split_seed: int = 0
) -> SampleSet:
    """The samples of a probing run: belief pairs of MMToM-QA, :func:`balanced`, split by episode.

    BenchmarkError where a film is not there, or there are too few episodes.
    """
    items = list(items)
    films = {item.item_id: item.media[0] for item in items if item.media}
    pairs = [pair for pair in map(belief_pair, items) if pair]
    samples = [sample for pair in balanced(pairs) for sample in pair]
    if setting != "text":
        samples = [replace(sample, video=films[sample.context]) for sample in samples]
    facts = {"task": "mmtom_qa", "setting": setting}
    found = from_samples(samples, "belief pairs of MMToM-QA", split_seed, facts)
    return replace(found, meaning=MEANING, features=FEATURES, content=("says",))


def belief_pair(item: Question) -> BeliefPair | None:
    """The pair of one item; None where it asks for no belief that is surely true or false.

    Its container may not be described, or its published type say otherwise.
    """
    read = {o.label: STATEMENT.fullmatch(o.text.strip()) for o in item.options}
    goal = _GOAL.match(item.question)
    held, others = read.pop(item.answer or "", None), [*read.values()]
    other = others[0] if len(others) == 1 else None
    # Chance wording is no reason to fail; a pair that cannot be labelled is left out.
    if not (goal and held and other and item.tags.get("family") == ("belief",)):
        return None
    one, two = (match.group("person", "thing", "place") for match in (held, other))
    if one != two or held["no"] == other["no"]:
        return None
    so = Contents(item.context.scene).holds(held["place"], held["thing"])
    if so is None:
        return None
    condition = "FB" if bool(held["no"]) == so else "TB"
    if item.tags.get("condition", (condition,)) != (condition,):
        return None
    words = filter(None, (item.context.scene, item.context.actions, f"{goal['goal']}."))
    context = "\n".join(words)

    def sample(statement: re.Match[str]) -> Sample:
        says = "not-inside" if statement["no"] else "inside"
        true = statement is held
        return Sample(
            item_id=f"{item.item_id}/{says}",
            text=f"{context} Belief: {statement[0]}",
            labels={"y_p": true, "y_o": true is (condition == "TB")},
            group=item.group,
            tags={"condition": condition, "says": says},
            context=item.item_id,
        )

    return sample(held), sample(other)


def balanced(pairs: Sequence[BeliefPair]) -> list[BeliefPair]:
    """As many pairs whose true statement says "inside" as pairs where it says "not inside".

    Y_p then does not follow from "not" alone; Y_o still can, but within false beliefs. Of those
    that say the same, as many are of either condition as there can be, chosen by their names alone.
    """
    halves = [[p for p in pairs if p[0].tags["says"] == says] for says in ("inside", "not-inside")]
    count = min(map(len, halves))
    kept: list[BeliefPair] = []
    for half in halves:
        half.sort(key=lambda pair: hashlib.sha256(pair[0].context.encode()).digest())
        true, false = ([p for p in half if p[0].tags["condition"] == c] for c in ("TB", "FB"))
        true = true[: max(count // 2, count - len(false))]
        kept += true + false[: count - len(true)]
    return [pair for pair in pairs if pair in kept]
