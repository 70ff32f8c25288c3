"""What every measuring process needs; imported once, before the first of them is split off."""

from __future__ import annotations

import sklearn.linear_model  # noqa: F401
import transformers

import bench.contenders  # noqa: F401
import bench.workload  # noqa: F401

# transformers imports a class when it is first named.
CLASSES = (
    transformers.AutoConfig,
    transformers.AutoProcessor,
    transformers.Qwen2VLForConditionalGeneration,
    transformers.Qwen2VLProcessor,
)
