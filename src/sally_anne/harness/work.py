"""What a run has to ask: the items of a task, and what their answers depend on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import fingerprint
from sally_anne.data.gridtom import splits
from sally_anne.data.gridtom.records import StorySet
from sally_anne.data.gridtom.stories import open_stories
from sally_anne.data.items import Benchmark, BenchmarkItem
from sally_anne.data.lineage import Lineage
from sally_anne.harness import examples, gridtom, views
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.drawing import Drawn, draw_items, sample_groups
from sally_anne.harness.items import Item
from sally_anne.harness.protocols import PROTOCOLS, protocol_of
from sally_anne.harness.tasks import find_task, own_file


@dataclass(frozen=True)
class Work:
    items: list[Item]
    about: dict[str, Any]  # what answers depend on beside model and vector
    breakdowns: tuple[str, ...] = ()  # kinds of tags by which accuracy is reported
    cells: tuple[str, ...] = ()  # those whose combinations have a TB, FB and both of their own
    missing: tuple[str, ...] = ()  # ids of items whose films or words are not here
    unseen: Unseen | None = None  # None where no vector has seen anything
    said: str = ""  # to be told to the user
    drawn: Drawn | None = None  # None without --limit
    departs: str = ""  # what of the authors' protocol is not known, or not as theirs


@dataclass(frozen=True)
class Unseen:
    """How many of the test stories were left out, as a vector was fitted on them."""

    left_out: int
    of: int
    known: bool = True  # whether the vector says what it was fitted on

    def __bool__(self) -> bool:
        return self.left_out > 0 or not self.known

    def __str__(self) -> str:
        if not self.known:
            return (
                "warning: the vector does not say which stories it was fitted on; these may be "
                "among them"
            )
        return f"{self.left_out} of {self.of} test stories left out: seen in fitting the vector"


def prepare(config: EvalConfig, fitted: Mapping[str, Any] | None = None) -> Work:
    """The items of ``config.task``, without test stories that a vector of these facts has seen."""
    if config.task == "gridtom":
        stories = open_stories(config.data, config.data_seed)
        chosen, unseen = choose_unseen(config, stories, fitted)
        about = {name: getattr(config, name) for name in ("order", "setting", "style")}
        about |= {"data": stories.fingerprint, **gridtom.shown(config.order)}
        items = items_of(config, stories, chosen)
        if config.prompting == "few-shot":
            shots = (config.shots, config.shots_seed)
            drawn = examples.of_gridtom(stories, chosen, *shots, config.split_seed)
            told = items_of(replace(config, setting="text"), stories, drawn)
            items = examples.with_examples(items, told, *shots)
        departs = ""
        if config.protocol == "official":
            departs = PROTOCOLS[protocol_of(config.task, config.order)].departs
            about |= {"protocol": config.protocol, "prompts": fingerprint(i.text for i in items)}
        if (template := gridtom.own_template(config.template)) is not None:
            about |= {"template": template, "prompts": fingerprint(i.text for i in items)}
        about |= drawn_how(config) | _prompted(config, items)
        counted = _drawn(config, items, ("map",))
        return Work(items, about, unseen=unseen, drawn=counted, departs=departs)
    known = find_task(config.task)
    how = views.shown(
        known,
        config.view,
        config.window,
        config.frames,
        config.template,
        config.max_pixels,
        config.prompting,
        config.protocol,
    )
    file = own_file(config.task)
    if file is not None and config.data is not None:
        raise HarnessError(f"--data is for other tasks: {file} names its own videos and pictures")
    data = file or config.data
    if data is None and known.layout:
        raise HarnessError(f"--task {config.task} needs --data: a folder that holds {known.layout}")
    there = known.load(data or Path())
    records = _chosen(config, known, there)
    lacks = partial(views.missing_parts, known)
    lacking = {r.item_id: parts for r in records if (parts := lacks(r, how))}
    here = [r for r in records if r.item_id not in lacking]
    if not here:
        item, parts = next(iter(lacking.items()))
        others = [v for v in known.views if not lacks(records[0], replace(how, view=v))]
        raise HarnessError(
            f"{data or config.task}: nothing that --view {how.view} shows is there (item {item} "
            f"lacks {' and '.join(parts)}); try --view {' or '.join(others)}"
        )
    said = [known.left_out] if known.left_out else []
    if config.prompting == "few-shot":
        words = views.told_in_words(known, how)
        whole = [r for r in there if not views.missing_parts(known, r, words)]
        shots = (config.shots, config.shots_seed)
        pool, asked = examples.set_apart(whole, here, *shots)
        if len(asked) < len(here):
            left = len(here) - len(asked)
            said += [f"{left} of {len(here)} items not asked: their stories are shown as examples"]
        here = asked
        items = examples.with_examples(
            views.items(known, here, how), list(views.items(known, pool, words)), *shots
        )
    else:
        items = list(views.items(known, here, how))
    about = {
        "view": how.view,
        "window": how.window,
        "sampling": str(how.sampling),
        "template": how.template,
        "data": fingerprint((i.item_id, i.text, i.options, i.answer) for i in items),
    }
    if how.view in views.FILMED and any(m.frames is not None for r in here for m in r.media):
        # Once they were spread over the whole film: such answers are not gone on with.
        about["frames"] = "cut, then spread"
    about |= _prompted(config, items)
    if how.protocol is not None:
        about |= {"protocol": config.protocol, "systems": fingerprint(i.system for i in items)}
    departs = how.protocol.departs if how.protocol else ""
    kinds = (known.breakdowns, known.cells)
    counted = _drawn(config, items, known.breakdowns)
    lines = "\n".join(said)
    return Work(items, about, *kinds, tuple(lacking), said=lines, drawn=counted, departs=departs)


def _prompted(config: EvalConfig, items: Sequence[Item]) -> dict[str, Any]:
    """What answers depend on where they are not asked for directly."""
    if config.prompting == "direct":
        return {}
    return {
        "prompting": config.prompting,
        "prompts": fingerprint((item.before, item.text) for item in items),
    }


def choose_stories(
    config: EvalConfig, stories: StorySet, seen: Collection[str] = ()
) -> tuple[dict[int, str], Unseen]:
    """Split of each story's number, of those of the split that were not seen.

    With a limit they are so many of them, drawn evenly over the maps.

    ``seen`` holds what stories say, see :mod:`sally_anne.data.lineage`.
    """
    wanted = "test" if config.split == "auto" else config.split
    if wanted == splits.PUBLISHED:
        members = splits.published(stories)
    else:
        members = splits.members(stories, wanted, config.split_seed)
    if not members:
        raise HarnessError(splits.why_none(stories, wanted))
    left = [i for i in members if stories.identity(i).content not in seen]
    if not left:
        raise HarnessError(
            f"all {len(members)} {wanted} stories of --split-seed {config.split_seed} were seen in "
            "fitting; give the split seed and data of the probing run, or other stories"
        )
    unseen = Unseen(len(members) - len(left), len(members))
    rows = [(str(i), {"map": (stories.identity(i).map,)}) for i in left]
    kept = sample_groups(rows, ("map",), config.limit, config.limit_seed)
    return dict.fromkeys((i for i in left if str(i) in kept), wanted), unseen


def drawn_how(config: EvalConfig) -> dict[str, str]:
    """Says in a run of GridToM that its stories were drawn; once they were the first so many."""
    return {} if config.limit is None else {"drawn": f"over maps, seed {config.limit_seed}"}


def _drawn(config: EvalConfig, items: Sequence[Item], kinds: Sequence[str]) -> Drawn | None:
    if config.limit is None:
        return None
    rows = [(item.story, {"map": (item.map,), **item.tags}) for item in items]
    return Drawn.of(rows, kinds, config.limit_seed)


def choose_unseen(
    config: EvalConfig, stories: StorySet, fitted: Mapping[str, Any] | None
) -> tuple[dict[int, str], Unseen | None]:
    """As :func:`choose_stories`, of test stories without those that ``fitted`` was fitted on.

    None stands beside them where no vector is given, or other than test stories are asked for.
    """
    if fitted is None or config.split not in ("auto", "test", splits.PUBLISHED):
        return choose_stories(config, stories)[0], None
    lineage = Lineage.read(fitted, "the vector")
    chosen, unseen = choose_stories(config, stories, lineage.seen if lineage else ())
    return chosen, replace(unseen, known=lineage is not None)


def items_of(
    config: EvalConfig, stories: StorySet, chosen: Mapping[int, str] | None = None
) -> list[Item]:
    """The items of the chosen stories, in their order; of the config's whole split by default."""
    chosen = choose_stories(config, stories)[0] if chosen is None else chosen
    records = (stories.story(i) for i in chosen)
    how = (config.order, config.setting, config.style, config.prompting)
    official = config.protocol == "official"
    protocol = PROTOCOLS[protocol_of(config.task, config.order)] if official else None
    template = gridtom.own_template(config.template)
    return list(gridtom.items(records, chosen, *how, protocol, template))


def _chosen(
    config: EvalConfig, known: Benchmark, records: Sequence[BenchmarkItem]
) -> list[BenchmarkItem]:
    """Records of the chosen split, of as many groups as the limit draws."""
    there = dict.fromkeys(record.split for record in records)
    wanted = config.split
    if wanted == "auto":
        wanted = known.default_split if known.default_split in there else next(iter(there), "")
    members = [record for record in records if record.split == wanted]
    if not members:
        raise HarnessError(
            f"{config.data or config.task}: no items of split {wanted or 'any'!r}; it has "
            f"{', '.join(there)}"
        )
    return draw_items(members, known.breakdowns, config.limit, config.limit_seed)[0]
