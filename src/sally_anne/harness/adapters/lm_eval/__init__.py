"""Steered models in EleutherAI's lm-eval (0.4.13), and our tasks; those of GridToM in ``TASKS``.

Importing this package registers the model ``sally-anne``; ``sally-anne lm-eval`` is ``lm_eval``
with it and the tasks of all benchmarks, beside those of the user's own ``--include_path``.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

NAME = "sally-anne"
TASKS = Path(__file__).parent / "tasks"


def register() -> None:
    """Make ``sally-anne`` known to the lm-eval of this process; importing this package does it."""
    # lm-eval fills its registry when it is asked for a model and finds it empty, so that ours
    # must not be the first.
    import lm_eval.models  # noqa: F401
    from lm_eval.api.registry import model_registry

    if NAME not in model_registry:
        model_registry.register(NAME, target=f"{__name__}.model:SallyAnneLM")


if find_spec("lm_eval") is not None:
    register()
