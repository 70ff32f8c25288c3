"""Steering: vectors on the heads that tell belief from fact, added while a model answers.

Holds how vectors are made from a probing run, baking into weights, side effects, and sweeps over K
and alpha. The vector itself and its file are in `hooks`.
"""

from typing import TYPE_CHECKING

from sally_anne.core.lazy import lazy

if TYPE_CHECKING:
    from hooks.vector import SteeringVector as SteeringVector
    from steering.fit import fit_vector as fit_vector

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {"hooks.vector": ["SteeringVector"], "steering.fit": ["fit_vector"]},
)
