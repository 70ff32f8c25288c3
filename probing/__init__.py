"""Which heads tell what an agent believes from what is so.

Holds: extraction of activations, probes for all heads, ranking, the run.
Must not know: steering, answer scoring, what any one benchmark asks.
"""

from typing import TYPE_CHECKING

from sally_anne.core import lazy

if TYPE_CHECKING:
    from sally_anne.probing.config import ProbeConfig as ProbeConfig
    from sally_anne.probing.extraction import extract as extract
    from sally_anne.probing.probes import Activations as Activations
    from sally_anne.probing.probes import HeadProbes as HeadProbes

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
