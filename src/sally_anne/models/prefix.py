"""Reading prompts with a cache: what they share is read once."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, pairwise, product, takewhile
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from sally_anne.core.errors import ModelError
from sally_anne.models.processor import RAW, padded, raw_ids, sensed_ids
from sally_anne.models.videos import positions_of, rotary

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel

# Films of processors that give a row's steps of frames together; their steps, height and width;
# and what positions alone are made from.
_PIXELS, _GRID = "pixel_values_videos", "video_grid_thw"
_FILMS = _PIXELS, _GRID, "second_per_grid_ts", "video_second_per_grid"
# A way of reading, in `LoadedModel.limits`; frames are read so where one in so many is spared.
IN_PARTS, _LEAST_SPARED = "frames in two parts", 8
# What the cache is called in a pass and in its output: transformers 5.24 renamed it.
_NAMES = {each.name for each in fields(CausalLMOutputWithPast)}
CACHE = "cache" if "cache" in _NAMES else "past_key_values"


@dataclass(frozen=True)
class CommonPrefix:
    """Prompts: the text (or ids, of raw ones) that all begin with, and ids of what follows."""

    beginning: str | tuple[int, ...]
    endings: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class State:
    """What has gone through a model so far, row by row.

    ``logits [R, V]`` after each row's last token, if asked; a cache of ``R`` rows, the ``ids`` and
    ``mask [R, T]`` of their columns (0 where one is padding), the rotary position ``[R]`` of the
    ``following`` token; what it was ``given``, if that may have to be read again.
    """

    logits: Tensor
    cache: Any
    ids: Tensor
    mask: Tensor
    following: Tensor
    given: dict[str, Tensor] = field(default_factory=dict)


def split_common_prefix(loaded: LoadedModel, prompts: Sequence[str]) -> CommonPrefix:
    """Cut rendered prompts after their longest common beginning that ends before a space.

    Or a new line where there is no space, else any letter, and earlier where a tokenizer joins
    letters across the cut. Endings keep two tokens at least, so that none is taken for a generated
    token. Raw prompts are cut anywhere. A ModelError if there is no place to cut.
    """
    if loaded.prompt == RAW:
        whole = [raw_ids(loaded, prompt) for prompt in prompts]
        end = min(len(os.path.commonprefix(whole)), *(len(ids) - 2 for ids in whole))
        if end < 1:
            short = min(zip(whole, prompts, strict=True), key=lambda both: len(both[0]))[1]
            why = "or shares no beginning with others: a raw prompt has three tokens at least"
            raise ModelError(f"the text {short[:60]!r} is too short for {loaded.name}, {why}")
        return CommonPrefix(whole[0][:end], tuple(ids[end:] for ids in whole))
    whole = [_ids(loaded, prompt) for prompt in prompts]
    common = os.path.commonprefix(list(prompts))
    if len(set(prompts)) == 1:
        common = common[:-1]
    # Never before frames and sounds: they belong to the beginning.
    sound = loaded.processor.audio_token if loaded.family.hears else None
    marks = filter(None, (loaded.showing.mark, sound))
    first = 1 + max([-1, *map(common.rfind, marks)])
    ends = range(len(common) - 1, max(first, 1) - 1, -1)
    for gap, end in product((" ", "\n", ""), ends):
        if gap not in common[end]:
            continue
        start = _ids(loaded, common[:end])
        if all(ids[: len(start)] == start and len(ids) - len(start) > 1 for ids in whole):
            return CommonPrefix(common[:end], tuple(ids[len(start) :] for ids in whole))
    why = "is too short, or shares no beginning with others: give it more words"
    raise ModelError(f"the prompt {prompts[0][:60]!r} ... for {loaded.name} {why}")


def _ids(loaded: LoadedModel, text: str) -> tuple[int, ...]:
    return tuple(loaded.processor.tokenizer(text, add_special_tokens=False)["input_ids"])


class _Filled(Exception):
    """A cache has the keys and values of all layers."""


class _Keys(DynamicCache):
    """A cache that ends the pass by which its last layer is filled."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self._last = config.get_text_config(decoder=True).num_hidden_layers - 1

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        found = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        if layer_idx == self._last:
            raise _Filled
        return found


