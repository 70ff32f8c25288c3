"""One schema for labelled inputs: texts or chats, with pictures or a film, for probes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, get_args, runtime_checkable
from unicodedata import normalize

import numpy as np

from sally_anne.core.console import Shown, many, tally
from sally_anne.core.errors import BenchmarkError, MediaError, OptionError, RecordError
from sally_anne.core.media import FRAME_PIXELS, FRAMES, frames_of, pixels_of, read_picture
from sally_anne.data.items import Media, Sampling
from sally_anne.data.media import read_clip, shape_of
from sally_anne.data.read import Field, named_lines
from sally_anne.hooks.identity import SEEN

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
ROLES = ("system", "user", "assistant")
# Columns of a table of samples; a label or tag of such a name would hide one.
RESERVED: tuple[str, ...] = ("item_id", "group", "split", "layer", "head", "op")
RESERVED += ("samples", "stories", "unconverged_heads")  # counts beside labels in results.json
# Of a table of heads; a condition of such a name would hide one.
MEASURES = ("accuracy", "log_loss", "auc", "worst", "chance")
# Of a film in a file.
SAMPLING = Sampling(count=FRAMES)
# Of the groups that are split here, this many in ten train and validate; the others test.
TRAIN, VALIDATION = 6, 2
# How often they are drawn again if some class would not train.
DRAWS = 100
Label = bool | int | str
Frames = np.ndarray


@runtime_checkable
class Drawn(Protocol):
    """A film that is drawn on demand: its shape, and ``uint8 [F, height, width, 3]``."""

    @property
    def shape(self) -> tuple[int, int, int]: ...

    def frames(self) -> Frames: ...


@dataclass(frozen=True)
class Sample:
    """One labelled input. Activations are read at the end of its text, or of its last message.

    Attributes:
        text: what the user says, without white space at its end, as activations would be read
            there; or give ``messages``, a chat with ``role`` and ``content`` each.
        images: frames of one size: files, or arrays ``uint8 [height, width, 3]``.
        video: a film: a file, a part, frames ``uint8 [F, height, width, 3]``, or what draws them.
        group: of samples that are never split; by default a pair, or the sample itself.
        split: None to have it drawn.
        tags: further columns of tables.
        context: samples of one group and context have the same pictures and words but for their
            ends, so that these are read once; empty where nothing is shared.
        pair: a key of two samples of one group, which differ in one thing and in the ``answer``,
            the word that the model should say after it.
        sampling: which frames of a film in a file are taken.
        sound: played before the text: a file, a film, its part, or ``float [S]``, 16,000 a second.
    """

    item_id: str
    text: str = ""
    messages: tuple[Mapping[str, str], ...] = ()
    images: tuple[Path | Frames, ...] = ()
    video: Path | Media | Frames | Drawn | None = None
    labels: Mapping[str, Label] = field(default_factory=dict)
    group: str = ""
    split: Split | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    context: str = ""
    # Not in hashes of the samples that heads are read from, which are older than these.
    pair: str = field(default="", repr=False)
    answer: str = field(default="", repr=False)
    sampling: Sampling = field(default=SAMPLING, repr=False)
    sound: Path | Media | np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            self._fail(f"its text is {self.text!r:.60}, not a text")
        if bool(self.text.strip()) == bool(self.messages):
            self._fail("give text or messages, and not both" if self.messages else "it has no text")
        for turn in self.messages:
            said = turn.get("content") if isinstance(turn, Mapping) else None
            if not (isinstance(said, str) and said.strip() and turn.get("role") in ROLES):
                self._fail(f"its message {turn!r:.60} needs a content and a role of {ROLES}")
        messages = tuple({**turn, "content": turn["content"].rstrip()} for turn in self.messages)
        if messages and messages[-1]["role"] == "system":
            self._fail("its messages must end with the user's or the assistant's")
        if self.images and self.video is not None:
            self._fail("give images or a video, not both")
        if self.split not in (None, *SPLITS):
            self._fail(f"its split is {self.split!r}, not one of {', '.join(SPLITS)}")
        labels = {n: v.item() if isinstance(v, np.generic) else v for n, v in self.labels.items()}
        labels = {n: v.strip() if isinstance(v, str) else v for n, v in labels.items()}
        for name, value in labels.items():
            if not isinstance(value, bool | int | str) or value == "":
                self._fail(f"its label {name!r} is {value!r}, no truth value, whole number or text")
        turns = (turn["content"] for turn in messages)
        for value in (self.text, *turns, *labels.values(), *self.tags.values()):
            if any("\ud800" <= one <= "\udfff" for one in str(value)):
                self._fail(f"{value!r:.60} holds half of a surrogate pair")
        shown = self.video
        if isinstance(shown, str):
            shown = Path(shown)
        elif not isinstance(shown, Path | Media | Drawn | None):
            shown = self._pixels(frames_of, None, shown)
        images = tuple(
            Path(i) if isinstance(i, str | Path) else self._pixels(pixels_of, i)
            for i in ((self.images,) if isinstance(self.images, str | Path) else self.images)
        )
        # 1, 1.0 and "1 " are one, as tables that are joined make one of the other.
        group = "" if self.group is None else normalize("NFC", str(self.group)).strip()
        group = re.sub(r"^(-?\d+)\.0+$", r"\1", group)
        for name, value in {
            "text": self.text.rstrip(), "messages": messages, "labels": labels, "video": shown,
            "images": images, "group": group or self.pair or self.item_id,
            "sound": Path(self.sound) if isinstance(self.sound, str) else self.sound,
        }.items():  # fmt: skip
            object.__setattr__(self, name, value)
        for name in (*self.labels, *self.tags):
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) or name in RESERVED:
                known = f"take letters, digits, _ and -, and none of {', '.join(RESERVED)}"
                self._fail(f"{name!r} cannot name a label or tag: {known}")
        for name in self.labels.keys() & self.tags.keys():
            self._fail(f"{name!r} names a label and a tag")
        if (condition := self.tags.get("condition")) in MEASURES:
            self._fail(f"its condition {condition!r} is the name of a measure: take another")

    def _fail(self, what: str) -> NoReturn:
        raise RecordError(f"sample {self.item_id}: {what}")

    def _pixels(self, read: Callable[..., Any], *given: Any) -> Any:
        try:
            return read(*given)
        except MediaError as error:
            raise MediaError(f"sample {self.item_id}: {error}") from error

    @property
    def turns(self) -> tuple[Mapping[str, str], ...]:
        """The chat; a text is what the user says."""
        return self.messages or ({"role": "user", "content": self.text},)

    @property
    def content(self) -> str:
        return self.turns[-1]["content"]

    @property
    def shows(self) -> bool:
        return bool(self.images) or self.video is not None

    def frames(self) -> Frames:
        """What is seen, ``uint8 [F, height, width, 3]``; MediaError if a file cannot be read."""
        if isinstance(self.video, Drawn):
            return self.video.frames()
        if isinstance(self.video, np.ndarray):
            return self.video
        if self.video is not None:
            return read_clip(_media(self.video), "full", self.sampling).frames
        seen = [read_picture(i, FRAME_PIXELS) if isinstance(i, Path) else i for i in self.images]
        if any(picture.shape != seen[0].shape for picture in seen):
            raise MediaError(f"sample {self.item_id}: its images differ in size; scale them alike")
        return np.stack(seen)

    def waveform(self) -> np.ndarray | None:
        """Its sound, ``float [S]``; None if it has none. MediaError if a file cannot be read."""
        if not isinstance(self.sound, Path | Media):
            return self.sound
        from sally_anne.data.speech import read_sound  # heavy

        part = _media(self.sound)
        return read_sound(part.path or Path(part.url), part.start, part.end)

    def shown(self, alike: bool = False) -> str:
        """Hash of what the model is given; ``alike`` without case, blanks and Unicode's forms."""
        media = *self.images, self.video, self.sound
        pixels = (m.tobytes() if isinstance(m, np.ndarray) else repr(m).encode() for m in media)
        words = [(turn["role"], turn["content"]) for turn in self.turns]
        if alike:
            words = [(role, " ".join(normalize("NFKC", t).casefold().split())) for role, t in words]
        return hashlib.sha256(repr(words).encode() + b"".join(pixels)).hexdigest()

    def shape(self) -> tuple[int, int, int] | None:
        """Frames, height and width, if something is seen. A film in a file is not decoded."""
        if isinstance(self.video, Drawn):
            return self.video.shape
        if isinstance(self.video, Path | Media):
            return shape_of(_media(self.video), "full", self.sampling)
        if isinstance(self.video, np.ndarray):
            return self.video.shape[:3]
        if not self.images:
            return None
        first = replace(self, images=self.images[:1]).frames()
        return len(self.images), *first.shape[1:3]


