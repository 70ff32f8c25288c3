"""``sally-anne NAME ...``: every command under one name; ``sally-anne --help`` lists them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from difflib import get_close_matches

# Name, module with its ``main``, and what it does. A module is imported only when it is called.
COMMANDS = {
    "probe": ("sally_anne.probing.run", "find the attention heads that tell belief from fact"),
    "nulls": ("sally_anne.probing.nulls", "test a probing run's heads against permuted labels"),
    "causal": ("sally_anne.probing.causal", "exchange heads between twins: which are used"),
    "audit": ("sally_anne.probing.audit", "what else than a belief could explain a run's accuracy"),
    "sweep": ("sally_anne.steering.sweep", "choose how many heads to steer, and how strongly"),
    "steer": ("sally_anne.steering.run", "make a steering vector from a probing run"),
    "evaluate": ("sally_anne.harness.run", "ask a model, steered or not, a benchmark's questions"),
    "compare": ("sally_anne.harness.compare.__main__", "set finished evaluations side by side"),
    "side-effects": (
        "sally_anne.steering.side_effects",
        "measure what else a steering vector changes",
    ),
    "bake": (
        "sally_anne.steering.bake",
        "write a checkpoint with a steering vector in its weights",
    ),
    "build": ("sally_anne.data.gridtom.build", "build the GridToM stories and films"),
    "limp": ("sally_anne.harness.limp.command", "answer MuMA-ToM by inverse planning"),
    "bip-alm": ("sally_anne.harness.bip_alm.command", "answer MMToM-QA by inverse planning"),
    "distractors": ("sally_anne.harness.distractors", "find questions that options alone answer"),
    "copilot": ("sally_anne.harness.copilot", "write wrong options that do not tell the right one"),
    "films": ("sally_anne.harness.films", "rank films by how social their synopses are"),
    "transcribe": ("sally_anne.data.transcribe", "write what is said in films as subtitles"),
    "report": (
        "sally_anne.figures.report.__main__",
        "write a finished run as one page to click on and share",
    ),
    "table": ("sally_anne.figures.table", "print a finished run's table as CSV, LaTeX or Markdown"),
    "figures": ("sally_anne.figures.all", "draw all figures of a probing run"),
    "heatmap": ("sally_anne.figures.heatmap", "draw the accuracy of every head"),
    "kde": ("sally_anne.figures.kde", "draw how far a head keeps the classes apart"),
    "clusters": (
        "sally_anne.figures.clusters",
        "draw the samples in a head's plane, with its boundaries",
    ),
    "causal-figure": (
        "sally_anne.figures.causal",
        "draw which heads are used, beside which are readable",
    ),
    "correlations": (
        "sally_anne.figures.correlations",
        "draw how a benchmark's answers go together",
    ),
    "sweep-figure": ("sally_anne.figures.sweep", "draw the curves of a sweep"),
    "recipe": ("sally_anne.experiments.recipe", "make a figure or table of the GridToM paper"),
    "story": (
        "sally_anne.figures.story",
        "draw a GridToM story: who sees and believes what, frame by frame",
    ),
    "table1": ("sally_anne.experiments.table1", "measure table 1 of the GridToM paper"),
    "transfer": (
        "sally_anne.experiments.transfer",
        "fit on one run, test on another: what carries over",
    ),
    "localisation": (
        "sally_anne.experiments.localisation.config",
        "score localisers on heads that are known",
    ),
    "plant": ("sally_anne.experiments.localisation.plant", "train a model whose heads are known"),
    "train-tiny": (
        "sally_anne.experiments.train_tiny.config",
        "train a shipped tiny model from scratch",
    ),
    "evaluate-tiny": (
        "sally_anne.experiments.train_tiny.evaluate",
        "measure what a tiny model can do",
    ),
    "lm-eval": (
        "sally_anne.harness.adapters.lm_eval.__main__",
        "run lm-eval with steered models and our tasks",
    ),
    "lmms-eval": (
        "sally_anne.harness.adapters.lmms_eval.__main__",
        "run lmms-eval with steered models and our tasks",
    ),
    "export-lm-eval": (
        "sally_anne.harness.adapters.lm_eval.export",
        "write a steering vector as lm-eval's own `steered` model reads it",
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first word names; the words after it are its own.

    Raises:
        SystemExit: status 2 if there is no such command, and as the command.
    """
    name, *rest = (sys.argv[1:] if arguments is None else list(arguments)) or ["--help"]
    if name in ("-h", "--help"):
        print("usage: sally-anne COMMAND ...\n")
        for command, (_, does) in COMMANDS.items():
            print(f"  {command:16}{does}")
        print("\n`sally-anne COMMAND --help` shows the options of one.")
        return
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}" if near else "`sally-anne --help` lists them"
        print(f"error: there is no command {name!r}; {hint}", file=sys.stderr)
        sys.exit(2)
    importlib.import_module(COMMANDS[name][0]).main(rest)


if __name__ == "__main__":
    main()