def prefill(
    loaded: LoadedModel, inputs: dict[str, Any], at_once: bool = False, logits: bool = True
) -> State:
    """Run ``G`` padded beginnings with their frames, from :func:`sally_anne.models.prompts.encode`.

    Positions are given, not left to the model: Qwen's models keep the difference to the number of
    tokens as state from one call to the next. The cache keeps all tokens of every layer, also of
    those that look back a certain distance only: what they need differs from ending to ending.
    Unless ``at_once``, words and frames with which rows next to each other begin are read once.
    Without ``logits``, of beginnings that go on, the last layer makes keys and values alone.
    """
    require(loaded, "padding", inputs["attention_mask"])
    if any(key.startswith("pixel_values") for key in inputs):
        require(loaded, "frames")
    positions, following = positions_of(loaded.model, inputs)
    columns = inputs["input_ids"], inputs["attention_mask"], following
    cache = None
    if "a cache" not in loaded.limits:
        cache = DynamicCache(config=loaded.model.config)
        if _is_plain(cache):
            # Hooks follow passes to their end.
            whole = logits or loaded.model._forward_hooks
            cache = DynamicCache() if whole else _Keys(loaded.model.config)
    again = cache is None or not _is_plain(cache) or _looks_back_so_far(loaded.model.config)
    if not (again or at_once) and (common := _common_frames(loaded, inputs)):
        return _in_two(loaded, inputs, positions, following, cache, *common)
    state = _pass(loaded.model, inputs, positions, cache, columns)
    return replace(state, given=inputs) if again or not _is_plain(state.cache) else state


def _common_frames(
    loaded: LoadedModel, inputs: Mapping[str, Tensor]
) -> tuple[Tensor, list[int], Tensor, int] | None:
    """What rows that follow each other begin with: how many steps of frames, and their words.

    Films ``[G, S, ...]`` by steps, the number of each row's beginning, ``bool [G, T]`` where that
    stands, and its steps. None if too little is alike, or of models that take more than films.
    """
    films, grid, ids = inputs.get(_PIXELS), inputs.get(_GRID), inputs["input_ids"]
    others = (value for key, value in inputs.items() if key not in _FILMS)
    # First of all, as texts alone have nothing to compare.
    if films is None or {"padding", IN_PARTS} & loaded.limits.keys():
        return None
    if any(value.shape != ids.shape for value in others):
        return None
    ids = ids.cpu()
    frames = _are_sensed(loaded, ids)
    counts = frames.sum(1)
    if grid is not None:
        count = len(grid), int(grid[0, 0])
        if len(grid) != len(ids) or bool((grid != grid[0]).any()) or len(films) % math.prod(count):
            return None
        films = films.unflatten(0, (*count, -1))
    elif films.ndim != 5:
        return None
    tokens, rest = divmod(int(counts[0]), films.shape[1])
    if rest or bool((counts != counts[0]).any()):
        return None
    same = [sum(takewhile(bool, map(torch.equal, *pair))) for pair in pairwise(films)]
    spared, steps = max((n * sum(m >= n for m in same), n) for n in (0, *same))
    # Two passes cost more than one.
    if spared * _LEAST_SPARED < len(films) * films.shape[1]:
        return None
    begins = frames.cumsum(1) - frames.long() < steps * tokens
    begins &= inputs["attention_mask"].cpu() > 0
    words = [row[where].tolist() for row, where in zip(ids, begins, strict=True)]
    new = [n < steps or a != b for n, (a, b) in zip(same, pairwise(words), strict=True)]
    rows = [0, *accumulate(map(int, new))]
    # Each row goes on with a word at least.
    return None if all(new) or bool(begins[:, -1].any()) else (films, rows, begins, steps)


