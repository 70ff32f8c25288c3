"""Time extraction, probes and permutations against simpler ways.

    python tools/speed.py --model tiny-qwen2-vl --stories 24 --out runs/speed.json
    python tools/speed.py --model qwen2-vl --random --only trace default_run

The second makes a model of full size with random weights, shows where the time of a batch and of
patched pairs goes, and runs the default command; such weights say nothing of beliefs. Contenders
take turns, so that a slow moment of the machine hits all of them. A ratio is the median of the
ratios turn by turn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from torch.profiler import profile

import sally_anne as sa
from sally_anne.core.processes import first_gpu, in_batches
from sally_anne.data.tasks import open_pairs, open_task
from sally_anne.hooks.backends import backend
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import HEAD_OUT, find_geometry
from sally_anne.models.estimate import open_described
from sally_anne.models.options import ModelOptions
from sally_anne.models.prompts import open_prompt, process, to_model
from sally_anne.probing.config import DEFAULT_C, ProbeConfig
from sally_anne.probing.extraction import activations_of, plan_batches, prepare
from sally_anne.probing.interchange import PAIRS, effects_of
from sally_anne.probing.solver import permutation_test, shuffled

BATCH = 8
# One position's logits and no cache: what a forward costs at least.
LEAN = {"logits_to_keep": 1, "use_cache": False}
# Made-up activations: samples to train on and held out, heads and their width.
SAMPLES, HELD, HEADS, WIDTH = 444, 148, 256, 128
PERMUTATIONS = 200
# Sets of heads that a default run exchanges within a pair.
SETS = 206
SKLEARN = "scikit-learn newton-cholesky"
Run = Callable[[], Any]


def now() -> float:
    """Seconds, once an accelerator has finished its work."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def in_turns(contenders: Mapping[str, Run], repeats: int) -> dict[str, list[float]]:
    """Seconds of each run of each contender, after one run that does not count."""
    for run in contenders.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = now()
            run()
            seconds[name].append(now() - start)
    return seconds


def rows(
    part: str, seconds: Mapping[str, Sequence[float]], scale: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """A row a contender; the first is the reference of ``ratio``.

    ``scale`` multiplies the seconds of contenders that did a part of the work alone.
    """
    times = pd.Series({name: (scale or {}).get(name, 1.0) for name in seconds})
    runs = pd.DataFrame(seconds) * times
    found = {"part": part, "multiplied": times, "seconds": runs.median(), "low": runs.min()}
    found |= {"high": runs.max(), "ratio": runs.div(runs.iloc[:, 0], axis=0).median()}
    return pd.DataFrame(found).reset_index(names="contender")


def random_model(name: str) -> str:
    """Save a model with random weights in the shape of a catalogue model; gives its folder."""
    device, folder = first_gpu() or "cpu", Path(tempfile.mkdtemp(dir="/dev/shm", prefix="random-"))
    dtype: Any = "bfloat16" if device != "cpu" else "float32"
    described = open_described(ModelOptions(model=name, dtype=dtype))
    tokenizer, options = described.processor.tokenizer, described.config.to_dict()
    config = type(described.config)(**options)
    # The shipped vocabulary stands in for the model's own.
    marks = {name: getattr(described.processor, f"{name}_token") for name in ("image", "video")}
    marks |= {name: f"<|{name}|>" for name in ("vision_start", "vision_end")}
    for name, mark in marks.items():
        for key in (f"{name}_token_id", f"{name}_token_index"):
            if hasattr(config, key):
                setattr(config, key, tokenizer.convert_tokens_to_ids(mark))
    torch.manual_seed(0)
    kind = getattr(transformers, described.family.class_name)
    with torch.device(device):
        model = kind._from_config(config, dtype=getattr(torch, described.dtype))
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=False
    )
    model.save_pretrained(folder)
    described.processor.save_pretrained(folder)
    return str(folder)


