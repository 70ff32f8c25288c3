"""Plug-in for lmms-eval: the model ``sally_anne``, found by its entry point, and our tasks.

``sally-anne lmms-eval`` is lmms-eval with them; they work with its other models, too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from sally_anne.core.console import plain_errors
from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters import add_tasks, task_files


def manifest() -> Any:
    """The model's name and class, for the entry point ``lmms_eval.models``.

    Loaded whenever lmms-eval is imported: nothing heavy may stand in this file.
    """
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest("sally_anne", simple_class_path=f"{__name__}.model.SallyAnne")


def main(arguments: Sequence[str] | None = None) -> None:
    """``sally-anne lmms-eval``: lmms-eval's own command line, with our tasks and their options.

    ``--metadata name=value ...`` says, as to lm-eval, what the tasks ask; a vector and a model that
    ``--model_args`` name are known to them as well.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    finder = argparse.ArgumentParser(
        prog="sally-anne lmms-eval",
        description="lmms-eval with steered models and our tasks.",
        epilog="All other options are lmms-eval's: python -m lmms_eval --help.",
        allow_abbrev=False,
    )
    finder.add_argument(
        "--metadata", nargs="+", default=[], metavar="NAME=VALUE", help="what our tasks ask"
    )
    found, rest = finder.parse_known_args(words)
    finder.add_argument("--model_args", default="")
    finder.add_argument("--use_cache")
    known, _ = finder.parse_known_args(words)
    if find_spec("lmms_eval") is None:
        sys.exit("error: lmms-eval is not installed: pip install 'sally-anne[lmms-eval]'")
    # Heavy libraries are imported here, so that --help answers at once.
    import lmms_eval.__main__ as theirs
    from lmms_eval.utils import simple_parse_args_string

    from sally_anne.core.folder import fingerprint
    from sally_anne.harness.adapters.common import METADATA
    from sally_anne.hooks.vector import SteeringVector

    with plain_errors(), task_files(f"{__package__}.model.Questions") as files:
        if wrong := [word for word in found.metadata if "=" not in word]:
            raise HarnessError(f"--metadata {wrong[0]}: write name=value")
        options = dict(word.split("=", 1) for word in found.metadata)
        options = simple_parse_args_string(known.model_args) | options
        os.environ[METADATA] = json.dumps(options)
        if known.use_cache:
            # Their cache knows what these are called, not what they hold.
            steer = options.get("steer")
            numbers = steer and SteeringVector.load(steer).describe()
            mark = fingerprint((sorted(options.items()), numbers))
            rest += ["--use_cache", os.path.join(known.use_cache, mark)]
        add_tasks(theirs, files, first=False)
        sys.argv = ["sally-anne lmms-eval", *rest]
        theirs.cli_evaluate()