def _in_two(
    loaded: LoadedModel,
    inputs: Mapping[str, Tensor],
    positions: Tensor,
    following: Tensor,
    cache: Any,
    films: Tensor,
    rows: list[int],
    begins: Tensor,
    steps: int,
) -> State:
    """The state after what :func:`_common_frames` found, read once, and the rest of each row."""
    pad_id, grid = loaded.processor.tokenizer.pad_token_id, inputs.get(_GRID)

    def part(members: list[int], where: Tensor, steps: slice) -> tuple[dict[str, Any], Tensor]:
        """Inputs and positions of rows at ``where``, padded anew."""
        chosen = where[members]
        # What is not chosen comes first, the rest in its order.
        index = chosen.long().argsort(dim=1, stable=True)[:, -int(chosen.sum(1).max()) :]
        real, index = (one.to(positions.device) for one in (chosen.gather(1, index), index))
        own = {k: v[members].gather(1, index) * real for k, v in inputs.items() if k not in _FILMS}
        own["input_ids"].masked_fill_(~real, pad_id)
        # Row by row, which copies faster than an index of rows does.
        shown = torch.stack([films[row, steps] for row in members])
        places = positions[..., members, :]
        if shown.shape[1]:
            own[_PIXELS] = shown if grid is None else shown.flatten(0, 2)
            if grid is not None:
                own[_GRID] = grid[members].index_fill(1, grid.new_zeros(1), shown.shape[1])
        return own, places.gather(-1, index.expand(*places.shape[:-1], -1))

    firsts, real = [rows.index(row) for row in range(rows[-1] + 1)], inputs["attention_mask"] > 0
    own, at = part(firsts, begins, slice(steps))
    known = own["input_ids"], own["attention_mask"], following
    begun = _pass(loaded.model, own, at, cache, known)
    own, at = part([*range(len(rows))], real.cpu() & ~begins, slice(steps, None))
    ids = torch.cat([begun.ids[rows], own["input_ids"]], dim=1)
    mask = own["attention_mask"] = torch.cat([begun.mask[rows], own["attention_mask"]], dim=1)
    # Layer by layer, so that no more than one is held twice.
    begun.cache.batch_select_indices(torch.tensor(rows, device=ids.device))
    return _pass(loaded.model, own, at, begun.cache, (ids, mask, following))


def extend(
    loaded: LoadedModel, state: State, rows: Sequence[int], endings: Sequence[Sequence[int]]
) -> State:
    """Run ``R`` endings (token ids) on top of the beginnings ``rows`` of a state, which stays."""
    device = state.mask.device
    index = torch.tensor(list(rows), device=device)
    if "a cache" in loaded.limits or not _is_plain(state.cache):
        return _read_whole(loaded, state, rows, endings)
    ids, mask = (part.to(device) for part in padded(loaded, endings))
    require(loaded, "padding", mask)
    gaps = (mask == 0).sum(1)
    if _looks_back_so_far(loaded.model.config) and bool(gaps.any()):
        moved = _without_gaps(state, index, ids, mask, gaps)
        if bool(_are_sensed(loaded, moved[1]).any()):
            return _read_whole(loaded, state, rows, endings)
        return _run(loaded.model, *moved)
    columns = state.ids[index], state.mask[index], state.following[index]
    chosen = State(state.logits, select(state.cache, index), *columns)
    return _run(loaded.model, chosen, ids, mask)


