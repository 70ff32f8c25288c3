"""Find the attention heads that keep what others believe, and steer them.

    import sally_anne as sa

Names are imported when they are first used, so that this import takes no torch.
"""

from typing import TYPE_CHECKING

from sally_anne.core import lazy

if TYPE_CHECKING:
    from sally_anne import plot as plot
    from sally_anne.api import Run as Run
    from sally_anne.api import __version__ as __version__
    from sally_anne.api import gridtom as gridtom
    from sally_anne.api import samples as samples
    from sally_anne.core.errors import SallyAnneError as SallyAnneError
    from sally_anne.core.store import ActivationStore as ActivationStore
    from sally_anne.data.samples import Sample as Sample
    from sally_anne.data.samples import read_samples as read_samples
    from sally_anne.experiments.localisation.bench import localisation as localisation
    from sally_anne.hooks.capture import Capture as Capture
    from sally_anne.hooks.edit import Edit as Edit
    from sally_anne.hooks.vector import SteeringVector as SteeringVector
    from sally_anne.models.loading import LoadedModel as LoadedModel
    from sally_anne.models.loading import load_model as load_model
    from sally_anne.probing.audit import audit as audit
    from sally_anne.probing.extraction import extract as extract
    from sally_anne.probing.patching import patch as patch
    from sally_anne.probing.probes import Activations as Activations
    from sally_anne.probing.probes import HeadProbes as HeadProbes

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