class Samples(Shown, list[Sample]):
    """A list of samples that says how many there are, of which splits and labels."""

    def _shown(self) -> dict[str, object]:
        names = dict.fromkeys(name for sample in self for name in sample.labels)
        groups = many(len({s.group for s in self}), "groups")
        facts: dict[str, object] = {"size": f"{len(self)} of {groups}"}
        facts["with pictures or film"] = sum(s.shows for s in self)
        facts["splits"] = tally(s.split or "not drawn" for s in self)
        return facts | {n: tally(s.labels[n] for s in self if n in s.labels) for n in names}

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return Samples(found) if isinstance(at, slice) else found


@dataclass(frozen=True)
class SampleSet:
    """Samples of one source, each in a split, and what a run says of them.

    Attributes:
        noun: what groups are.
        facts: what else was chosen; runs whose facts differ are different runs.
        meaning, features: what some labels and tags are, in words; others go by their names.
        content: tags that say what a sample's own words name. Within one condition they decide the
            labels, so that their rows of the audit are over all conditions.
        identities: content of each group, by which other runs know it again.
        clusters: what each group is drawn with for intervals, as its map; itself by default.
        types: what the own words of a sample are, by its name, where these recur: of control tasks.
    """

    samples: list[Sample]
    source: str
    fingerprint: str
    noun: str = "groups"
    facts: Mapping[str, str] = field(default_factory=dict)
    meaning: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, str] = field(default_factory=dict)
    content: tuple[str, ...] = ()
    identities: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def lineage(self) -> Lineage:
        seen = {(s.split, self.identities[s.group]) for s in self.samples if s.split != "test"}
        return Lineage(*(frozenset(i for own, i in seen if own == split) for split in SPLITS[:2]))

    @property
    def senses(self) -> dict[str, Any]:
        """Whether there are ``videos`` (or pictures) and ``sounds``, as a model is opened for."""
        sounds = any(sample.sound is not None for sample in self.samples)
        return {"videos": any(sample.shows for sample in self.samples), "sounds": sounds}

    @property
    def groups(self) -> int:
        return len({sample.group for sample in self.samples})


