"""Plug-in for inspect-ai: the model provider ``sally-anne``, and our tasks.

Those are ``sally_anne/gridtom`` and, for all other benchmarks, ``sally_anne/benchmark``.
"""

from __future__ import annotations

from inspect_ai._util.registry import registry_add, registry_info
from inspect_ai.model import ModelAPI, modelapi

from sally_anne.harness.adapters.inspect_ai.task import (
    belief,
    benchmark,
    gridtom,
    official,
    robust,
    shown,
)


@modelapi(name="sally-anne")
def sally_anne() -> type[ModelAPI]:
    """Models of this project: ``--model sally-anne/tiny-qwen2-vl``."""
    # Torch is imported only when such a model is asked for.
    from sally_anne.harness.adapters.inspect_ai.provider import SallyAnneAPI

    return SallyAnneAPI


# inspect-ai names things after their import package, which users do not write.
for _thing in (gridtom, benchmark, shown, robust, official, belief):
    _info = registry_info(_thing)
    _name = f"sally_anne/{_info.name.rpartition('/')[2]}"
    registry_add(_thing, _info.model_copy(update={"name": _name}))