def counted(work: Run, repeats: int) -> dict[str, Any]:
    """Of one turn of ``work``: seconds, and what it asks of the machine by torch's profiler.

    Kernels, the times that the processor waits for the accelerator, bytes copied by direction,
    operators, and the milliseconds for which the accelerator computes.
    """
    seconds = in_turns({"": work}, repeats)[""]
    with profile(activities=list(torch.profiler.supported_activities())) as traced:
        work()
        now()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        traced.export_chrome_trace(file.name)
        every = json.loads(Path(file.name).read_text())["traceEvents"]
    found = Counter[str]()
    for event in (event for event in every if "cat" in event):
        kind, name = event["cat"], event["name"]
        found["kernels"] += kind == "kernel"
        found["operators"] += kind == "cpu_op"
        found["waits"] += kind == "cuda_runtime" and "Synchronize" in name
        if kind in ("kernel", "gpu_memcpy"):
            found["busy ms"] += event["dur"] / 1000
        if kind == "gpu_memcpy":
            found[f"MB {name.split(' (')[0]}"] += event["args"].get("bytes", 0) / 1e6
    return {"seconds": np.median(seconds), **found}


def batches(loaded: Any, samples: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for part in in_batches(samples, BATCH):
        prompts = [open_prompt(loaded, sample.turns, sample.shows) for sample in part]
        inputs = process(loaded, prompts, [sample.frames() for sample in part])
        yield {**to_model(loaded, inputs), **LEAN}


@torch.inference_mode()
def bare(loaded: Any, samples: Sequence[Any]) -> None:
    """Forwards alone, which read nothing."""
    for inputs in batches(loaded, samples):
        loaded.model(**inputs)


def extraction(args: argparse.Namespace) -> pd.DataFrame:
    """Ways to read the last token's head outputs of the same samples."""
    own = loaded, samples = sa.load_model(args.model), sa.gridtom()[: 4 * args.stories]

    @torch.inference_mode()
    def capture() -> None:
        with Capture(loaded.model) as capture:
            for inputs in batches(*own):
                loaded.model(**inputs)
                capture.take()

    def extract() -> None:
        with tempfile.TemporaryDirectory() as folder:
            sa.extract(loaded, samples, Path(folder) / "activations")

    ways: dict[str, Run] = {"bare forwards": lambda: bare(*own), "capture": capture}
    ways["extract"] = extract
    if find_spec("nnsight"):
        traced = backend("nnsight")
        ways["nnsight"] = lambda: [traced.read(loaded.model, one) for one in batches(*own)]
    return rows("extraction", in_turns(ways, args.repeats))


def fit_by_sklearn(x: np.ndarray, y: np.ndarray) -> None:
    """scikit-learn, head after head, on one thread: more make it slower at this size."""
    with threadpool_limits(1, "blas"):
        for head in range(x.shape[1]):
            model = LogisticRegression(C=DEFAULT_C, max_iter=1000, solver="newton-cholesky")
            model.fit(x[:, head].astype(np.float64), y)


def made_up() -> tuple[sa.Activations, sa.Activations]:
    """Correlated activations of which a third of the heads know the label, four samples a group.

    Those to train on and those held out.
    """
    draw, n = np.random.default_rng(0), SAMPLES + HELD
    y = np.arange(n) % 2 == 1
    spectrum = 1.0 / np.arange(1, WIDTH + 1)
    spectrum *= np.sqrt(WIDTH / np.square(spectrum).sum())
    x = np.empty((n, 1, HEADS, WIDTH), dtype=np.float32)
    for head, scale in enumerate(np.linspace(0.3, 1.5, HEADS)):
        basis = np.linalg.qr(draw.normal(size=(WIDTH, WIDTH)))[0]
        z = (draw.normal(size=(n, WIDTH)) * spectrum) @ basis + draw.normal(size=WIDTH)
        if head % 3 == 0:
            z += (2.0 * y - 1)[:, None] * draw.normal(size=WIDTH) / np.sqrt(WIDTH)
        x[:, 0, head] = scale * z
    split = np.where(np.arange(n) < SAMPLES, "train", "test")
    items = pd.DataFrame({"group": np.arange(n) // 4, "split": split, "y": y})
    whole = sa.Activations(x, items, ("y",))
    return whole.train, whole.test


def probes(args: argparse.Namespace) -> pd.DataFrame:
    """Probes of all heads, and the null of permuted labels: ours against loops of scikit-learn."""
    train, held = made_up()
    ways: dict[str, Run] = {
        "HeadProbes": lambda: sa.HeadProbes().fit(train, label="y"),
        SKLEARN: lambda: fit_by_sklearn(train.x[:, 0], train.values("y")),
    }
    found = rows("probes", in_turns(ways, args.repeats))
    heads, few = 8, 3
    labels = shuffled(train.values("y"), train.items["group"].to_numpy(), few)
    ways = {
        "permutation_test": lambda: permutation_test(train, held, "y", PERMUTATIONS),
        SKLEARN: lambda: [fit_by_sklearn(train.x[:, 0, :heads], permuted) for permuted in labels],
    }
    scale = HEADS / heads * (PERMUTATIONS + 1) / few
    null = rows("permutations", in_turns(ways, args.repeats), {SKLEARN: scale})
    return pd.concat([found, null])


def trace(args: argparse.Namespace) -> pd.DataFrame:
    """The first batch by its size, its frames drawn before, and pairs that are read together."""
    loaded, found = sa.load_model(args.model), []
    samples = sa.gridtom(stories=max(20, args.stories))
    for size in (8, 16, 32, 64):
        chosen = [samples[i] for i in plan_batches(samples, size)[0]]
        batch = prepare(loaded, [(s, open_prompt(loaded, s.turns, s.shows)) for s in chosen])
        work = partial(activations_of, loaded, batch, HEAD_OUT)
        found.append({"contender": f"{len(chosen)} samples"} | counted(work, args.repeats))
    geometry = find_geometry(loaded.skeleton)
    shape = geometry.n_layers, geometry.n_heads
    sets, mean = torch.rand(SETS, *shape) < 0.02, torch.zeros(*shape, geometry.head_dim)
    config = ProbeConfig(model=args.model, stories=max(40, args.stories))
    for kind, every in open_pairs(config, open_task(config)).items():
        pairs = every.choose("test", PAIRS)
        work = partial(effects_of, loaded, pairs, every.reply, sets, mean)
        found.append({"contender": f"{len(pairs)} {kind} pairs"} | counted(work, args.repeats))
    return pd.DataFrame([{"part": "trace", **row} for row in found])


def default_run(args: argparse.Namespace) -> pd.DataFrame:
    """The default command, whole, in a process of its own; what it says is printed."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "sally_anne.probing.run", "--model", args.model, "--out", folder]
        start = now()
        subprocess.run([sys.executable, *words], check=True)
        seconds = now() - start
    return pd.DataFrame([{"part": "default_run", "contender": "probe", "seconds": seconds}])


PARTS = {part.__name__: part for part in (extraction, probes, trace, default_run)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS)[:2])
    parser.add_argument("--model", default="tiny-qwen2-vl")
    parser.add_argument("--random", action="store_true", help="weights of a catalogue model")
    parser.add_argument("--stories", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs") / "speed.json")
    args = parser.parse_args()
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": {name: version(name) for name in ("torch", "transformers", "scikit-learn")},
    }
    if args.random:
        args.model = random_model(args.model)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    results = pd.DataFrame()
    for part in args.only:
        results = pd.concat([results, PARTS[part](args)])
        config = {name: str(value) for name, value in vars(args).items()}
        saved = {"machine": machine, "config": config, "results": results.to_dict("records")}
        args.out.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")
    print(f"{results.to_string(index=False)}\n\n{machine}\n{args.out}")


if __name__ == "__main__":
    main()
