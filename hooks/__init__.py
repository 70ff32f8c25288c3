"""The one room that touches a model's inside.

Holds: where the heads are (`geometry`), which tokens count (`positions`), reading activations
(`capture`), changing them (`edit`), the steering vector and its file (`vector`, `vector_file`),
keeping activations on disk (`store`), and other libraries that do the same (`backends`).

Must not know: what an activation is used for. No labels, probes, prompts, benchmarks or scores.
"""

from typing import TYPE_CHECKING

from sally_anne.core.lazy import lazy

if TYPE_CHECKING:
    from hooks.backends import backend as backend
    from hooks.capture import Capture as Capture
    from hooks.edit import Edit as Edit
    from hooks.edit import Gate as Gate
    from hooks.geometry import Geometry as Geometry
    from hooks.geometry import find_geometry as find_geometry
    from hooks.store import ActivationStore as ActivationStore
    from hooks.store import StoreMeta as StoreMeta
    from hooks.vector import SteeringVector as SteeringVector

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "hooks.backends": ["backend"],
        "hooks.capture": ["Capture"],
        "hooks.edit": ["Edit", "Gate"],
        "hooks.geometry": ["Geometry", "find_geometry"],
        "hooks.store": ["ActivationStore", "StoreMeta"],
        "hooks.vector": ["SteeringVector"],
    },
)
