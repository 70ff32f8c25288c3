"""Run a catalogue model of full size with random weights: where the time goes, and the default run.

    python tools/full_size.py --model qwen2-vl --device cuda --out runs/full-size

Weights are drawn, so nothing that is measured says anything of beliefs. Each part's result is
written when it is there. `--model tiny-qwen2-vl --stories 8 --device cpu` rehearses it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.profiler import profile

import sally_anne as sa
from sally_anne.hooks.geometry import HEAD_OUT, find_geometry
from sally_anne.models.estimate import open_published
from sally_anne.models.options import CATALOGUE
from sally_anne.models.prompts import open_prompt
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.extraction import activations_of, plan_batches, prepare
from sally_anne.probing.interchange import PAIRS, effects_of
from sally_anne.probing.sources import open_pairs, open_task

# Random heads and best heads of the default patching run, which go through the model as sets.
SETS = 206


def make(name: str, folder: Path, device: str) -> int:
    """Save a model with random weights in the shape of a catalogue model; gives its parameters."""
    described = open_published(name, "bfloat16" if device != "cpu" else "float32")
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
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
    )
    model.save_pretrained(folder)
    described.processor.save_pretrained(folder)
    return sum(weight.numel() for weight in model.parameters())


def counted(work: Callable[[], Any], repeats: int = 3) -> dict[str, Any]:
    """Of one turn of ``work``: milliseconds, and what it asks of the machine by torch's profiler.

    Kernels, the times that the processor waits for the accelerator, bytes copied by direction,
    operators, and the milliseconds for which the accelerator computes.
    """
    for _ in range(2):
        work()
    seconds = []
    for _ in range(repeats):
        start = now()
        work()
        seconds.append(now() - start)
    with profile(activities=list(torch.profiler.supported_activities())) as traced:
        work()
        now()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        traced.export_chrome_trace(file.name)
        every = json.loads(Path(file.name).read_text())["traceEvents"]
    events = [event for event in every if "cat" in event]
    calls, bytes_, busy, slow = Counter[str](), Counter[str](), 0.0, Counter[str]()
    for event in events:
        kind, name = event["cat"], event["name"]
        if kind == "kernel":
            busy += event["dur"] / 1000
            slow[re.sub(r"<.*|\(.*", "", name)[-60:]] += event["dur"] / 1000
        calls["kernels"] += kind == "kernel"
        calls["operators"] += kind == "cpu_op"
        calls["waits"] += kind == "cuda_runtime" and "Synchronize" in name
        if kind == "gpu_memcpy":
            bytes_[name.split(" (")[0]] += event["args"].get("bytes", 0)
            busy += event["dur"] / 1000
    return {
        "ms": round(1000 * sorted(seconds)[repeats // 2], 1),
        "busy ms": round(busy, 1),
        **calls,
        "MB": {name: round(size / 1e6, 1) for name, size in bytes_.items()},
        "most": {name: round(ms, 1) for name, ms in slow.most_common(8)},
    }


def now() -> float:
    """Seconds, once the accelerator has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class Parts:
    """What is measured; each method is a part, and gives what is written of it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        shipped = Path(CATALOGUE[args.model].source).is_dir()
        self.folder = args.model if shipped else args.scratch / "model"
        self.run = args.scratch / "run"
        self.options = {"model": str(self.folder), "stories": args.stories, "device": args.device}

    def model(self) -> dict[str, Any]:
        """Make it, and open it as a run does."""
        start = now()
        made = None
        if self.folder != self.args.model:
            made = make(self.args.model, self.folder, self.args.device)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        saved = now()
        self.loaded = sa.load_model(str(self.folder), device=self.args.device)
        _ = self.loaded.model
        return {"parameters": made, "made s": saved - start, "opened s": now() - saved}

    def batches(self) -> dict[str, Any]:
        """The largest batch of the default samples, by its size, made and then read."""
        found: dict[str, Any] = {}
        samples = sa.gridtom(stories=40, setting="multimodal")
        for size in (8, 16, 32, 64):
            rows = plan_batches(samples, size)[0]
            chosen = [(samples[i], open_prompt(self.loaded, samples[i].turns, True)) for i in rows]
            start = now()
            batch = prepare(self.loaded, chosen)
            made = 1000 * (now() - start)
            read = counted(partial(activations_of, self.loaded, batch, HEAD_OUT))
            shapes = {k: list(v.shape) for k, v in batch.inputs.items()}
            found[str(size)] = {"prepared ms": made, **read, "shapes": shapes}
            found[str(size)]["ms a sample"] = read["ms"] / len(rows)
        return found

    def pairs(self) -> dict[str, Any]:
        """Pairs of each kind, read together: every head exchanged and ablated, and sets."""
        config = ProbeConfig(**{**self.options, "stories": 40})
        geometry = find_geometry(self.loaded.skeleton)
        shape = geometry.n_layers, geometry.n_heads
        sets, mean = torch.rand(SETS, *shape) < 0.02, torch.zeros(*shape, geometry.head_dim)
        found = {}
        for kind, every in open_pairs(config, open_task(config)).items():
            pairs = every.choose("test", PAIRS)
            asked = self.loaded, pairs, every.reply, sets, mean
            found[kind] = counted(partial(effects_of, *asked), 2) | {"pairs": len(pairs)}
        return found

    def default_run(self) -> dict[str, Any]:
        """The default command in a process of its own."""
        words = [
            "-m",
            "sally_anne.probing.run",
            "--model",
            str(self.folder),
            "--out",
            str(self.run),
        ]
        words += ["--device", self.args.device]
        if self.args.stories:
            words += ["--stories", str(self.args.stories)]
        start = now()
        log = self.args.out / "run.log"
        with log.open("w") as file:
            done = subprocess.run([sys.executable, "-u", *words], stdout=file, stderr=file)
        return {"s": now() - start, "status": done.returncode, "said": log.read_text()[-3000:]}


def main() -> None:
    """Measure the parts in their order; a part that fails says why, and the next one goes on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [name for name in vars(Parts) if not name.startswith("_")]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--model", default="qwen2-vl", choices=list(CATALOGUE))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--stories", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs") / "full-size")
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm") / "full-size")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    parts, found, begun = Parts(args), {}, time.time()
    for name in args.only:
        try:
            found[name] = getattr(parts, name)()
        except Exception:
            found[name] = {"error": traceback.format_exc()[-3000:]}
        found["clock"] = time.time() - begun
        (args.out / "full_size.json").write_text(json.dumps(found, indent=1))
        print(name, json.dumps(found[name])[:3000], flush=True)


if __name__ == "__main__":
    main()