def sample_set(
    samples: Sequence[Sample], source: str, seed: int = 0, facts: Mapping[str, str] | None = None
) -> SampleSet:
    """Samples of any source, each in a split; BenchmarkError where a film is not there."""
    drawn = with_splits(samples, seed)
    said: dict[str, str] = {}
    for sample in drawn:
        if isinstance(sample.video, Media) and not sample.video.path:
            raise BenchmarkError(
                f"the film of {sample.item_id} is not there; take --setting text, or get it from "
                f"{sample.video.url or 'those who made it'}"
            )
        said[sample.group] = f"{said.get(sample.group, '')}{sample.turns}"
    return SampleSet(
        samples=drawn,
        source=source,
        fingerprint=fingerprint(samples),
        facts={"splits": f"seed {seed}", **(facts or {})},
        identities={g: hashlib.sha256(s.encode()).hexdigest()[:16] for g, s in said.items()},
    )


def read_samples(path: Path | str) -> Samples:
    """Samples of a JSON-lines file, with the fields of :class:`Sample` and the same labels each."""
    path = Path(path)
    known = [one.name for one in fields(Sample) if one.name not in ("context", "sampling")]
    lines = named_lines(path, "sample", "item_id", "line-{:05d}", known, "split")
    samples = Samples(_sample(name, record, path.parent) for name, record in lines.items())
    places = {name: record.where for name, record in lines.items()}
    paired(samples, places)
    _require_alike(samples, places)
    return samples


