"""Steered models in EleutherAI's lm-eval (0.4.13), and our tasks.

Importing this package registers the model ``sally-anne``; ``sally-anne lm-eval`` is ``lm_eval``
with it and the tasks of all benchmarks, besides those of the user's own ``--include_path``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from sally_anne.core.console import plain_errors
from sally_anne.harness.adapters import add_tasks, task_files

if find_spec("lm_eval") is not None:
    # lm-eval fills its registry when it is asked for a model and finds it empty, so that ours
    # must not be the first.
    import lm_eval.models  # noqa: F401
    from lm_eval.api.registry import model_registry

    model_registry.register("sally-anne", target=f"{__name__}.model:SallyAnneLM")


def main(arguments: Sequence[str] | None = None) -> None:
    """``sally-anne lm-eval``: lm-eval's own command line, with our model and tasks."""
    if find_spec("lm_eval") is None:
        sys.exit("error: lm-eval is not installed: pip install 'sally-anne[lm-eval]'")
    import lm_eval.tasks
    from lm_eval.__main__ import cli_evaluate

    if arguments is not None:
        sys.argv = ["sally-anne lm-eval", *arguments]
    with plain_errors(), task_files(f"{__package__}.model.Questions") as files:
        add_tasks(lm_eval.tasks, files, first=True)
        cli_evaluate()
