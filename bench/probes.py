"""``python -m bench.probes``: what probes for all heads cost, against scikit-learn.

The activations are made up: correlated features with a few strong directions, means far from zero,
scales that differ from layer to layer as in a model, and labels that a part of the heads knows.

- all heads, one label: the batched solver, scikit-learn head after head, and peers;
- all heads, many permutations of the labels: the batched solver on all of them, scikit-learn on a
  few permutations of a few heads, multiplied.

Contenders take turns in one process, on the same cores; scikit-learn, to which more threads are a
burden at this size, uses one. Beside the seconds on the clock
stand those of the processor, which other work on the machine disturbs less.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from bench.errors import PerfError
from sally_anne.core.commands import plain_errors, read_options
from sally_anne.core.options import Natural, Seed, check_options
from sally_anne.probing.config import DEFAULT_C, DEFAULT_MAX_ITER

# Standard deviation within a feature, first to last layer; trained models show such a spread.
SCALES = (0.3, 1.5)
# Share of heads that know the label.
KNOWING = 0.3


@dataclass(frozen=True)
class ProbesPerfConfig:
    """Time probes for all heads, and permutation tests.

    Attributes:
        layers: of the made-up model.
        heads: a layer.
        width: of a head.
        samples: training samples; four a story.
        held: held-out samples.
        threads: of every contender but scikit-learn.
        repeats: turns of each contender; medians are compared.
        permutations: of the labels.
        permuted_heads: heads that are really permuted by the batched solver; all by default.
        peer_permutations: permutations that scikit-learn really fits.
        peer_heads: heads on which it fits them.
        exact: also run scikit-learn with a tolerance of 1e-10, and compare all weights.
        seed: of the activations.
    """

    layers: int = 32
    heads: int = 32
    width: int = 128
    samples: int = 444
    held: int = 148
    threads: int = 1
    repeats: int = 3
    permutations: Natural = 1000
    permuted_heads: int | None = None
    peer_permutations: int = 20
    peer_heads: int = 8
    exact: bool = True
    seed: Seed = 0


@dataclass(frozen=True)
class Made:
    """Activations ``[N, L, H, D]``, labels and stories; the first ``samples`` rows train."""

    x: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    train: np.ndarray


@dataclass(frozen=True)
class Weights:
    """``[G, D]`` and ``[G]``."""

    coef: np.ndarray
    intercept: np.ndarray

    def predicted(self, x: np.ndarray) -> np.ndarray:
        """Labels ``[N, G]`` of ``x [N, G, D]``."""
        return np.einsum("ngd,gd->ng", x.astype(np.float64), self.coef) + self.intercept > 0


def make(config: ProbesPerfConfig) -> Made:
    """Activations in which some heads know the label."""
    draw = np.random.default_rng(config.seed)
    n, width = config.samples + config.held, config.width
    y = np.arange(n) % 2 == 1
    x = np.empty((n, config.layers, config.heads, width), dtype=np.float32)
    spectrum = 1.0 / np.arange(1, width + 1)
    spectrum *= np.sqrt(width / np.square(spectrum).sum())
    for layer, scale in enumerate(np.linspace(*SCALES, config.layers)):
        for head in range(config.heads):
            basis = np.linalg.qr(draw.normal(size=(width, width)))[0]
            z = (draw.normal(size=(n, width)) * spectrum) @ basis + draw.normal(size=width)
            if draw.random() < KNOWING:
                side = draw.normal(size=width) / np.sqrt(width)
                z += (2.0 * y - 1)[:, None] * side * draw.uniform(0.2, 2.0)
            x[:, layer, head] = scale * z
    return Made(x, y, np.arange(n) // 4, np.arange(n) < config.samples)


def batched(x: np.ndarray, y: np.ndarray) -> Weights:
    """The batched solver on ``x [N, G, D]``."""
    from sally_anne.probing.logistic import Problems, solve

    fits = solve(Problems(torch.from_numpy(x), torch.from_numpy(y[None].astype(int)), 2, DEFAULT_C))
    if not fits.converged.all():
        raise RuntimeError(f"{int((~fits.converged).sum())} heads did not converge")
    return Weights(fits.coef[:, 0, 0].numpy(), fits.intercept[:, 0, 0].numpy())


def loop(x: np.ndarray, y: np.ndarray, **options: object) -> Weights:
    """scikit-learn, head after head, on one thread: more make it slower at this size."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    settings = {"C": DEFAULT_C, "max_iter": DEFAULT_MAX_ITER} | options
    found = Weights(np.empty(x.shape[1:]), np.empty(x.shape[1]))
    # Here, as scipy brings a library of its own that is loaded with scikit-learn.
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore")
        for head in range(x.shape[1]):
            model = LogisticRegression(**settings).fit(x[:, head].astype(np.float64), y)
            found.coef[head], found.intercept[head] = model.coef_[0], model.intercept_[0]
    return found


