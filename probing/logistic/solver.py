"""Blocks of heads made ready once, and fitted for any label vectors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from sally_anne.core.errors import ProbingError
from sally_anne.probing.logistic.certificate import StoppingRule
from sally_anne.probing.logistic.descent import Block, conjugate_gradients
from sally_anne.probing.logistic.losses import Losses
from sally_anne.probing.logistic.problems import Fits, Problems, Settings

# Bytes a block may fill: of the order of a processor's cache, or a part of a GPU's memory.
CPU_BLOCK, GPU_BLOCK = 24e6, 2e9
# Bytes of the heads that are in float64 at a time on a processor: they should stay in its cache.
CPU_PIECE = 4e6
# Arrays as large as the logits that an iteration holds.
LOGIT_ARRAYS = 6
# Relative error down to which float32 serves alone, and from which float64 takes over otherwise.
FLOAT32, COARSE = 1e-4, 1e-3
# Limits of the conjugate gradients in float32, of the objective and of its quadratic model, and how
# small the residual of the latter can be made.
COARSE_STEPS, LINEAR_STEPS, FINEST = 24, 64, 1e-4
# Newton steps in float64; what is open then is left to scikit-learn, and polished again.
POLISH = 4
# Squares of longer samples would not fit into float32.
LONGEST = 1e15
# With fewer label vectors than this, and below a curvature of that, a preconditioner does not pay.
MANY_PROBLEMS, MILD = 8, 30.0


def solve(problems: Problems, settings: Settings | None = None) -> Fits:
    """Fit every label vector on every head; the fits are on the CPU.

    Raises:
        ProbingError: a head's samples hold NaN or infinity (it is named).
    """
    whole: dict[str, Tensor] = {}
    for at, part in solve_blocks(problems, settings):
        for name, value in vars(part).items():
            size = (problems.x.shape[1], len(problems.labels), *value.shape[2:])
            whole.setdefault(name, torch.empty(size, dtype=value.dtype))[at] = value.cpu()
    return Fits(**whole)


def solve_blocks(
    problems: Problems, settings: Settings | None = None
) -> Iterator[tuple[tuple[slice, slice], Fits]]:
    """The fits block by block, for results that are too large to keep: heads, label vectors, fits.

    The fits stay on the device. Errors as of :func:`solve`.
    """
    settings = settings or Settings()
    place = torch.device(settings.device or problems.x.device)
    weights = None if problems.weights is None else problems.weights.to(place)
    losses = Losses.of(problems.labels.to(place), problems.n_classes, problems.c, weights)
    n, heads, width = problems.x.shape
    count, outputs, gpu = len(losses.targets), losses.outputs, place.type == "cuda"
    room = settings.block_bytes or (GPU_BLOCK if gpu else CPU_BLOCK)
    columns = int(max(1, min(count, 0.5 * room // (4 * LOGIT_ARRAYS * outputs * n))))
    rows = int(max(1, min(heads, room // (4 * n * (width + LOGIT_ARRAYS * outputs * columns)))))
    # Of one size and, if there are several, an even number, so that cores end together. Their size
    # does not depend on the number of cores, as the last digits depend on it.
    turns = ceil(heads / rows)
    rows = ceil(heads / (turns + (turns % 2 if turns > 1 else 0)))
    blocks = [slice(first, min(first + rows, heads)) for first in range(0, heads, rows)]
    exact = rows if gpu else int(max(1, min(rows, CPU_PIECE // (8 * n * width))))

    def fits_of(blocks: list[slice]) -> Iterator[tuple[tuple[slice, slice], Fits]]:
        # Taken once: to fault in new memory for every block costs as much as to fit it.
        coarse = torch.ones(rows, n, width + 1, dtype=torch.float32, device=place)
        fine = torch.ones(exact, n, width + 1, dtype=torch.float64, device=place)
        for block in blocks:
            samples = Float64Block.of(problems, block, losses, coarse, fine)
            for start in range(0, count, columns):
                part = slice(start, min(start + columns, count))
                yield (block, part), samples.fit(losses.take(part), settings)

    # The products of few label vectors are too small to share: each core takes blocks of its own.
    threads = torch.get_num_threads()
    workers = min(threads if not gpu and columns == count else 1, len(blocks))
    if workers == 1:
        yield from fits_of(blocks)
        return
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            shares = [blocks[first::workers] for first in range(workers)]
            for found in pool.map(lambda share: list(fits_of(share)), shares):
                yield from found
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class Float64Block:
    """A block of heads; in float64 a few at a time, as all together would not stay in the cache.

    Attributes:
        x: ``[N, B, D]`` samples as they are.
        centre: ``[B, D]`` what is taken off them.
        radius: ``[B]`` norm of the longest centred sample, in float32.
        coarse: centred, in float32.
        memory: ``[M, N, E]`` where M heads at a time are made, its last column ones.
    """

    x: Tensor
    centre: Tensor
    radius: Tensor
    coarse: Block
    memory: Tensor

    @classmethod
    def of(cls, problems: Problems, heads: slice, losses: Losses, *memory: Tensor) -> Float64Block:
        """Centre the block's samples, and bound their curvature for any labels."""
        coarse, fine = memory
        x = problems.x[:, heads].to(fine.device)
        if not x.dtype.is_floating_point or x.dtype.itemsize < 4:
            x = x.float()
        coarse, centre = coarse[: x.shape[1]], x.mean(0)
        torch.sub(x.transpose(0, 1), centre[:, None], out=coarse[..., :-1])
        lengths = torch.linalg.vector_norm(coarse[..., :-1], dim=-1)
        # Rounded up, as it is part of a bound.
        radius = lengths.amax(-1) * (1 + 1e-5)
        if bool((bad := ~(radius < LONGEST)).any()):
            head = int(bad.nonzero()[0])
            wrong = (~x[:, head].isfinite().all(-1)).nonzero()
            what = f"activations up to {float(x[:, head].abs().max()):.1e} are too large"
            if len(wrong):
                what = f"the activations of sample {int(wrong[0])} hold NaN or infinity"
            raise ProbingError(f"{problems.name(heads.start + head)}: {what}")
        # The curvature where nothing is known; of two classes none is larger.
        flat = 0.25 if losses.outputs == 1 else 1.0 / losses.outputs
        strength = flat * losses.sample_weights.mean(0).float()
        many = len(losses.targets) * losses.outputs >= MANY_PROBLEMS
        steep = many or bool(((lengths.square() * strength).sum(-1) > MILD).any())
        inverse = inverse_bound(coarse, strength) if steep else None
        return cls(x, centre.double(), radius, Block(coarse, inverse), fine)

    def fit(self, losses: Losses, settings: Settings) -> Fits:
        """Near the optimum in float32, to it in float64."""
        coarse, shape, n = self.coarse, (losses.outputs, -1), self.coarse.x.shape[1]
        single = losses.to(torch.float32)
        enough = 0.3 * settings.tolerance if settings.tolerance >= FLOAT32 else COARSE
        rule = StoppingRule(self.radius, coarse.x.shape[-1], single, enough)
        # The best intercepts alone: the same logits for all samples.
        start = losses.start.expand(len(coarse.x), -1, -1)
        logits = start.float().repeat_interleave(n, dim=-1).flatten(2)
        probabilities = single.probabilities(logits)
        pull = coarse.gather(single.residuals(probabilities))
        begin, limit = (pull, probabilities, logits), min(settings.max_iter, COARSE_STEPS)
        moves = conjugate_gradients(coarse, single, rule.penalised, *begin, rule, limit)
        rows = moves.double().nan_to_num_(0.0, 0.0, 0.0).unflatten(-1, shape)
        rows[..., -1] += start
        found, bound, done = self.polish(losses, rows.flatten(2), settings)
        if settings.max_iter > POLISH and not bool(done.all()):
            for head, problem in (~done).nonzero().tolist():
                found[head, problem] = self._by_scikit_learn(
                    losses, head, problem, settings.max_iter
                )
            found, bound, done = self.polish(losses, found, settings)
        found = found.unflatten(-1, shape)
        # At zero weights the best intercept is known, so the gradient alone is the bound.
        pull = pull.double().unflatten(-1, shape)[..., :-1]
        zeroed = pull.abs().amax((-2, -1)) <= settings.zero_weight_tol * losses.mass
        away = torch.linalg.vector_norm(pull, dim=(-2, -1)) + rule.rounding
        coef = torch.where(zeroed[..., None, None], 0.0, found[..., :-1])
        shift = torch.where(zeroed[..., None], start, found[..., -1])
        intercept = shift - torch.einsum("bpkd,bd->bpk", coef, self.centre)
        if losses.outputs > 1:
            # What float32 added to all classes alike does nothing.
            intercept = intercept - intercept.mean(-1, keepdim=True)
        bound = torch.where(zeroed, away, bound)
        return Fits(coef, intercept, bound, done | zeroed, zeroed)

    def polish(self, losses: Losses, rows: Tensor, settings: Settings) -> tuple[Tensor, ...]:
        """Newton's method from rows ``[B, P, K * E]`` near the optimum.

        There the Hessian hardly changes, so one linear system gives nearly all that is missing; its
        right side has to be exact, its solution does not. Gives the rows where each problem's bound
        is smallest, that bound, and whether it is small enough.
        """
        radius, single = self.radius.double(), losses.to(torch.float32)
        rule = StoppingRule(radius, self.coarse.x.shape[-1], losses, settings.tolerance)
        heads, block = torch.arange(len(radius), device=rows.device), self.coarse
        limit = min(settings.max_iter, POLISH)
        best, smallest = rows.clone(), rows.new_full(rows.shape[:2], torch.inf)
        solved = smallest < 0
        for taken in range(limit + 1):
            probabilities, gradient = self._derivatives(losses, heads, rows)
            gradient = torch.addcmul(gradient, rows, rule.penalised)
            bound, allowed, done = rule(heads, rows, gradient, probabilities)
            better = ~solved[heads] & (bound <= smallest[heads])
            best[heads] = torch.where(better[..., None], rows, best[heads])
            smallest[heads] = torch.where(better, bound, smallest[heads])
            solved[heads] |= better & done
            left = (open_ := ~solved[heads]).any(-1)
            if taken == limit or not bool(left.any()):
                break
            small = torch.where(open_, 0.3 * allowed / bound, torch.inf).clamp(min=FINEST)
            # Of norm 1, as float32 has no room for very small ones.
            size = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True).clamp(min=1e-300)
            now = ((gradient / size).float(), probabilities.float(), None)
            step = conjugate_gradients(
                block, single, rule.penalised.float(), *now, small.float(), LINEAR_STEPS
            )
            rows = (rows + size * step.double())[left]
            if not bool(left.all()):
                heads, block = heads[left], block.take(left)
        return best, smallest + rule.rounding, solved

    def _by_scikit_learn(self, losses: Losses, head: int, problem: int, max_iter: int) -> Tensor:
        """Rows of one problem, for weak penalties and labels that a head tells apart."""
        x = self._made(torch.tensor([head], device=self.x.device)).x[0, :, :-1].cpu().numpy()
        targets = losses.by_class(losses.targets[problem]).cpu().numpy()
        y = targets[0] if losses.outputs == 1 else targets.argmax(0)
        weights = losses.sample_weights[problem].cpu().numpy()
        model = LogisticRegression(tol=1e-12, max_iter=max_iter, solver="newton-cholesky")
        with warnings.catch_warnings():
            # How far it got is told by the bound.
            warnings.simplefilter("ignore")
            model.fit(x, y, weights)
        found = np.concatenate([model.coef_, model.intercept_[:, None]], axis=1)
        return torch.from_numpy(found).flatten().to(self.x.device)

    def _derivatives(self, losses: Losses, heads: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of some heads' rows, and the losses' gradient, in float64."""
        probabilities = rows.new_empty(*rows.shape[:2], losses.targets.shape[-1])
        gradient = torch.empty_like(rows)
        for first in range(0, len(heads), len(self.memory)):
            part = slice(first, first + len(self.memory))
            fine = self._made(heads[part])
            probabilities[part] = losses.probabilities(fine.logits(rows[part]))
            gradient[part] = fine.gather(losses.residuals(probabilities[part]))
        return probabilities, gradient

    def _made(self, heads: Tensor) -> Block:
        """Some heads in float64; they are overwritten by the next ones."""
        fine = self.memory[: len(heads)]
        first, last = int(heads[0]), int(heads[-1])
        # Neighbours need no copy.
        these = slice(first, last + 1) if last - first == len(heads) - 1 else heads
        fine[..., :-1].copy_(self.x[:, these].transpose(0, 1)).sub_(self.centre[these, None])
        return Block(fine)


def inverse_bound(x: Tensor, strength: Tensor) -> Tensor:
    """A preconditioner for all label vectors of a head, ``[B, E, E]``.

    Inverse of ``X' diag(strength) X`` plus one on the diagonal but for the intercept. With a
    quarter of the samples' weights as strength that bounds the binary Hessian from above for all
    labels and weights w (Boehning and Lindsay 1988, section 3), and is the Hessian itself at w = 0
    if both classes are equally likely. Where the precision is too coarse, of its diagonal alone.
    X are samples ``[B, N, E]`` with a last column of ones, the strength is ``[N]``.
    """
    if bool((strength == strength[0]).all()):
        matrix = (x.mT @ x).mul_(strength[0])
    else:
        matrix = x.mT @ (x * strength[:, None])
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    diagonal[:, :-1] += 1.0
    factor, info = torch.linalg.cholesky_ex(matrix)
    if bool((rough := info != 0).any()):
        factor[rough] = diagonal[rough].clamp(min=1.0).sqrt().diag_embed()
    return torch.cholesky_inverse(factor)
