"""``sally-anne COMMAND ...``: every command in one table; modules are imported when called."""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Flag, auto
from importlib.metadata import version
from typing import Any


class How(Flag):
    """How a command works."""

    RESUMES = auto()  # in its folder, by the same command, after it was stopped
    TOGETHER = auto()  # several processes of a launcher can share the work
    QUICK = auto()  # without torch and transformers, which take seconds to load
    PAGE = auto()  # its folder gets a report, whose path is printed in the end


RESUMES, TOGETHER, QUICK, PAGE = How


@dataclass(frozen=True)
class Command:
    """A sub-command: what it does, who does it, and its dataclass of options.

    ``work`` is ``module:function`` below ``sally_anne``, called with the options, or, where
    ``config`` is empty, with the words; ``config`` is ``module:Class`` and imports no torch.
    """

    about: str
    work: str
    config: str = ""
    how: How = How(0)

    @property
    def options(self) -> Any:
        """Its dataclass of options."""
        return _named(self.config)


_ROWS: tuple[tuple[Any, ...], ...] = (
    ("probe", "find the attention heads that tell belief from fact",
     "probing.pipeline:main", "probing.config:ProbeConfig", RESUMES | TOGETHER),
    ("nulls", "test a probing run's heads against permuted labels",
     "probing.reporting:nulls", "probing.config:NullsConfig"),
    ("patch", "exchange heads within pairs: which are used",
     "probing.patching:run", "probing.config:PatchingConfig"),
    ("check", "open a model: what would be captured, where, and what is doubtful",
     "models.check:run", "models.options:ModelOptions"),
    ("models", "list the models that have a name here, and how each was tried",
     "models.options:list_models", "models.options:ListOptions", QUICK),
    ("audit", "what else than a belief could explain a run's accuracy",
     "probing.audit:run", "probing.config:AuditConfig"),
    ("sweep", "choose how many heads to steer, and how strongly",
     "steering.sweep:work", "steering.config:SweepConfig", RESUMES | TOGETHER),
    ("steer", "make a steering vector from a probing run",
     "steering.fit:run", "steering.config:VectorConfig", QUICK),
    ("evaluate", "ask a model, steered or not, a benchmark's questions",
     "harness.evaluate:run", "harness.config:EvalConfig", RESUMES | TOGETHER),
    ("describe", "count what the questions of a benchmark or a file are",
     "harness.questions:describe", "harness.method_config:DescribeConfig", QUICK),
    ("compare", "set finished evaluations side by side",
     "harness.compare:compare_runs", "harness.config:CompareConfig", QUICK | PAGE),
    ("side-effects", "measure what else a steering vector changes",
     "steering.side_effects:run", "steering.config:SideEffectsConfig", RESUMES | PAGE),
    ("bake", "write a checkpoint with a steering vector in its weights",
     "steering.bake:run", "steering.config:BakeConfig"),
    ("build", "build the GridToM stories and films",
     "data.gridtom.build:build", "data.gridtom.build:BuildConfig", QUICK),
    ("limp", "answer MuMA-ToM by inverse planning",
     "harness.limp:run", "harness.method_config:LimpConfig", RESUMES | PAGE),
    ("bip-alm", "answer MMToM-QA by inverse planning",
     "harness.bip_alm:run", "harness.method_config:BipAlmConfig", RESUMES | PAGE),
    ("distractors", "find questions that options alone answer",
     "harness.distractors:run", "harness.method_config:DistractorConfig", RESUMES | PAGE),
    ("copilot", "write wrong options that do not give the right one away",
     "harness.distractors:copilot", "harness.method_config:CopilotConfig", RESUMES),
    ("films", "rank films by how social their synopses are",
     "harness.films:run", "harness.method_config:FilmsConfig", RESUMES),
    ("transcribe", "write the speech of films as subtitles",
     "data.speech:run", "data.transcripts:TranscribeConfig", RESUMES),
    ("report", "write a finished run as one page to look at and share",
     "probing.pipeline:report", "figures.config:ReportConfig", QUICK),
    ("figures", "draw a finished run: heatmap, densities, clusters, patching, curves",
     "figures.draw:run", "figures.config:FiguresConfig", QUICK),
    ("table", "print a finished run's table as CSV, LaTeX or Markdown",
     "figures.draw:print_table", "figures.config:TableConfig", QUICK),
    ("story", "draw a GridToM story: who sees and believes what, frame by frame",
     "figures.story:run", "figures.config:StoryConfig", QUICK),
    ("recipe", "make a figure or table of the GridToM paper",
     "experiments.recipe:run", "experiments.recipe:RecipeConfig", RESUMES | QUICK),
    ("table1", "measure table 1 of the GridToM paper",
     "experiments.table1:run", "experiments.config:Table1Config", RESUMES),
    ("transfer", "fit on one run, test on another: what carries over",
     "experiments.transfer:run", "experiments.config:TransferConfig", PAGE),
    ("looks", "show which frames and sentences heads look at",
     "experiments.looks:run", "experiments.config:LooksConfig"),
    ("localisation", "score localisers on heads that are known",
     "experiments.localisation.bench:run", "experiments.config:LocalisationConfig", RESUMES | PAGE),
    ("plant", "train a model whose heads are known",
     "experiments.localisation.plant:run", "experiments.config:PlantConfig", RESUMES),
    ("train-tiny", "train a shipped tiny model from scratch",
     "experiments.train_tiny.train:run", "experiments.config:TrainConfig", RESUMES),
    ("evaluate-tiny", "measure what a tiny model can do",
     "experiments.train_tiny.evaluate:run", "experiments.config:EvaluateConfig"),
    ("lm-eval", "run lm-eval with steered models and our tasks",
     "harness.adapters.lm_eval:main"),
    ("lmms-eval", "run lmms-eval with steered models and our tasks",
     "harness.adapters.lmms_eval:main"),
)  # fmt: skip
COMMANDS = {name: Command(*row) for name, *row in _ROWS}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first word names; the words after it are its options.

    Exits with 1 and one line for an expected error, 2 for wrong words, 130 if the user stopped it.
    """
    name, *words = (sys.argv[1:] if arguments is None else list(arguments)) or ["--help"]
    if name in ("-h", "--help"):
        lines = (f"  {known:16}{command.about}" for known, command in COMMANDS.items())
        print("usage: sally-anne COMMAND ...\n", *lines, sep="\n")
        print("\n`sally-anne COMMAND --help` shows the options of one.")
    elif name == "--version":
        print(f"sally-anne {version('sally-anne')}")
    elif name in COMMANDS:
        run(name, words)
    else:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}" if near else "`sally-anne --help` lists them"
        print(f"error: there is no command {name!r}; {hint}", file=sys.stderr)
        sys.exit(2)


def options(name: str, words: Sequence[str] | None = None) -> Any:
    """The options of a command, read and checked, as its ``config`` class."""
    from sally_anne.core.options import read_options

    return read_options(COMMANDS[name].options, f"sally-anne {name}", words)


def run(name: str, words: Sequence[str] | None = None) -> None:
    """Read a command's options, by default off the command line, and do its work; see `main`."""
    # Imported here, so that the list of commands comes at once.
    from sally_anne.core.console import plain_errors
    from sally_anne.core.errors import ProcessError
    from sally_anne.core.processes import here

    command = COMMANDS[name]
    words = sys.argv[1:] if words is None else words
    with plain_errors():
        if not command.config:
            _named(command.work)(words)
            return
        config = options(name, words)
        if here().count > 1 and TOGETHER not in command.how:
            raise ProcessError(f"{name} works in one process; start it without a launcher")
    try:
        with plain_errors():
            if QUICK not in command.how:
                _announce(name, config)
            _named(command.work)(config)
            if PAGE in command.how:
                print(f"report: {_named('figures.report:write_report')(config.folder)}")
    except KeyboardInterrupt:
        if RESUMES in command.how:
            print(f"\nstopped; the same command continues from {config.folder}", file=sys.stderr)
        sys.exit(130)


def _named(path: str) -> Any:
    return pkgutil.resolve_name(f"sally_anne.{path}")


def _announce(name: str, config: Any) -> None:
    """Say what begins, where and with what, before the libraries load."""
    from sally_anne.core.console import visible
    from sally_anne.core.processes import here

    # No bars of other libraries; NAME=0 shows them.
    for library in ("HF_HUB", "HF_DATASETS"):
        os.environ.setdefault(f"{library}_DISABLE_PROGRESS_BARS", "1")
    if here().first:
        about = [getattr(config, part, None) for part in ("model", "folder", "run")]
        print(visible(" ".join([name, *(str(part) for part in about if part)])))
        names = ("sally-anne", "torch", "transformers")
        print(", ".join(f"{package} {version(package)}" for package in names), "...", flush=True)