def plain_newton(x: np.ndarray, y: np.ndarray) -> Weights:
    """Newton's method in float64 for blocks of heads, without anything clever."""
    targets = torch.from_numpy(y.astype(np.float64))
    coefs, intercepts = [], []
    for block in torch.from_numpy(x).split(32, dim=1):
        z = torch.cat([block.transpose(0, 1).double(), torch.ones(block.shape[1], len(y), 1)], -1)
        w = torch.zeros(*z.shape[::2], dtype=torch.float64)
        penalty = torch.ones(z.shape[-1], dtype=torch.float64)
        penalty[-1] = 0.0
        for _ in range(25):
            p = torch.sigmoid((z @ w[..., None])[..., 0])
            gradient = DEFAULT_C * ((p - targets)[:, None] @ z)[:, 0] + penalty * w
            curved = DEFAULT_C * (z * (p * (1 - p))[..., None]).mT @ z + penalty.diag()
            step = torch.linalg.solve(curved, gradient)
            w = w - step
            if step.norm(dim=-1).max() < 1e-8:
                break
        coefs.append(w[:, :-1])
        intercepts.append(w[:, -1])
    return Weights(torch.cat(coefs).numpy(), torch.cat(intercepts).numpy())


Fitter = Callable[[np.ndarray, np.ndarray], Weights]
CONTENDERS: dict[str, Fitter] = {
    "batched solver": batched,
    "scikit-learn loop, lbfgs (default tolerance)": loop,
    "scikit-learn loop, newton-cholesky (to beat)": lambda x, y: loop(
        x, y, solver="newton-cholesky"
    ),
    "plain Newton in float64, 32 heads at once": plain_newton,
}
# scikit-learn's default, and the fastest of its solvers.
LOOP, FASTEST = list(CONTENDERS)[1:3]


def measure(config: ProbesPerfConfig) -> dict[str, Any]:
    """Raw seconds of every contender, and how near each comes to the exact weights."""
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        with threadpool_limits(config.threads):
            made = make(config)
            found = {
                "heads": config.layers * config.heads,
                "samples": config.samples,
                "width": config.width,
                "threads": config.threads,
                "loop": LOOP,
                "one label": one_label(config, made),
            }
            if config.permutations:
                found["permutations"] = permuted(config, made)
            return found
    finally:
        torch.set_num_threads(before)


def one_label(config: ProbesPerfConfig, made: Made) -> dict[str, Any]:
    """All heads fitted once: of each contender seconds, processor seconds and, if asked, errors."""
    x = made.x.reshape(len(made.x), -1, config.width)
    train, held = np.ascontiguousarray(x[made.train]), x[~made.train]
    y, truth = made.y[made.train], made.y[~made.train]
    results: dict[str, Any] = {name: {"seconds": [], "processor": []} for name in CONTENDERS}
    found: dict[str, Weights] = {}
    for fit in CONTENDERS.values():
        fit(train[:, :4], y)
    for _ in range(config.repeats):
        for name, fit in CONTENDERS.items():
            begun = _now()
            found[name] = fit(train, y)
            clock, busy = _since(begun)
            results[name]["seconds"].append(clock)
            results[name]["processor"].append(busy)
    if not config.exact:
        return results
    exact = loop(train, y, tol=1e-10, max_iter=100_000)
    for name, weights in found.items():
        equal = np.ones(x.shape[1], dtype=bool)
        for rows, labels in ((train, y), (held, truth)):
            right = [(w.predicted(rows) == labels[:, None]).sum(axis=0) for w in (weights, exact)]
            equal &= right[0] == right[1]
        size = np.linalg.norm(exact.coef, axis=1)
        off = np.linalg.norm(weights.coef - exact.coef, axis=1) / size
        results[name]["heads with the exact accuracy"] = int(equal.sum())
        results[name]["largest relative error of weights"] = float(off.max())
    return results


