"""Activation patching: heads' outputs of one prompt of a pair are put into the other, at one token.

The effect is a share of the pair's logit difference: 1 where a set of heads carries all of it. Only
what stands at that one token is exchanged, so all heads together carry 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from safetensors.numpy import load_file, save
from torch import Tensor

from sally_anne.core.errors import HookError, ProbingError, RunFolderError
from sally_anne.core.files import reading, write_atomic
from sally_anne.data.pairs import ContrastPair
from sally_anne.data.samples import Sample
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import HEAD_OUT, RESID, final_norm, find_geometry, o_projs, w_o
from sally_anne.hooks.positions import ALL
from sally_anne.models import prefix
from sally_anne.models.decoding import log_probs_of
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prefix import State
from sally_anne.models.prompts import continuations, to_model
from sally_anne.probing import extraction
from sally_anne.probing.extraction import Prepared, activations_of, each_piece, prepare

# Tokens that are read side by side: on a processor of each prompt, on an accelerator in all.
COLUMNS, COLUMNS_IN_ALL = 512, 4096
# Pairs that go through an accelerator together.
PAIRS = 8
# Of each prompt the token ids of both answers, from the first that tells them apart on.
Answers = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
# Films of one shape: inputs of beginnings, each prompt's beginning, its other ids, and answers.
Drawn = tuple[dict[str, np.ndarray], list[int], tuple[tuple[int, ...], ...], Answers]


@dataclass(frozen=True)
class Prompts:
    """R prompts, read up to their last ``tokens``: ``rows`` of a state after all before them."""

    loaded: LoadedModel
    state: State
    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    answers: Answers
    site: str = HEAD_OUT

    @property
    def words(self) -> tuple[list[int], list[int]]:
        """The first token of each first answer that tells it from the other; of each second."""
        return [first[0] for first, _ in self.answers], [second[0] for _, second in self.answers]

    def logit_diffs(self, count: int = 1) -> Tensor:
        """Logit of each first answer less the second's, ``[R, count]``, of equal readings."""
        at = self.loaded, self.state, self.rows, self.tokens
        logits = prefix.read_side_by_side(*at, count)
        words = torch.tensor(self.words, device=logits.device).T[:, None].expand(-1, count, -1)
        # Apple's GPUs have no float64.
        first, second = logits.gather(2, words).cpu().double().unbind(2)
        return first - second

    @cached_property
    def _plain(self) -> tuple[np.ndarray, Tensor]:
        model = self.loaded.model
        with torch.no_grad(), Capture(model, self.site, ALL, device=model.device) as capture:
            return self.logit_diffs()[:, 0].numpy(), capture.take()[:, 0]

    @property
    def heads(self) -> Tensor:
        """Head outputs at the last token, ``[R, L, H, D]``, on the model's device."""
        return self._plain[1]

    @property
    def logit_diff(self) -> np.ndarray:
        """:meth:`logit_diffs` ``[R]`` of the runs as they are."""
        return self._plain[0]

    @cached_property
    def whole(self) -> np.ndarray:
        """Log-probability of each first answer, all its tokens, less that of the second ``[R]``."""
        if all(max(map(len, both)) == 1 for both in self.answers):
            return self.logit_diff
        with torch.no_grad():
            rows, tokens = np.repeat([self.rows, self.tokens], 2, axis=1).tolist()
            ends = [[token] for token in tokens]
            state = prefix.extend(self.loaded, self.state, rows, ends)
            said = log_probs_of(self.loaded, state, [*chain(*self.answers)])
        return (said[::2] - said[1::2]).numpy()

    def edited(self, edit: Callable[..., Edit], chosen: Tensor) -> np.ndarray:
        """Logit differences ``[R, C]`` in runs with ``edit(heads=...)`` of ``chosen [C, L, H]``."""
        columns = COLUMNS_IN_ALL // len(self.rows) if self.loaded.accelerated else COLUMNS
        diffs = [torch.zeros(len(self.rows), 0, dtype=torch.float64)]
        for part in chosen.split(columns) if len(chosen) else ():
            with torch.no_grad(), edit(heads=part[None]):
                diffs.append(self.logit_diffs(len(part)))
        return torch.cat(diffs, 1).numpy()

    def replaced(self, values: Tensor, chosen: Tensor) -> np.ndarray:
        """:meth:`edited` with heads replaced by ``values [(R,) L, H, D]``."""
        how: dict[str, Any] = {"positions": ALL, "how": "replace"}
        return self.edited(partial(Edit, self.loaded.model, values, self.site, **how), chosen)

    def gradient(self) -> Tensor:
        """Of the logit differences by the head outputs, ``[R, L, H, D]``, in float32."""
        leaf = torch.zeros(self.heads.shape, device=self.heads.device, requires_grad=True)
        chosen = torch.ones(leaf.shape[1:3], dtype=torch.bool)
        with torch.enable_grad(), Edit(self.loaded.model, leaf, self.site, ALL, heads=chosen):
            return torch.autograd.grad(self.logit_diffs().sum(), leaf)[0]

    def dla(self) -> Tensor:
        """Direct logit attribution of heads, ``[R, L, H]``; a HookError where it is not defined."""
        if self.site != HEAD_OUT:
            raise HookError(f"direct logit attribution is of head_out, not {self.site}")
        model, geometry = self.loaded.model, find_geometry(self.loaded.model)
        norm, last = final_norm(model), geometry.n_layers - 1
        with torch.no_grad(), Capture(model, RESID, ALL, layers=[last]) as capture:
            self.logit_diffs()
            stream = capture.take()[:, 0, 0].flatten(1).to(next(norm.parameters()).device)
            weight = norm(torch.ones_like(stream[0]))
            normed, scaled = norm(stream), weight * stream
            scale = (normed * scaled).sum(1, True) / (scaled * scaled).sum(1, True)
            layer = model.get_submodule(geometry.layer_names[last])
            apart = geometry.left_out or hasattr(layer, "post_feedforward_layernorm")
            near = 2e-2 * float(normed.abs().max())
            if apart or not torch.allclose(scale * scaled, normed, 2e-2, near):
                words = "needs heads in all layers, added to the stream as they are, and an RMSNorm"
                raise HookError(f"{type(model).__name__}: direct logit attribution {words}")
            steps = logit_directions(model, self.words, scale)
            return (steps * self.heads.float().cpu()).sum(-1)


