"""What lmms-eval is told of our model by the entry point ``lmms_eval.models``.

Loaded whenever lmms-eval is imported: nothing heavy may stand here.
"""

from __future__ import annotations

from lmms_eval.models.registry_v2 import ModelManifest

NAME = "sally_anne"


def manifest() -> ModelManifest:
    """The model's name and class.

    A model of the kind that lmms-eval calls simple is given text and visuals; the other kind, chat,
    is not asked for log-likelihoods.
    """
    return ModelManifest(
        NAME, simple_class_path="sally_anne.harness.adapters.lmms_eval.model.SallyAnne"
    )
