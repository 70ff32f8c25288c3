"""Plug-in for lmms-eval: the model ``sally_anne``, found by its entry point, and our tasks.

GridToM's are in ``TASKS`` for ``--include_path``; ``sally-anne lmms-eval`` is lmms-eval with these
and all other benchmarks. They work with the other models of lmms-eval, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

TASKS = Path(__file__).parent / "tasks"
NAME = "sally_anne"


def manifest() -> Any:
    """The model's name and class, for the entry point ``lmms_eval.models``.

    Loaded whenever lmms-eval is imported: nothing heavy may stand in this file. It is a simple
    model, since lmms-eval asks chat models for no log-likelihoods.
    """
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest(NAME, simple_class_path=f"{__name__}.model.SallyAnne")