def logit_directions(model: Any, words: Sequence[Any], scale: Tensor | float = 1.0) -> Tensor:
    """Directions along which heads add to the first word's logit above the second's, ``[L, H, D]``.

    Of two lists of R words ``[R, L, H, D]``. Through W_o, the last norm's weight times ``scale``
    (``[R, 1]``), and the unembedding. A HookError if the last norm is not found, or no RMSNorm.
    """
    geometry, norm = find_geometry(model), final_norm(model)
    if getattr(norm, "bias", None) is not None:
        raise HookError(f"{type(norm).__name__}: the last norm must be an RMSNorm")
    out = model.get_output_embeddings().weight
    with torch.no_grad():
        weight = norm(torch.ones_like(out[0])).float()
        read = scale * weight * (out[words[0]].float() - out[words[1]].float())
        weights = (w_o(z, model.dtype).float() for z in o_projs(model))
        every = torch.stack([(read.to(weight.device) @ weight).cpu() for weight in weights], -2)
        return every.unflatten(-1, (geometry.n_heads, -1))


def prompts_of(loaded: LoadedModel, pair: ContrastPair, reply: bool) -> list[str]:
    """Both prompts of a pair, laid out; ``reply`` is as of `sally_anne.data.pairs.PairSet`."""
    return [extraction.laid_out(loaded, sample, reply) for sample in pair.samples]


def answer_ids(loaded: LoadedModel, pair: ContrastPair, prompt: str) -> list[list[int]]:
    """Token ids of both answers after one of the prompts; a ProbingError if no token differs."""
    first, second = continuations(loaded, prompt, pair.answers)
    if first[: len(second)] == second[: len(first)]:
        both = f"{pair.answers[0]!r} ({first}) and {pair.answers[1]!r} ({second})"
        name = f"pair {pair.samples[0].pair} ({pair.name})"
        raise ProbingError(f"{name}: of {both} one is how the other begins: give others")
    return [first, second]


