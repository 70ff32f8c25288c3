"""``sally-anne looks RUN``: where the heads of a finished run look from the token that is read.

Of each head's attention the shares that go to the frames of the film, to each sentence, to the
question or statement, to the marks of the prompt's layout, and to the first token, which takes what
a head has no use for. Kept for each input, and summed up next to random heads; and what the answer
loses where heads may not look at a part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from sally_anne.core.bootstrap import draw_groups, estimate_shares, too_few
from sally_anne.core.console import (
    Console,
    counting,
    in_python,
    number,
    percent,
    print_lines,
    print_table,
)
from sally_anne.core.errors import ProbingError
from sally_anne.core.folder import Journal, claimed
from sally_anne.core.folder import fingerprint as digest_of
from sally_anne.core.options import check_options
from sally_anne.core.run import AGAINST, USED, Head, Run, heads_of, symbol, verdicts
from sally_anne.data.pairs import ContrastPair
from sally_anne.data.samples import Frames, Sample, fingerprint
from sally_anne.experiments.config import LooksConfig
from sally_anne.figures import style
from sally_anne.hooks.capture import Looks
from sally_anne.hooks.edit import Redirect
from sally_anne.hooks.positions import ALL
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prefix import extend, prefill
from sally_anne.models.processor import eye_of, plain, sensed_ids
from sally_anne.models.prompts import to_model
from sally_anne.probing.activations import reopen
from sally_anne.probing.config import Position
from sally_anne.probing.extraction import Prepared, check_samples, fill_store, prompts_at
from sally_anne.probing.interchange import answer_ids, prompts_of, read_pair

FOLDER = SITE = "looks"
RANDOM = "random sets"
LOST = "answer lost"  # the side of what is lost where a part is not looked at
ASKED, MARKS, FIRST = "question", "marks", "first token"
# A sentence ends behind a letter's full stop, so that "1." begins one, and where a line does.
_END = re.compile(r"(?<=[^\W\d][.!?])\s+|\n+")
# What is asked or stated begins with the last sentence of this form, such as "Belief: ...".
_NAMED = re.compile(r"\w+:\s+\S")
# Heads that the figure shows by themselves; a share below which a part is not shown.
SINGLY, LEAST = 3, 0.02
# Of sides, of heads and sets of them, and of parts.
Names = tuple[Sequence[str], Sequence[str], Sequence[str]]


def frame_parts(loaded: LoadedModel, frames: int) -> list[str]:
    """Names of a film's steps: ``frame 1``, or ``frames 1-2`` where a vision tower joins two."""
    pictures = loaded.showing.kind == "image"
    joined = 1 if pictures else int(getattr(eye_of(loaded), "temporal_patch_size", None) or 1)
    ends = [(n, min(n + joined - 1, frames)) for n in range(1, frames + 1, joined)]
    return [f"frame {a}" if a == b else f"frames {a}-{b}" for a, b in ends]


def sentence_parts(loaded: LoadedModel, sample: Sample, prompt: str) -> list[tuple[int, int, str]]:
    """First and next character of each of a sample's sentences in its prompt, with its part."""
    spans: list[tuple[int, int]] = []
    start = 0
    for turn in sample.turns:
        text = plain(loaded, turn["content"]).strip()
        if (found := prompt.find(text, start)) < 0:
            continue  # some layouts move the system's turn, or leave it out
        start = found
        ends = [start + end.end() for end in _END.finditer(text)]
        spans += zip([start, *ends], [*ends, start + len(text)], strict=True)
        start += len(text)
    called = [n for n, (a, b) in enumerate(spans) if _NAMED.match(prompt[a:b])]
    asked = max(called, default=len(spans) - 1)
    names = [f"sentence {n + 1}" if n < asked else ASKED for n in range(len(spans))]
    return [(a, b, name) for (a, b), name in zip(spans, names, strict=True)]