def read_side_by_side(
    loaded: LoadedModel, state: State, rows: Sequence[int], tokens: Sequence[int], count: int
) -> Tensor:
    """Logits ``[R, count, V]`` of a token after each of ``rows``, read ``count`` times.

    Each reads its row and itself alone: so many edits of one place at once, without a copy of what
    stands before it. To hooks they are the rows' columns (positions ``all``). The state stays.
    """
    model, device = loaded.model, state.mask.device
    require(loaded, "words side by side")
    config = model.config.get_text_config()
    if config._attn_implementation not in ("sdpa", "eager"):
        kind = config._attn_implementation
        raise ModelError(f"{kind} cannot do this: --attn-implementation sdpa")
    index = torch.tensor(list(rows), device=device)
    cache, before = select(state.cache, index), state.mask[index].bool()
    own = torch.eye(count, dtype=torch.bool, device=device).expand(len(before), -1, -1)

    def sees(window: int | None) -> Tensor:
        near = before.clone()
        if window:
            near[:, : max(0, before.shape[1] - window + 1)] = False
        seen = torch.cat([near[:, None].expand(-1, count, -1), own], dim=2)
        mask = torch.zeros(seen.shape, dtype=model.dtype, device=device)
        return mask.masked_fill_(~seen, torch.finfo(model.dtype).min)[:, None]

    window = getattr(config, "sliding_window", None)
    kinds = _kinds(config)
    if kinds - {"full_attention", "sliding_attention", "global"}:
        raise ModelError(f"model {loaded.name!r} has layers of {', '.join(sorted(kinds))}")
    mask: Any = sees(None if kinds else window)
    if "sliding_attention" in kinds:
        mask = {"full_attention": mask, "sliding_attention": sees(window)}
    ids = torch.tensor(list(tokens), device=device)
    return model(
        input_ids=ids[:, None].expand(-1, count).contiguous(),
        attention_mask=mask,
        position_ids=rotary(model, state.following[index][:, None].expand(-1, count)),
        **{CACHE: cache},
        use_cache=True,
    ).logits


def require(loaded: LoadedModel, way: str, mask: Tensor | None = None) -> None:
    """Refuse to read a model in a way that it cannot; with padding only where ``mask`` has some."""
    if (why := loaded.limits.get(way)) and (mask is None or not bool(mask.all())):
        one = "; use --batch-size 1" if mask is not None else ""
        raise ModelError(f"model {loaded.name!r} cannot be read with {way}: {why}{one}")


def step(loaded: LoadedModel, state: State, tokens: Tensor) -> State:
    """Feed one more token ``[R]`` to each row; ``state`` is used up."""
    require(loaded, "a cache")
    return _run(loaded.model, state, tokens[:, None], torch.ones_like(tokens[:, None]))


def select(cache: Any, index: Tensor, columns: Tensor | None = None) -> DynamicCache:
    """A new cache of the rows ``index [R]``, each place from ``columns [R, T]``, or as it is."""

    def rows(tensor: Tensor) -> Tensor:
        found = tensor.index_select(0, index.to(tensor.device))
        if columns is None:
            return found
        source = columns.to(tensor.device)[:, None, :, None]
        return found.gather(2, source.expand(-1, found.shape[1], -1, found.shape[3]))

    if not (cache.layers and _is_plain(cache)):
        raise ModelError("what the model keeps is not keys and values of each word alone")
    chosen = DynamicCache()
    for number, each in enumerate(cache.layers):
        chosen.update(rows(each.keys), rows(each.values), number)
    return chosen


def _is_plain(cache: Any) -> bool:
    """Whether a cache is of keys and values alone, which can be taken row by row."""
    return all(type(each) in (DynamicLayer, DynamicSlidingWindowLayer) for each in cache.layers)