def paired(
    samples: Iterable[Sample], places: Mapping[str, str] | None = None
) -> list[tuple[Sample, Sample]]:
    """The two samples of each ``pair``; RecordError, with their ``places`` by name, for no pair."""
    pairs: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.pair:
            pairs.setdefault(sample.pair, []).append(sample)
    for key, members in pairs.items():
        if why := _no_pair(members):
            names = [s.item_id for s in members[:3]]
            where = ", ".join((places or {}).get(n, f"sample {n}") for n in names)
            raise RecordError(f"{where}: pair {key!r} {why}")
    return [(a, b) for a, b in pairs.values()]


def _no_pair(members: Sequence[Sample]) -> str:
    """What is wrong with samples of one key, and what to do; empty if they are a pair."""
    if len(members) != 2:
        return f"has {len(members)} sample(s): give two one key, and no others"
    one, two = members
    for what in ("group", "split"):
        if (a := getattr(one, what)) != (b := getattr(two, what)):
            return f"is in the {what}s {a} and {b}: give both the same, as pairs are never split"
    answers = [sample.answer.strip() for sample in members]
    if not all(answers) or answers[0] == answers[1]:
        return f"has the answers {answers}: give each of the two the word that is right after it"
    if one.shown() == two.shown():
        return "shows the model the same twice: let the two differ in what decides the answer"
    if all(s.content.endswith(a) for s, a in zip(members, answers, strict=True)):
        cut = [(*s.turns[:-1], s.content.removesuffix(s.answer.strip())) for s in members]
        if cut[0] == cut[1]:
            return "differs in nothing but the answers, with which its texts end: cut them off"
    return ""


def _require_alike(samples: Sequence[Sample], places: Mapping[str, str] | None = None) -> None:
    """RecordError for labels unlike the first sample's, and a group in two splits."""
    kinds: dict[str, str] = {}
    splits: dict[str, Split | None] = {}
    for sample in samples:
        place = (places or {}).get(sample.item_id, f"sample {sample.item_id}")
        here = {name: type(value).__name__ for name, value in sample.labels.items()}
        if here != (kinds := kinds or here):
            raise RecordError(f"{place}: its labels are {here}, those of the first {kinds}")
        if (other := splits.setdefault(sample.group, sample.split)) != sample.split:
            raise RecordError(
                f"{place}: it is in {sample.split}, another of its group {sample.group!r} in "
                f"{other}, and a group is never split"
            )