def print_one_label(found: dict[str, Any]) -> None:
    """Print the table of all heads fitted once."""
    results = found["one label"]
    clock, busy = (
        {name: statistics.median(each[kind]) for name, each in results.items()}
        for kind in ("seconds", "processor")
    )
    print(
        f"\n{found['heads']} heads x {found['samples']} samples x {found['width']}, "
        f"C = {DEFAULT_C}, one label"
    )
    print(
        "| contender | seconds (min - max) | lbfgs / it | newton-cholesky / it | processor seconds "
        "| newton-cholesky / it | heads with the exact accuracy, train and held out "
        "| largest relative error of weights |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    checked = "heads with the exact accuracy" in results[LOOP]
    for name, each in results.items():
        same, error = "", ""
        if checked:
            same = f"{each['heads with the exact accuracy']} of {found['heads']}"
            error = f"{each['largest relative error of weights']:.1e}"
        times = each["seconds"]
        print(
            f"| {name} | {clock[name]:.2f} ({min(times):.2f} - {max(times):.2f}) "
            f"| {clock[LOOP] / clock[name]:.1f} | {clock[FASTEST] / clock[name]:.1f} "
            f"| {busy[name]:.2f} | {busy[FASTEST] / busy[name]:.1f} | {same} | {error} |"
        )
    if checked:
        print("\nExact is the scikit-learn loop with a tolerance of 1e-10.")


def permuted(config: ProbesPerfConfig, made: Made) -> dict[str, Any]:
    """Permutation tests: seconds of the batched solver, and of the fastest loop, multiplied."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    from sally_anne.probing.activations import Activations
    from sally_anne.probing.resampling import permutation_test, shuffled

    n = len(made.x)
    x = made.x.reshape(n, -1, config.width)
    count = x.shape[1] if config.permuted_heads is None else config.permuted_heads
    # Heads of all layers.
    chosen = np.linspace(0, x.shape[1] - 1, count).astype(int)
    items = pd.DataFrame({"group": made.groups, "y": made.y})
    train, held = (
        Activations(np.ascontiguousarray(x[mask][:, chosen][:, None]), items[mask], ("y",))
        for mask in (made.train, ~made.train)
    )
    begun = _now()
    test = permutation_test(train, held, "y", config.permutations)
    ours = _since(begun)
    labels = shuffled(made.y, made.groups, config.peer_permutations)
    peers = np.linspace(0, x.shape[1] - 1, config.peer_heads).astype(int)
    times = []
    with threadpool_limits(1, "blas"):
        for head in peers:
            rows = x[:, head].astype(np.float64)
            for y in labels:
                begun = _now()
                model = LogisticRegression(
                    C=DEFAULT_C, max_iter=DEFAULT_MAX_ITER, solver="newton-cholesky"
                )
                model.fit(rows[made.train], y[made.train])
                model.score(rows[~made.train], y[~made.train])
                times.append(_since(begun))
    one = [statistics.fmean(t[kind] for t in times) for kind in (0, 1)]
    whole = [each * (config.permutations + 1) * count for each in one]
    return {
        "heads": count,
        "permutations": config.permutations,
        "samples": config.samples,
        "held": config.held,
        "peer permutations": config.peer_permutations,
        "peer heads": config.peer_heads,
        "peer fits": len(times),
        "seconds of a peer fit": [t[0] for t in times],
        "loop seconds": whole[0],
        "loop processor": whole[1],
        "batched seconds": ours[0],
        "batched processor": ours[1],
        "unconverged": test.unconverged,
        "heads with p < 0.05 corrected": int((test.corrected < 0.05).sum()),
        "mean of the null": float(test.null.mean()),
    }


def print_permuted(found: dict[str, Any]) -> None:
    """Print the table of permutation tests."""
    test = found["permutations"]
    count, permutations = test["heads"], test["permutations"]
    whole = (test["loop seconds"], test["loop processor"])
    ours = (test["batched seconds"], test["batched processor"])
    print(
        f"\n{count} heads x {permutations} permutations, fitted on {test['samples']} and "
        f"scored on {test['held']} samples"
    )
    print(
        "| contender | seconds | a fit | loop / it | processor seconds | loop / it |\n"
        "|---|---|---|---|---|---|"
    )
    fits = count * (permutations + 1)
    print(
        f"| scikit-learn loop, newton-cholesky (from {test['peer permutations']} permutations of "
        f"{test['peer heads']} heads) | {whole[0]:.0f} | {whole[0] / fits * 1e3:.2f} ms | 1 "
        f"| {whole[1]:.0f} | 1 |"
    )
    print(
        f"| batched solver | {ours[0]:.1f} | {ours[0] / fits * 1e3:.4f} ms "
        f"| {whole[0] / ours[0]:.0f} | {ours[1]:.1f} | {whole[1] / ours[1]:.0f} |"
    )
    print(
        f"\n{test['unconverged']} fits did not reach their tolerance; heads with p < 0.05 "
        f"corrected: {test['heads with p < 0.05 corrected']} of {count}; mean of the null "
        f"{test['mean of the null']:.4f}"
    )


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(begun: tuple[float, float]) -> tuple[float, float]:
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


def check(config: ProbesPerfConfig) -> None:
    """What is wrong with the options.

    Raises:
        PerfError: names the option.
    """
    check_options(config)
    if config.samples < 8 or config.held < 4 or config.samples % 4 or config.held % 4:
        raise PerfError("--samples and --held must be whole stories of four, at least 8 and 4")


def main() -> None:
    """The command line."""
    with plain_errors():
        config = read_options(ProbesPerfConfig, "python -m bench.probes")
        check(config)
        found = measure(config)
    print(f"torch {torch.__version__}, {config.threads} threads, median of {config.repeats}")
    print_one_label(found)
    if "permutations" in found:
        print_permuted(found)


if __name__ == "__main__":
    main()
