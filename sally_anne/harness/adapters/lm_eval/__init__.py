"""Steered models in EleutherAI's lm-eval (0.4.13), and GridToM as tasks of it.

lm-eval has no entry points for models: it knows those of its own package and those that are
registered in its process. Importing this package registers the name ``sally-anne``:

- In Python, ``import sally_anne.harness.adapters.lm_eval`` before
  ``simple_evaluate(model="sally-anne", model_args="pretrained=...,steer=FOLDER", ...)``,
  or give ``simple_evaluate`` a :class:`sally_anne.harness.adapters.lm_eval.model.SallyAnneLM`.
- On the command line, ``sally-anne lm-eval`` takes the place of ``lm_eval``: the
  same options, with this model and, unless another ``--include_path`` is given, these tasks::

      sally-anne lm-eval --model sally-anne --apply_chat_template \\
          --model_args pretrained=tiny-qwen2-vl,steer=FOLDER --tasks gridtom_text

  The command ``lm_eval`` itself imports nothing of ours before it looks for the model, and knows
  no ``sally-anne``.

``TASKS`` is the folder of tasks for ``--include_path``, see
:mod:`sally_anne.harness.adapters.gridtom`; :mod:`sally_anne.harness.adapters.lm_eval.export` writes
vectors for lm-eval's own ``steered`` model.
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
