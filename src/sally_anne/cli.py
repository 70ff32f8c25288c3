"""``sally-anne COMMAND ...``: every command in one table; modules are imported when called."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import version
from typing import Any


@dataclass(frozen=True)
class Command:
    """A sub-command.

    Attributes:
        about: what it does, for the list of commands.
        work: ``module:function`` that is called with the options.
        config: ``module:Class``, the dataclass of options, which imports no torch; empty where
            ``work`` reads the words itself.
        resumes: whether the same command continues in ``config.folder`` after it was stopped.
        together: whether several processes of a launcher can share the work.
        libraries: whether it needs torch and transformers, which take seconds to load.
        page: whether ``config.folder`` gets a report, whose path is printed in the end.
    """

    about: str
    work: str
    config: str = ""
    resumes: bool = False
    together: bool = False
    libraries: bool = True
    page: bool = False


COMMANDS: dict[str, Command] = {
    "probe": Command(
        "find the attention heads that tell belief from fact",
        "sally_anne.probing.pipeline:main",
        "sally_anne.probing.config:ProbeConfig",
        resumes=True,
        together=True,
    ),
    "nulls": Command(
        "test a probing run's heads against permuted labels",
        "sally_anne.probing.reporting:nulls",
        "sally_anne.probing.config:NullsConfig",
    ),
    "patch": Command(
        "exchange heads within pairs: which are used",
        "sally_anne.probing.patching:run",
        "sally_anne.probing.config:PatchingConfig",
    ),
    "audit": Command(
        "what else than a belief could explain a run's accuracy",
        "sally_anne.probing.audit:run",
        "sally_anne.probing.config:AuditConfig",
    ),
    "sweep": Command(
        "choose how many heads to steer, and how strongly",
        "sally_anne.steering.sweep:work",
        "sally_anne.steering.config:SweepConfig",
        resumes=True,
        together=True,
    ),
    "steer": Command(
        "make a steering vector from a probing run",
        "sally_anne.steering.fit:run",
        "sally_anne.steering.config:VectorConfig",
    ),
    "evaluate": Command(
        "ask a model, steered or not, a benchmark's questions",
        "sally_anne.harness.evaluate:run",
        "sally_anne.harness.config:EvalConfig",
        resumes=True,
        together=True,
    ),
    "compare": Command(
        "set finished evaluations side by side",
        "sally_anne.harness.compare:run",
        "sally_anne.harness.config:CompareConfig",
        libraries=False,
        page=True,
    ),
    "side-effects": Command(
        "measure what else a steering vector changes",
        "sally_anne.steering.side_effects:run",
        "sally_anne.steering.config:SideEffectsConfig",
        resumes=True,
        page=True,
    ),
    "bake": Command(
        "write a checkpoint with a steering vector in its weights",
        "sally_anne.steering.bake:run",
        "sally_anne.steering.config:BakeConfig",
    ),
    "build": Command(
        "build the GridToM stories and films",
        "sally_anne.data.gridtom.build:run",
        "sally_anne.data.gridtom.build:BuildConfig",
        libraries=False,
    ),
    "limp": Command(
        "answer MuMA-ToM by inverse planning",
        "sally_anne.harness.limp:run",
        "sally_anne.harness.method_config:LimpConfig",
        resumes=True,
        page=True,
    ),
    "bip-alm": Command(
        "answer MMToM-QA by inverse planning",
        "sally_anne.harness.bip_alm:run",
        "sally_anne.harness.method_config:BipAlmConfig",
        resumes=True,
        page=True,
    ),
    "distractors": Command(
        "find questions that options alone answer",
        "sally_anne.harness.distractors:run",
        "sally_anne.harness.method_config:DistractorConfig",
        resumes=True,
        page=True,
    ),
    "copilot": Command(
        "write wrong options that do not give the right one away",
        "sally_anne.harness.copilot:run",
        "sally_anne.harness.method_config:CopilotConfig",
        resumes=True,
    ),
    "films": Command(
        "rank films by how social their synopses are",
        "sally_anne.harness.films:run",
        "sally_anne.harness.method_config:FilmsConfig",
        resumes=True,
    ),
    "transcribe": Command(
        "write the speech of films as subtitles",
        "sally_anne.data.speech:run",
        "sally_anne.data.transcripts:TranscribeConfig",
        resumes=True,
    ),
    "report": Command(
        "write a finished run as one page to look at and share",
        "sally_anne.probing.pipeline:report",
        "sally_anne.figures.config:ReportConfig",
        libraries=False,
    ),
    "figures": Command(
        "draw a finished run: heatmap, densities, clusters, patching, curves",
        "sally_anne.figures.draw:run",
        "sally_anne.figures.config:FiguresConfig",
        libraries=False,
    ),
    "table": Command(
        "print a finished run's table as CSV, LaTeX or Markdown",
        "sally_anne.figures.draw:print_table",
        "sally_anne.figures.config:TableConfig",
        libraries=False,
    ),
    "story": Command(
        "draw a GridToM story: who sees and believes what, frame by frame",
        "sally_anne.figures.story:run",
        "sally_anne.figures.config:StoryConfig",
        libraries=False,
    ),
    "recipe": Command(
        "make a figure or table of the GridToM paper",
        "sally_anne.experiments.recipe:run",
        "sally_anne.experiments.recipe:RecipeConfig",
        resumes=True,
        libraries=False,
    ),
    "table1": Command(
        "measure table 1 of the GridToM paper",
        "sally_anne.experiments.table1:run",
        "sally_anne.experiments.config:Table1Config",
        resumes=True,
    ),
    "transfer": Command(
        "fit on one run, test on another: what carries over",
        "sally_anne.experiments.transfer:run",
        "sally_anne.experiments.config:TransferConfig",
        page=True,
    ),
    "localisation": Command(
        "score localisers on heads that are known",
        "sally_anne.experiments.localisation.bench:run",
        "sally_anne.experiments.config:LocalisationConfig",
        resumes=True,
        page=True,
    ),
    "plant": Command(
        "train a model whose heads are known",
        "sally_anne.experiments.localisation.plant:run",
        "sally_anne.experiments.config:PlantConfig",
        resumes=True,
    ),
    "train-tiny": Command(
        "train a shipped tiny model from scratch",
        "sally_anne.experiments.train_tiny.train:run",
        "sally_anne.experiments.config:TrainConfig",
        resumes=True,
    ),
    "evaluate-tiny": Command(
        "measure what a tiny model can do",
        "sally_anne.experiments.train_tiny.evaluate:run",
        "sally_anne.experiments.config:EvaluateConfig",
    ),
    "export-lm-eval": Command(
        "write a steering vector as lm-eval's own `steered` model reads it",
        "sally_anne.harness.adapters.lm_eval.export:run",
        "sally_anne.harness.adapters.lm_eval.export:ExportConfig",
    ),
    "lm-eval": Command(
        "run lm-eval with steered models and our tasks",
        "sally_anne.harness.adapters.lm_eval:main",
    ),
    "lmms-eval": Command(
        "run lmms-eval with steered models and our tasks",
        "sally_anne.harness.adapters.lmms_eval:main",
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first word names; the words after it are its options.

    Raises:
        SystemExit: 0 for help, 1 with one line for an expected error, 2 for wrong words, 130 if
            the user stopped it.
    """
    name, *words = (sys.argv[1:] if arguments is None else list(arguments)) or ["--help"]
    if name in ("-h", "--help"):
        print("usage: sally-anne COMMAND ...\n")
        for known, command in COMMANDS.items():
            print(f"  {known:16}{command.about}")
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

    return read_options(pkgutil.resolve_name(COMMANDS[name].config), f"sally-anne {name}", words)