def draw_pairs(loaded: LoadedModel, pairs: Sequence[ContrastPair], reply: bool) -> list[Drawn]:
    """What :func:`read_pairs` reads; needs no weights. Arguments and errors as there."""
    begun: list[tuple[Sample, Any, list[Any]]] = []
    for pair in pairs:
        (first, second), texts = pair.samples, prompts_of(loaded, pair, reply)
        shared = first.context and first.context == second.context
        for members in [(0, 1)] if shared else [(0,), (1,)]:
            cut = prefix.split_common_prefix(loaded, [texts[i] for i in members])
            asked = []
            for i, ending in zip(members, cut.endings, strict=True):
                ids = answer_ids(loaded, pair, texts[i])
                alike = os.path.commonprefix(ids)
                apart = tuple(tuple(said[len(alike) :]) for said in ids)
                asked.append(((*ending, *alike), apart))
            begun.append((pair.samples[members[0]], cut.beginning, asked))
    drawn = []
    for _, group in groupby(begun, lambda one: (one[0].shape(), one[0].sound is None)):
        samples, beginnings, every = zip(*group, strict=True)
        inputs = extraction.processed(loaded, beginnings, samples)
        rows = [row for row, asked in enumerate(every) for _ in asked]
        ends, answers = zip(*chain.from_iterable(every), strict=True)
        drawn.append((inputs, rows, ends, answers))
    return drawn


def read_pairs(
    loaded: LoadedModel,
    pairs: Sequence[ContrastPair],
    reply: bool,
    site: str = HEAD_OUT,
    drawn: Sequence[Drawn] | None = None,
) -> list[Prompts]:
    """Read the prompts of pairs up to their last tokens, and what a pair's prompts share once.

    Films of one shape are read together: the prompts of all, two a pair in their order, are those
    of the list one after the other. Errors as of :func:`answer_ids`, and of prompts.
    """
    read = []
    for inputs, rows, ends, answers in drawn or draw_pairs(loaded, pairs, reply):
        with torch.no_grad():
            begun = prefix.prefill(loaded, to_model(loaded, inputs), logits=False)
            state = prefix.extend(loaded, begun, rows, [ending[:-1] for ending in ends])
        tokens = tuple(ending[-1] for ending in ends)
        read.append(Prompts(loaded, state, tuple(range(len(rows))), tokens, answers, site))
    return read


def read_pair(
    loaded: LoadedModel, pair: ContrastPair, reply: bool, site: str = HEAD_OUT
) -> list[Prompts]:
    """Both prompts of one pair, one by one; arguments and errors as of :func:`read_pairs`."""
    return [
        replace(part, rows=(row,), tokens=(token,), answers=(both,))
        for part in read_pairs(loaded, [pair], reply, site)
        for row, token, both in zip(part.rows, part.tokens, part.answers, strict=True)
    ]


def outputs_of(
    loaded: LoadedModel, pairs: Sequence[ContrastPair], reply: bool, site: str = HEAD_OUT
) -> Iterator[np.ndarray]:
    """Head outputs at the last token of both prompts of each pair, float32 ``[2, L, H, D]``."""

    def prepared(pair: ContrastPair) -> list[Prepared]:
        both = zip(pair.samples, prompts_of(loaded, pair, reply), strict=True)
        return [prepare(loaded, [one], shared=False) for one in both]

    def read(pair: ContrastPair, both: list[Prepared]) -> np.ndarray:
        return np.concatenate([activations_of(loaded, one, site) for one in both])

    return each_piece(loaded, prepared, read, pairs)


