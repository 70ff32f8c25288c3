"""Plug-in for lmms-eval: the model ``sally_anne`` and GridToM as tasks.

    pip install "sally-anne[lmms-eval]"
    tasks=$(python -c "from sally_anne.harness.adapters.lmms_eval import TASKS; print(TASKS)")
    python -m lmms_eval --model sally_anne --include_path "$tasks" \\
        --model_args pretrained=tiny-qwen2-vl,steer=my-vector,max_frames=8 \\
        --tasks gridtom_order1_multimodal --batch_size 16 --output_path results --log_samples

The model is found by its entry point. The tasks work with the other models of lmms-eval, too. For
other stories, or questions that ask for JSON, write a task of your own that includes one of ours
and names a file of questions, see :mod:`sally_anne.harness.adapters.gridtom`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

TASKS = Path(__file__).parent / "tasks"
NAME = "sally_anne"


def manifest() -> Any:
    """The model's name and class, for the entry point ``lmms_eval.models``.

    Loaded whenever lmms-eval is imported: nothing heavy may stand in this file. A model of the kind
    that lmms-eval calls simple is given text and visuals; the other kind, chat, is not asked for
    log-likelihoods.
    """
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest(NAME, simple_class_path=f"{__name__}.model.SallyAnne")