def token_parts(loaded: LoadedModel, sample: Sample, prompt: str, ids: Sequence[int]) -> list[str]:
    """The part of each token ``ids`` of a sample's prompt."""
    tokenizer, found = loaded.processor.tokenizer, [MARKS] * len(ids)
    spans = sentence_parts(loaded, sample, prompt)
    cut = tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True)
    own = [
        next((name for a, b, name in spans if a < end <= b), MARKS)
        for _, end in cut["offset_mapping"]
    ]
    # The processor makes many tokens of the film's mark, and may write a first one: words before
    # the film are found from the start, those behind it from the end.
    for way in (1, -1):
        for n, (token, same) in enumerate(zip(ids[::way], cut["input_ids"][::way], strict=False)):
            if token != same:
                break
            found[n if way > 0 else -1 - n] = own[n if way > 0 else -1 - n]
    film = sensed_ids(loaded.config, ("image", "video"))
    steps = frame_parts(loaded, (sample.shape() or (0,))[0])
    seen = [place for place, token in enumerate(ids) if token in film]
    for n, place in enumerate(seen):
        found[place] = steps[n * len(steps) // len(seen)]
    return [FIRST, *found[1:]]


def read_shares(
    loaded: LoadedModel,
    samples: Sequence[Sample],
    folder: Path,
    position: Position,
    size: int,
    needed: Sequence[str] = (),
) -> tuple[list[str], np.ndarray]:
    """The parts of samples' prompts, and each head's shares ``[N, L, H, parts]``; resumes."""
    frames = [shape[0] if shape else 0 for shape in check_samples(loaded, samples, position)]
    prompts = prompts_at(loaded, samples, position)
    texts = (sentence_parts(loaded, *both) for both in zip(samples, prompts, strict=True))
    said = max(([name for *_, name in spans if name != ASKED] for spans in texts), key=len)
    names = [*frame_parts(loaded, max(frames)), *said, ASKED, MARKS, FIRST]
    if unknown := set(needed) - set(names):
        why = f"the prompts have no {unknown.pop()!r}, but {', '.join(names)}"
        raise ProbingError(f"--knock-out: {why}")

    def read(rows: Sequence[int], batch: Prepared) -> np.ndarray:
        with torch.inference_mode():
            inputs = to_model(loaded, batch.inputs)
            reading = partial(prefill, loaded, inputs, at_once=True)
            if batch.rows:
                begun = prefill(loaded, inputs)
                reading = partial(extend, loaded, begun, batch.rows, batch.endings)
            with Looks(loaded.model) as looks:
                state = reading()
                weights = looks.take([samples[i].item_id for i in rows])[:, 0].float()
        ids, mask = state.ids.cpu(), state.mask.cpu() > 0
        place = torch.zeros_like(ids)
        for row, i in enumerate(rows):
            own = token_parts(loaded, samples[i], prompts[i], ids[row, mask[row]].tolist())
            place[row, mask[row]] = torch.tensor(list(map(names.index, own)))
        shares = torch.zeros(*weights.shape[:3], len(names))
        return shares.scatter_add_(3, place[:, None, None].expand_as(weights), weights).numpy()

    about = {"samples": fingerprint(samples), "parts": json.dumps(names)}
    with counting(in_python(), "reading where heads look") as show:
        given: dict[str, Any] = {"on_progress": show, "position": position}
        given |= {"width": len(names), "read": read}
        store = fill_store(loaded, samples, folder, SITE, size, about, **given)
    return names, store.read().float().numpy()


def read_knocked_out(
    loaded: LoadedModel,
    pairs: Sequence[ContrastPair],
    reply: bool,
    parts: Sequence[str],
    sets: Tensor,
    folder: Path,
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs' logit differences ``[P]``, and what they lose without a part, ``[P, parts, S]``.

    Each of ``sets``, bool ``[S, L, H]``, may not look at it from the last token.
    """
    inputs = fingerprint([sample for pair in pairs for sample in pair.samples])
    asked = digest_of([inputs, loaded.about, *parts, sets.nonzero().tolist()])
    journal = Journal(folder / f"knock-out-{asked[:12]}.jsonl", {"asked": asked})
    with journal, counting(in_python(), "knocking out attention") as show:
        for done, pair in enumerate(pairs, 1):
            if pair.name in journal.answers:
                continue
            diffs = []
            texts, read = prompts_of(loaded, pair, reply), read_pair(loaded, pair, reply)
            for sample, prompt, own in zip(pair.samples, texts, read, strict=True):
                real = own.state.mask[own.rows[0]] > 0
                ids = [*own.state.ids[own.rows[0]][real].tolist(), own.tokens[0]]
                # Behind the prompt stands what the answers begin with alike.
                more = len(answer_ids(loaded, pair, prompt)[0]) - len(own.answers[0][0])
                at = [*token_parts(loaded, sample, prompt, ids[: len(ids) - more]), *[MARKS] * more]
                each = [own.logit_diff.repeat(len(sets))]
                for part in parts:
                    away = torch.zeros_like(real)
                    away[real] = torch.tensor([name == part for name in at[:-1]]).to(away)
                    edit = partial(Redirect, loaded.model, away=away, positions=ALL)
                    each.append(own.edited(edit, sets)[0])
                diffs.append(np.array(each))
            differences = diffs[0] - diffs[1]  # [1 + parts, S], at first of the model as it is
            journal.add([{"item_id": pair.name, "read": differences.tolist()}])
            show(done, len(pairs))
    every = np.array([journal.answers[pair.name]["read"] for pair in pairs])
    return every[:, 0, 0], every[:, 0, None] - every[:, 1:]


def run(config: LooksConfig, console: Console | None = None) -> pd.DataFrame:
    """Read, keep, sum up, print and draw the shares, and what pairs lose without a part.

    Returns a row a head or set, part and side: ``heads, part, side, share, low, high``. A
    ProbingError says that heads, inputs or parts that are asked for are not there.
    """
    console = console or Console()
    check_options(config)
    with claimed(config.run, "a probing run"):
        opened = reopen(config.run, config.device, config.device_map)
        test = [sample for sample in opened.data.samples if sample.split == "test"]
        inputs: list[tuple[Sample, ...]] = [(sample,) for sample in test[: config.pairs]]
        position, sides, pairs = opened.probing.position, ["all"], []
        clusters = [opened.clusters[sample.group] for (sample,) in inputs]
        if pair_set := opened.pair_sets.get(config.kind):
            pairs = pair_set.choose("test", config.pairs)
            inputs, clusters = [p.samples for p in pairs], [p.cluster for p in pairs]
            position = "reply" if pair_set.reply else "statement"
            sides = [c or n for c, n in zip(pair_set.conditions, ("first", "second"), strict=True)]
        heads, by, used = _ranked(opened.run, config.kind, config.k)
        if not inputs or config.k > len(heads):
            why = f"{len(inputs)} test inputs and {len(heads)} heads, for --K {config.k}"
            raise ProbingError(f"{config.run} has {why}")
        if config.knock_out and not pair_set:
            raise ProbingError(f"--knock-out: the samples of {config.run} are no pairs")
        folder, loaded = config.run / FOLDER, opened.model()
        every = [sample for some in inputs for sample in some]
        store = folder / f"{config.kind}-{len(inputs)}"
        reading = store, position, config.batch_size, config.knock_out
        names, shares = read_shares(loaded, every, *reading)
        size = shares.shape[1:3]
        order = np.array([layer * size[1] + head for layer, head in heads])
        shares = shares.reshape(len(inputs), len(sides), -1, len(names))[:, :, order]
        titles, cluster = [f"{config.k} {by}", *map(str, heads)], np.array(clusters)
        table = summed_up(shares, cluster, (sides, titles, names), config)
        if config.knock_out and pair_set:
            members = np.concatenate([np.arange(config.k)[None], random_sets(config, len(order))])
            sets = torch.zeros(len(members), len(order), dtype=torch.bool)
            sets.scatter_(1, torch.from_numpy(order[members]), True)
            asked = pair_set.reply, config.knock_out, sets.unflatten(1, size)
            whole, lost = read_knocked_out(loaded, pairs, *asked, folder)
            drawn = (lost[..., 1:].sum(0) / whole.sum()).T[None]
            named = [LOST], titles[:1], config.knock_out
            found = table_of(lost[:, None, None, :, 0], whole, drawn, named, cluster, config.seed)
            own, others = found[["share", "low", "high"]].to_numpy().reshape(2, -1, 3)
            told = verdicts(own[:, 0], own[:, 1:].T, others[:, 1:].T, opened.probing.floor)
            words = zip(config.knock_out, told, strict=True)
            used += [f"attention to {part}: {word}" for part, word in words]
            used.append(f"{(whole > 0).sum()} of {len(pairs)} pairs answered rightly")
            table = pd.concat([table, found], ignore_index=True)
        films = [sample.frames() for sample in inputs[-1] if sample.shows]
        with style.look():
            about = [p for p in opened.run.title if not p.startswith("position ")]
            about.append(f"position {position}")
            figure = looks_figure(table, films, about)
            path = style.save(figure, folder, config.kind, table)[0]
    own, others = (table[table["heads"] == each] for each in (titles[0], RANDOM))
    both = own.merge(others, on=["part", "side"], suffixes=("", "_random"))
    rows = []
    for row in both.to_dict("records"):
        ends = f"{number(row['low_random'])} to {number(row['high_random'])}"
        share = percent({**row, "value": row["share"]}, scale=1, digits=2)
        rows.append([row["part"], row["side"], share, ends])
    columns = ["part", "of", titles[0], f"95 % of random {config.k}"]
    print_table(console, "Share of attention", columns, rows)
    prompt = prompts_at(loaded, inputs[0][:1], position)[0]
    spans = sentence_parts(loaded, inputs[0][0], prompt)
    said = [f"{name}: {' '.join(prompt[a:b].split())}" for a, b, name in spans]
    used += [f"{len(inputs)} inputs of each kind", too_few(len(set(clusters)), "maps or groups")]
    lines = ["Of the first input,", *said, *filter(None, used), f"figure: {path}"]
    print_lines(console, lines)
    return table


def _ranked(run: Run, kind: str, k: int) -> tuple[list[Head], str, list[str]]:
    """Heads, best first; how they are ranked, and whether patching calls the first k used."""
    if (column := f"{kind}_effect_validation") in run.heads:
        heads = run.heads.sort_values(column, ascending=False, kind="stable")
        used = heads[f"{kind}_used"].head(k).isin([USED, AGAINST]).sum()
        return heads_of(heads), "best by patching", [f"patching calls {used} of these {k} used"]
    return heads_of(run.ranked(run.labels[0])), f"best by {symbol(run.labels[0])}", []


def random_sets(config: LooksConfig, heads: int) -> np.ndarray:
    """Places of ``heads`` in each random set, ``[sets, k]``."""
    draw = np.random.default_rng(config.seed)
    count = range(config.random_sets)
    return np.array([draw.choice(heads, config.k, replace=False) for _ in count])


def summed_up(
    shares: np.ndarray, clusters: np.ndarray, names: Names, config: LooksConfig
) -> pd.DataFrame:
    """The table of `run` of shares ``[inputs, sides, heads, parts]``, the best heads first."""
    (sides, heads, parts), k = names, config.k
    if len(sides) == 2:
        shares = np.concatenate([shares, shares[:, 1:] - shares[:, :1]], axis=1)
        sides = [*sides, f"{sides[1]} - {sides[0]}"]
    drawn = shares.mean(0)[:, random_sets(config, shares.shape[2])].mean(2)
    shown = np.concatenate([shares[:, :, :k].mean(2, keepdims=True), shares], axis=2)
    whole = np.ones(len(shown))
    return table_of(shown, whole, drawn, (sides, heads, parts), clusters, config.seed)


def table_of(
    own: np.ndarray, whole: np.ndarray, drawn: np.ndarray, names: Names, clusters: Any, seed: int
) -> pd.DataFrame:
    """The table of `run`: of ``whole [N]`` the shares ``own [N, sides, heads, parts]``."""
    cluster = np.unique(clusters, return_inverse=True)[1]
    times = draw_groups(int(cluster.max()) + 1, seed=seed)
    random = drawn.mean(1), *np.quantile(drawn, [0.025, 0.975], axis=1)
    (sides, heads, parts), tables = names, []
    for of, numbers in ((heads, estimate_shares(own, whole, cluster, times)), ([RANDOM], random)):
        rows = pd.MultiIndex.from_product((sides, of, parts), names=("side", "heads", "part"))
        columns = zip(("share", "low", "high"), map(np.ravel, numbers), strict=True)
        tables.append(rows.to_frame(index=False).assign(**dict(columns)))
    return pd.concat(tables, ignore_index=True)


def looks_figure(table: pd.DataFrame, films: Sequence[Frames], title: Sequence[str]) -> Figure:
    """Below the frames of each side's first film, the shares of the set and of its best heads."""
    heads, sides = (list(dict.fromkeys(table[name])) for name in ("heads", "side"))
    heads, sides = heads[: 1 + SINGLY], sides[:2]
    shown = table[table["heads"].isin(heads) & table["side"].isin(sides)]
    most = shown.groupby("part", sort=False)["share"].max()
    parts = [part for part in most.index if part.startswith("frame") or most[part] >= LEAST]
    steps = sum(part.startswith("frame") for part in parts)
    joined = -(-len(films[0]) // steps) if films else 1
    widths = np.array([joined] * steps + [1] * (len(parts) - steps))
    left, strips = np.cumsum(widths) - widths, len(films)
    rows = [0.9] * strips + [0.75] * len(heads)
    figure = style.new_figure(0.55 * widths.sum() + 1.3, sum(rows) + 1.2)
    panels = figure.subplots(len(rows), sharex=True, gridspec_kw={"height_ratios": rows})
    for panel, film, side in zip(panels, films, sides, strict=False):
        strip = np.concatenate(film[:, ::3, ::3], axis=1)
        panel.imshow(strip, extent=(0, len(film), 0, 1), aspect="auto")
        panel.set(yticks=[], ylabel=side)
        panel.spines[:].set_visible(False)
    cells = table.set_index(["heads", "side", "part"]).sort_index()
    for panel, head in zip(panels[strips:], heads, strict=True):
        for n, side in enumerate(sides):
            own, random = (cells.loc[each, side].loc[parts] for each in (head, RANDOM))
            wide = 0.8 / len(sides)
            at = left + widths * (0.1 + wide * (n + 0.5))
            ends = np.abs(own[["low", "high"]].to_numpy().T - own["share"].to_numpy())
            look: dict[str, Any] = {"color": style.COLOURS[n], "ecolor": "0.3", "yerr": ends}
            panel.bar(at, own["share"], widths * wide, **look)
            if head == heads[0]:
                panel.vlines(at, random["low"], random["high"], colors="black", linewidth=3)
        words = "\n".join(head.rsplit(" by ", 1)) if head == heads[0] else head
        panel.set(ylim=(0, 1), ylabel=words)
    for panel in panels[:-1]:
        panel.tick_params(bottom=False)
    panels[-1].set_xticks(left + widths / 2, labels=parts, rotation=30, ha="right")
    panels[-1].set_xlim(0, widths.sum())
    squares: dict[str, Any] = {"marker": "s", "ls": "none"}
    signs = [style.sign(side, style.COLOURS[n], **squares) for n, side in enumerate(sides)]
    signs.append(style.sign("95 % of random sets", "black", linewidth=3))
    style.legend(figure, signs, 3)
    style.heading(figure, title, "Share of attention (bars: 95 % over maps or groups)")
    return figure
