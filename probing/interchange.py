"""Activation patching: heads' outputs of one prompt of a pair are put into the other.

They are replaced at one token. The effect is in logits, as a share of the difference within the
pair: 1 where a set of heads carries all of it, 0 where it carries none. Only what stands at that
one token is exchanged, so all heads together carry 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.numpy import load_file, save
from torch import Tensor

from sally_anne.core.errors import HookError, ProbingError, RunFolderError
from sally_anne.core.files import reading, write_atomic
from sally_anne.data.pairs import ContrastPair
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import HEAD_OUT, RESID, final_norm, find_geometry, o_projs, w_o
from sally_anne.hooks.positions import ALL
from sally_anne.models.decoding import (
    State,
    extend,
    log_probs_of,
    prefill,
    read_side_by_side,
    split_common_prefix,
)
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import continuations, encode, open_prompt, reply_prompt

# Tokens that are read side by side.
COLUMNS = 256


@dataclass(frozen=True)
class Prompt:
    """One of a pair, read up to its last ``token``: ``row`` of a state after all before it.

    ``answers`` are token ids of both answers from the first that tells them apart on; what they
    share before it is read with the prompt. Heads are exchanged at the ``site``.
    """

    loaded: LoadedModel
    state: State
    row: int
    token: int
    answers: tuple[tuple[int, ...], tuple[int, ...]]
    site: str = HEAD_OUT

    @property
    def words(self) -> tuple[int, int]:
        """The first token of each answer that tells them apart."""
        return self.answers[0][0], self.answers[1][0]

    def logit_diffs(self, count: int = 1) -> Tensor:
        """Logit of the first prompt's answer less the second's, ``[count]``, of equal readings."""
        logits = read_side_by_side(self.loaded, self.state, self.row, self.token, count)
        # Apple's GPUs have no float64.
        first, second = logits[:, list(self.words)].cpu().double().unbind(1)
        return first - second

    @cached_property
    def heads(self) -> Tensor:
        """Head outputs at the last token, ``[L, H, D]``."""
        with torch.no_grad(), Capture(self.loaded.model, self.site, ALL) as capture:
            self.logit_diffs()
            return capture.take()[0, 0]

    @cached_property
    def logit_diff(self) -> float:
        """:meth:`logit_diffs` of the run as it is."""
        with torch.no_grad():
            return float(self.logit_diffs())

    @cached_property
    def whole(self) -> float:
        """Log-probability of the first answer, all its tokens together, less that of the second."""
        if max(map(len, self.answers)) == 1:
            return self.logit_diff
        with torch.no_grad():
            state = extend(self.loaded, self.state, [self.row] * 2, [[self.token]] * 2)
            first, second = log_probs_of(self.loaded, state, self.answers)
        return float(first - second)

    def replaced(self, values: Tensor, chosen: Tensor, columns: int = COLUMNS) -> np.ndarray:
        """Logit differences ``[C]`` with heads replaced by ``values [L, H, D]``.

        Each C of ``chosen``, bool ``[C, L, H]``, is a run of its own; so many ``columns`` at once.
        """
        diffs = [torch.zeros(0, dtype=torch.float64)]
        for part in chosen.split(columns) if len(chosen) else ():
            edit = Edit(self.loaded.model, values, self.site, ALL, how="replace", heads=part[None])
            with torch.no_grad(), edit:
                diffs.append(self.logit_diffs(len(part)))
        return torch.cat(diffs).numpy()

    def gradient(self) -> Tensor:
        """Of the logit_diff by the head outputs, ``[L, H, D]``, in float32."""
        leaf = torch.zeros(self.heads.shape, requires_grad=True)
        chosen = torch.ones(leaf.shape[:2], dtype=torch.bool)
        with torch.enable_grad(), Edit(self.loaded.model, leaf, self.site, ALL, heads=chosen):
            return torch.autograd.grad(self.logit_diffs().sum(), leaf)[0]

    def dla(self) -> Tensor:
        """What each head adds to the logit_diff by itself, ``[L, H]``: direct logit attribution.

        Its output goes through W_o, the last norm at the scale that it has in this run, and the
        unembedding. A HookError says where that is not defined.
        """
        if self.site != HEAD_OUT:
            raise HookError(f"direct logit attribution is of head_out, not {self.site}")
        model, geometry = self.loaded.model, find_geometry(self.loaded.model)
        norm, last = final_norm(model), geometry.n_layers - 1
        with torch.no_grad(), Capture(model, RESID, ALL, layers=[last]) as capture:
            self.logit_diffs()
            stream = capture.take()[0, 0, 0].flatten().to(next(norm.parameters()).device)
            weight = norm(torch.ones_like(stream))
            normed, scaled = norm(stream), weight * stream
            scale = (normed * scaled).sum() / (scaled * scaled).sum()
            layer = model.get_submodule(geometry.layer_names[last])
            apart = geometry.left_out or hasattr(layer, "post_feedforward_layernorm")
            if apart or not torch.allclose(
                scale * scaled, normed, rtol=2e-2, atol=2e-2 * float(normed.abs().max())
            ):
                raise HookError(
                    f"{type(model).__name__}: direct logit attribution is defined where all layers "
                    "have heads, which are added to the residual stream as they are, and the last "
                    "norm is an RMSNorm"
                )
            steps = logit_directions(model, self.words, scale)
            return (steps * self.heads.float()).sum(-1)


def logit_directions(model: Any, words: tuple[int, int], scale: Tensor | float = 1.0) -> Tensor:
    """Directions along which heads add to the first word's logit above the second's, ``[L, H, D]``.

    Through W_o, the weight of the last norm, which multiplies its input by ``scale``, and the
    unembedding. A HookError says that the last norm is not found, or is no RMSNorm.
    """
    geometry, norm = find_geometry(model), final_norm(model)
    if getattr(norm, "bias", None) is not None:
        raise HookError(f"{type(norm).__name__}: the last norm must be an RMSNorm")
    out = model.get_output_embeddings().weight
    with torch.no_grad():
        weight = norm(torch.ones_like(out[0])).float()
        read = scale * weight * (out[words[0]].float() - out[words[1]].float())
        parts = [w_o(z).float().T @ read.to(z.weight.device) for z in o_projs(model)]
        return torch.stack([part.cpu() for part in parts]).unflatten(1, (geometry.n_heads, -1))


def prompts_of(loaded: LoadedModel, pair: ContrastPair, reply: bool) -> list[str]:
    """Both prompts of a pair, laid out; ``reply`` is as of `sally_anne.data.pairs.PairSet`."""
    layout = reply_prompt if reply else open_prompt
    return [layout(loaded, sample.turns, sample.shows) for sample in pair.samples]


def answer_ids(loaded: LoadedModel, pair: ContrastPair, prompt: str) -> list[list[int]]:
    """Token ids of both answers as they follow one of the prompts.

    Raises:
        ProbingError: one is how the other begins, so that no token tells them apart.
    """
    first, second = continuations(loaded, prompt, pair.answers)
    if first[: len(second)] == second[: len(first)]:
        raise ProbingError(
            f"pair {pair.samples[0].pair} ({pair.name}): of its answers {pair.answers[0]!r} "
            f"({first}) and {pair.answers[1]!r} ({second}) one is how the other begins, so no "
            "token tells them apart: give others"
        )
    return [first, second]


def read_pair(
    loaded: LoadedModel, pair: ContrastPair, reply: bool, site: str = HEAD_OUT, shared: bool = True
) -> tuple[Prompt, Prompt]:
    """Read both prompts up to their last token, and what statements on one context share once.

    At ``site`` heads will be exchanged. Of answers that begin alike what is ``shared`` is read,
    too, unless only the prompts' own last tokens matter.

    Raises:
        ProbingError: as of :func:`answer_ids`.
        ModelError, ContextError, MediaError: a prompt cannot be made.
    """
    samples, prompts = pair.samples, prompts_of(loaded, pair, reply)
    answers = [answer_ids(loaded, pair, prompt) for prompt in prompts]
    alike_ids = [os.path.commonprefix(both) for both in answers]
    one = samples[0].context and samples[0].context == samples[1].context
    cuts = [split_common_prefix(loaded, part) for part in ([prompts] if one else zip(prompts))]
    endings = [ending for cut in cuts for ending in cut.endings]
    if shared:
        endings = [(*ending, *more) for ending, more in zip(endings, alike_ids, strict=True)]
    frames = [sample.frames() for sample in samples[: len(cuts)]] if samples[0].shows else None
    # Films of one shape are read together.
    alike = one or samples[0].shape() == samples[1].shape()
    read = []
    with torch.no_grad():
        for batch in [[*range(len(cuts))]] if alike else [[0], [1]]:
            clips = frames and [frames[i] for i in batch]
            begun = prefill(loaded, encode(loaded, [cuts[i].beginning for i in batch], clips))
            own = [0, 0] if one else [*range(len(batch))]
            middles = [ending[:-1] for ending in (endings if one else [endings[i] for i in batch])]
            state = extend(loaded, begun, own, middles)
            read += [(state, row) for row in range(len(own))]
    a, b = (
        Prompt(loaded, state, row, ending[-1], (tuple(own[n:]), tuple(other[n:])), site)
        for (state, row), ending, (own, other), n in zip(
            read, endings, answers, map(len, alike_ids), strict=True
        )
    )
    return a, b


@dataclass(frozen=True)
class Effects:
    """Of P pairs, in logits; see :func:`sally_anne.core.bootstrap.estimate_shares`.

    Attributes:
        logit_diff: ``[P]``, of the first input less that of the second.
        whole: likewise, of the whole answers' log-probabilities; the same of single tokens.
        effect: ``[P, L, H]``, what goes along when one head is exchanged, half of it each way.
        ablate: likewise, what is lost of it when a head is replaced by its mean in both.
        dla: likewise, by direct logit attribution; NaN where it is not defined.
        attribution: likewise, gradient times difference.
        mean: ``[P, L, H, D]``, head outputs, the mean of both sides.
        sets: of S sets of heads, ``[P, S]``, as ``effect``.
    """

    logit_diff: np.ndarray
    whole: np.ndarray
    effect: np.ndarray
    ablate: np.ndarray
    dla: np.ndarray
    attribution: np.ndarray
    mean: np.ndarray
    sets: np.ndarray

    def write(self, path: Path) -> None:
        """Keep them in a file of safetensors; its folder is made."""
        path.parent.mkdir(exist_ok=True)
        arrays = {name: np.ascontiguousarray(value) for name, value in vars(self).items()}
        write_atomic(path, save(arrays))

    @classmethod
    def read(cls, path: Path | None) -> Self | None:
        """What is kept in a file; None where there is none, RunFolderError if it is damaged."""
        if path is None or not path.exists():
            return None
        with reading(path, RunFolderError, "sally-anne patch"):
            return cls(**load_file(path))

    @classmethod
    def joined(cls, every: Iterable[Self | None]) -> Self:
        """Those of all pairs, one after the other."""
        parts = zip(*(vars(one).values() for one in every if one), strict=True)
        return cls(*map(np.concatenate, parts))


def effects_of(
    loaded: LoadedModel,
    pair: ContrastPair,
    reply: bool,
    sets: Tensor,
    mean: Tensor | None = None,
    exact: bool = True,
    site: str = HEAD_OUT,
) -> Effects:
    """The effects of one pair, P = 1; arguments and errors as of :func:`read_pair`.

    Args:
        sets: sets of heads, bool ``[S, L, H]``.
        mean: head outputs that ablate, ``[L, H, D]``; ``ablate`` is NaN without.
        exact: also exchange and ablate every head by itself; else these are NaN.
    """
    a, b = read_pair(loaded, pair, reply, site)
    logit_diff, shape = a.logit_diff - b.logit_diff, a.heads.shape[:2]
    each = torch.eye(shape[0] * shape[1], dtype=torch.bool).unflatten(1, shape)
    effect = ablate = dla = np.full(shape, np.nan)
    chosen = torch.cat([each, sets]) if exact else sets
    carried = (
        a.logit_diff - a.replaced(b.heads, chosen) + b.replaced(a.heads, chosen) - b.logit_diff
    ) / 2
    if exact:
        effect, carried = carried[: len(each)].reshape(shape), carried[len(each) :]
    if exact and mean is not None:
        ablate = (logit_diff - (a.replaced(mean, each) - b.replaced(mean, each))).reshape(shape)
    with suppress(HookError):
        dla = (a.dla() - b.dla()).double().numpy()
    slope = (a.gradient() + b.gradient()) / 2
    attribution = (slope * (a.heads - b.heads).float()).sum(-1).double().numpy()
    both = ((a.heads.float() + b.heads.float()) / 2).numpy()
    whole = np.array(a.whole - b.whole)
    parts = (np.array(logit_diff), whole, effect, ablate, dla, attribution, both, carried)
    return Effects(*(part[None] for part in parts))