def splits_of(groups: int) -> list[Split]:
    """The split of each of so many groups: six, two and two in ten."""
    if groups < len(SPLITS):
        raise OptionError(f"so few pairs make {groups} groups; three splits need at least 6 pairs")
    validation = max(1, groups * VALIDATION // 10)
    train = min(max(1, groups * TRAIN // 10), groups - validation - 1)
    counts = train, validation, groups - train - validation
    return [split for split, count in zip(SPLITS, counts, strict=True) for _ in range(count)]


def with_splits(samples: Sequence[Sample], seed: int = 0) -> list[Sample]:
    """Each sample in a split; groups without one are drawn, six in ten to train."""
    _require_alike(samples)
    loose = sorted({sample.group for sample in samples if sample.split is None})
    if not loose:
        return list(samples)
    if len(loose) < len(SPLITS):
        raise RecordError(
            f"the samples are of {len(loose)} groups, which are never split: train, validation "
            "and test need at least one each. Give more groups, or each sample a split"
        )
    for draw in (str(seed), *(f"{seed}/again-{i}" for i in range(DRAWS))):
        # A draw in which a class does not train is drawn again.
        loose.sort(key=lambda group: hashlib.sha256(f"{draw}/{group}".encode()).digest())
        drawn = dict(zip(loose, splits_of(len(loose)), strict=True))
        found = [s if s.split else replace(s, split=drawn[s.group]) for s in samples]
        if not untrained(found):
            break
    return found


def untrained(samples: Sequence[Sample]) -> str:
    """What is to be said of classes that no training sample has; empty if there are none."""
    every = [(s, label) for s in samples for label in s.labels.items()]
    trained = {label for s, label in every if s.split == "train"}
    first: dict[tuple[str, Label], str] = {}
    for sample, label in every:
        first.setdefault(label, sample.item_id)
    lacking = [f"{n} = {v} (sample {i})" for (n, v), i in first.items() if (n, v) not in trained]
    if not trained or not lacking:
        return ""
    advice = "leave such samples out, or give some of their groups to training"
    return f"no training sample has the label {', '.join(lacking[:3])}: {advice}"


def copies(samples: Sequence[Sample]) -> str:
    """What is to be said of test samples that were trained on as well; empty if there are none."""
    trained = {sample.shown(alike=True) for sample in samples if sample.split == "train"}
    copied = [s.shown(alike=True) in trained for s in samples if s.split == "test"]
    found = f"{sum(copied)} of {len(copied)} test samples are copies of training samples"
    advice = "so accuracy may be memory alone: give copies one group"
    return f"{found}, {advice}" if any(copied) else ""


def fingerprint(samples: Sequence[Sample]) -> str:
    """SHA-256 of samples and of the files of their pictures, films and sounds."""
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(repr(replace(sample, images=(), video=None, sound=None)).encode())
        for media in (*sample.images, sample.video, sample.sound):
            # Frames of a folder go by the words alone, as in the runs that were made of them.
            if isinstance(media, Media) and media.path and not media.files:
                digest.update(f"{media.start} {media.end} {media.frames}".encode())
                media = media.path
            if isinstance(media, Path):
                with media.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").hexdigest().encode())
            elif isinstance(media, np.ndarray):
                digest.update(f"{media.shape}".encode() + media.tobytes())
    return digest.hexdigest()


def _sample(name: str, record: Field, folder: Path) -> Sample:
    only_chat = record.has("messages") and not record.has("text")
    fields: dict[str, Any] = {
        "text": "" if only_chat else record.get("text").text(),
        "messages": tuple(turn.value for turn in record.opt("messages", Field.items) or []),
        "images": tuple(image.file(folder) for image in record.opt("images", Field.items) or []),
        **{m: record.opt(m, lambda file: file.file(folder)) for m in ("video", "sound")},
        "labels": {k: label.value for k, label in record.get("labels").entries().items()},
        "split": record.opt("split", lambda split: split.one_of(SPLITS)),
        "tags": {k: tag.text() for k, tag in (record.opt("tags", Field.entries) or {}).items()},
        **{key: record.opt(key, Field.text) or "" for key in ("group", "pair", "answer")},
    }
    if not fields["labels"]:
        record.get("labels").fail("names no label")
    try:
        return Sample(name, **fields)
    except RecordError as error:
        record.fail(str(error))


def _media(video: Path | Media) -> Media:
    return Media(path=video) if isinstance(video, Path) else video


@dataclass(frozen=True)
class Lineage:
    """Hashes of the stories that trained probes, and of those that chose heads, K and alpha."""

    train: frozenset[str] = frozenset()
    validation: frozenset[str] = frozenset()

    @classmethod
    def read(cls, facts: Mapping[str, Any] | None, where: str) -> Lineage | None:
        """From a run's config or a vector's facts, if they keep one; ``where`` is for errors."""
        if (kept := (facts or {}).get(SEEN)) is None:
            return None
        try:
            return cls(frozenset(kept["train"]), frozenset(kept["validation"]))
        except (KeyError, TypeError) as error:
            raise BenchmarkError(f"{where}: its entry {SEEN!r} cannot be read ({error})") from error

    @property
    def seen(self) -> frozenset[str]:
        return self.train | self.validation

    def chosen_on(self, content: Iterable[str]) -> Lineage:
        return replace(self, validation=self.validation | frozenset(content))

    def facts(self) -> dict[str, list[str]]:
        return {"train": sorted(self.train), "validation": sorted(self.validation)}
