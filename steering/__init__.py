"""Steering: how vectors are made of a probing run, swept over K and alpha, baked, and measured."""

from typing import TYPE_CHECKING

from sally_anne.core import lazy

if TYPE_CHECKING:
    from sally_anne.hooks.vector import SteeringVector as SteeringVector
    from sally_anne.steering.fit import fit_vector as fit_vector

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