def _read_whole(
    loaded: LoadedModel, state: State, rows: Sequence[int], endings: Sequence[Sequence[int]]
) -> State:
    """As :func:`extend`, but that each row is read from its first word on, with what it shows."""
    begun = (state.ids[row][state.mask[row].bool()].tolist() for row in rows)
    parts = padded(loaded, [[*b, *end] for b, end in zip(begun, endings, strict=True)])
    ids, mask = (part.to(state.mask.device) for part in parts)
    inputs, count = {"input_ids": ids, "attention_mask": mask}, len(state.ids)
    marks = torch.tensor(sensed_ids(loaded.config)).to(state.ids)
    shown = (state.ids[..., None] == marks).sum(1)
    for key, value in state.given.items():
        if value.shape == state.ids.shape:  # of each token
            own = [value[row][state.mask[row].bool()] for row in rows]
            ends = zip(own, endings, strict=True)
            sides = [(ids.shape[1] - len(o) - len(e), len(e)) for o, e in ends]
            inputs.setdefault(key, torch.stack([*map(pad, own, sides)]))
        elif len(value) % count or bool((shown != shown[0]).any()):  # whose they are cannot be said
            why = "and films or sounds of one batch differ in what they take: use --batch-size 1"
            raise ModelError(f"model {loaded.name!r} reads each text whole, {why}")
        else:
            inputs[key] = torch.cat([value.chunk(count)[row] for row in rows])
    return prefill(loaded, inputs)


def _are_sensed(loaded: LoadedModel, ids: Tensor) -> Tensor:
    return torch.isin(ids, torch.tensor(sensed_ids(loaded.config)).to(ids))


def _looks_back_so_far(config: Any) -> bool:
    """Whether a layer sees only so many columns before its own, padding counted."""
    text = config.get_text_config()
    if kinds := _kinds(text):
        return bool(kinds - {"full_attention", "global"})
    return getattr(text, "sliding_window", None) is not None


def _kinds(text: Any) -> set[str]:
    """Kinds of layers that a text config names; GPT-Neo's are global and local."""
    return {*(getattr(text, "layer_types", None) or getattr(text, "attention_layers", None) or ())}


def _without_gaps(
    state: State, index: Tensor, ids: Tensor, mask: Tensor, gaps: Tensor
) -> tuple[State, Tensor, Tensor]:
    """Beginnings and endings without padding between them, which would count as distance.

    Beginning ``index [R]`` moves right by ``gaps [R]``, into the padding of its ending (``ids`` and
    ``mask [R, W]``); what of it is then among the ending's columns goes through the model again.
    """
    width = state.mask.shape[1]
    columns = torch.arange(width + ids.shape[1], device=ids.device)
    source = torch.where(columns >= width + gaps[:, None], columns, columns - gaps[:, None])
    there, source = source >= 0, source.clamp(min=0)
    moved = torch.cat([state.ids[index], ids], dim=1).gather(1, source)
    real = torch.cat([state.mask[index], mask], dim=1).gather(1, source) * there
    again, asked = moved[:, width:], real[:, width:]
    cache = select(state.cache, index, source[:, :width])
    following = state.following[index] - (asked - mask).sum(1)
    return State(state.logits, cache, moved[:, :width], real[:, :width], following), again, asked


def _run(model: Any, state: State, ids: Tensor, mask: Tensor) -> State:
    positions = rotary(model, state.following[:, None] + (mask.cumsum(1) - 1).clamp(min=0))
    whole, following = torch.cat([state.mask, mask], dim=1), state.following + mask.sum(1)
    inputs = {"input_ids": ids, "attention_mask": whole}
    columns = torch.cat([state.ids, ids], dim=1), whole, following
    return _pass(model, inputs, positions, state.cache, columns)


def _pass(model: Any, inputs: dict[str, Any], positions: Tensor, cache: Any, known: Any) -> State:
    """The state after one pass, of which ids, mask and what follows are ``known``."""
    # One row of logits: all others would cost as much as the model.
    how: dict[str, Any] = {"position_ids": positions, "logits_to_keep": 1, "use_cache": True}
    try:
        output = model(**inputs, **how, **({} if cache is None else {CACHE: cache}))
    except _Filled:
        return State(positions.new_empty(0), cache, *known)
    return State(output.logits[:, -1], output.get(CACHE, cache), *known)
