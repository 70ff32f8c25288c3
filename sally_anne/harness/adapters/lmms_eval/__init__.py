"""Plug-in for lmms-eval: the model ``sally_anne`` and GridToM as tasks.

    pip install "sally-anne[lmms-eval]"
    tasks=$(python -c "from sally_anne.harness.adapters.lmms_eval import TASKS; print(TASKS)")
    python -m lmms_eval --model sally_anne --include_path "$tasks" \\
        --model_args pretrained=tiny-qwen2-vl,steer=my-vector,max_frames=8 \\
        --tasks gridtom_order1_multimodal --batch_size 16 --output_path results --log_samples

The model is found by its entry point. The tasks work with the other models of lmms-eval, too. For
other stories, or questions that ask for JSON, write a task of your own that includes one of ours
and names a file of questions, see :mod:`sally_anne.harness.adapters.lmms_eval.gridtom`.
"""

from __future__ import annotations

from pathlib import Path

TASKS = Path(__file__).parent / "tasks"