def run(name: str, words: Sequence[str] | None = None) -> None:
    """Read a command's options, by default off the command line, and do its work; see `main`."""
    # Imported here, so that the list of commands comes at once.
    from sally_anne.core.console import plain_errors
    from sally_anne.core.errors import ProcessError
    from sally_anne.core.processes import here

    command = COMMANDS[name]
    words = sys.argv[1:] if words is None else words
    if not command.config:
        with plain_errors():
            pkgutil.resolve_name(command.work)(words)
        return
    with plain_errors():
        config = options(name, words)
        if here().count > 1 and not command.together:
            raise ProcessError(f"{name} works in one process; start it without a launcher")
    try:
        if command.libraries:
            _load_libraries()
        with plain_errors():
            pkgutil.resolve_name(command.work)(config)
            if command.page:
                write = pkgutil.resolve_name("sally_anne.figures.report:write_report")
                print(f"report: {write(config.folder)}")
    except KeyboardInterrupt:
        if command.resumes:
            print(f"\nstopped; the same command continues from {config.folder}", file=sys.stderr)
        sys.exit(130)


def _load_libraries() -> None:
    """Load what takes seconds, and say so on a terminal; in a file it would be in the way."""
    from sally_anne.core.console import Console, hide_other_bars, stage
    from sally_anne.core.processes import here

    hide_other_bars()
    visible = here().first and sys.stderr.isatty()
    with stage(Console(stderr=True, quiet=not visible), "loading libraries"):
        importlib.import_module("torch")
        importlib.import_module("transformers")