class Effects(NamedTuple):
    """Of P pairs, in logits; see :func:`sally_anne.core.bootstrap.estimate_shares`."""

    logit_diff: np.ndarray  # [P], of the first input less that of the second
    whole: np.ndarray  # [P], of the whole answers' log-probabilities; the same of single tokens
    effect: np.ndarray  # [P, L, H], what goes along with one head, half of it each way
    ablate: np.ndarray  # [P, L, H], what is lost where a head is its mean in both
    dla: np.ndarray  # [P, L, H], by direct logit attribution; NaN where it is not defined
    attribution: np.ndarray  # [P, L, H], gradient times difference
    mean: np.ndarray  # [P, L, H, D], head outputs, the mean of both sides
    sets: np.ndarray  # [P, S], of sets of heads, as ``effect``

    def write(self, path: Path) -> None:
        """Keep them in a file of safetensors; its folder is made."""
        path.parent.mkdir(exist_ok=True)
        arrays = {name: np.ascontiguousarray(own) for name, own in self._asdict().items()}
        write_atomic(path, save(arrays))

    @classmethod
    def read(cls, path: Path | None) -> Self | None:
        """What is kept in a file; None where there is none, RunFolderError if it is damaged."""
        if path is None or not path.exists():
            return None
        with reading(path, RunFolderError, "sally-anne patch"):
            return cls(**load_file(path))

    def apart(self) -> list[Self]:
        """Those of each pair by itself."""
        return [type(self)(*(part[[i]] for part in self)) for i in range(len(self.logit_diff))]

    @classmethod
    def joined(cls, every: Iterable[Self | None]) -> Self:
        """Those of all pairs, one after the other."""
        return cls(*map(np.concatenate, zip(*filter(None, every), strict=True)))


def effects_of(
    loaded: LoadedModel,
    pairs: Sequence[ContrastPair],
    reply: bool,
    sets: Tensor,
    mean: Tensor | None = None,
    exact: bool = True,
    site: str = HEAD_OUT,
    drawn: Sequence[Drawn] | None = None,
) -> Effects:
    """Of pairs that are read together, as by :func:`read_pairs`, and ``sets``, bool ``[S, L, H]``.

    If ``exact`` also of every head by itself, with ``mean [L, H, D]`` ablated to it, too; else NaN.
    """
    read = read_pairs(loaded, pairs, reply, site, drawn=drawn)
    sizes = [len(part.rows) for part in read]

    def every(of: Callable[[Prompts, Tensor], Any]) -> np.ndarray:
        """Of all prompts, with the head outputs of the other of their pair: ``[P, 2, ...]``."""
        both = zip(read, turned, strict=True)
        parts = [np.asarray(torch.as_tensor(of(part, other)).cpu()) for part, other in both]
        return np.concatenate(parts).reshape(len(pairs), 2, *parts[0].shape[1:])

    def apart(values: np.ndarray) -> np.ndarray:
        return values[:, 0] - values[:, 1]

    heads = torch.cat([part.heads for part in read])
    shape = heads.shape[1:3]
    turned = heads.unflatten(0, (-1, 2)).flip(1).flatten(0, 1).split(sizes)
    logit_diff = apart(every(lambda part, _: part.logit_diff))
    each = torch.eye(shape[0] * shape[1], dtype=torch.bool).unflatten(1, shape)
    effect = ablate = dla = np.full((len(pairs), *shape), np.nan)
    chosen = torch.cat([each, sets]) if exact else sets
    exchanged = apart(every(lambda part, other: part.replaced(other, chosen)))
    carried = (logit_diff[:, None] - exchanged) / 2
    if exact:
        single, carried = np.split(carried, [len(each)], axis=1)
        effect = single.reshape(-1, *shape)
    if exact and mean is not None:
        ablated = apart(every(lambda part, _: part.replaced(mean, each)))
        ablate = (logit_diff[:, None] - ablated).reshape(-1, *shape)
    with suppress(HookError):
        dla = apart(every(lambda part, _: part.dla())).astype(np.float64)
    slope = every(lambda part, _: part.gradient()).mean(1)
    outputs = every(lambda part, _: part.heads.float())
    attribution = (slope * apart(outputs)).sum(-1).astype(np.float64)
    whole = apart(every(lambda part, _: part.whole))
    parts = logit_diff, whole, effect, ablate, dla, attribution, outputs.mean(1), carried
    return Effects(*parts)
