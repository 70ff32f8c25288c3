"""The one room that touches a model's inside, and reads what was kept of it.

It must not know what an activation is used for: no prompts, benchmarks or scores. Labels and probes
are names and tensors in a run's folder (`saved_run`), no more.
"""

from typing import TYPE_CHECKING

from sally_anne.core import lazy

if TYPE_CHECKING:
    from sally_anne.core.store import ActivationStore as ActivationStore
    from sally_anne.core.store import StoreMeta as StoreMeta
    from sally_anne.hooks.backends import backend as backend
    from sally_anne.hooks.capture import Capture as Capture
    from sally_anne.hooks.edit import Edit as Edit
    from sally_anne.hooks.edit import Gate as Gate
    from sally_anne.hooks.geometry import Geometry as Geometry
    from sally_anne.hooks.geometry import find_geometry as find_geometry
    from sally_anne.hooks.vector import SteeringVector as SteeringVector

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
