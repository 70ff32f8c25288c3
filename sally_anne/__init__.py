"""Find the attention heads that keep what others believe, and steer them.

    import sally_anne as sa

Names are imported when they are first used, so that this import takes no torch.
"""

from typing import TYPE_CHECKING

from sally_anne.core import lazy

if TYPE_CHECKING:
    from experiments.localisation.bench import localisation as localisation
    from hooks.capture import Capture as Capture
    from hooks.edit import Edit as Edit
    from hooks.store import ActivationStore as ActivationStore
    from hooks.vector import SteeringVector as SteeringVector
    from probing.activations import Activations as Activations
    from probing.audit import audit as audit
    from probing.causal import causal as causal
    from probing.extraction import extract as extract
    from probing.probes import HeadProbes as HeadProbes
    from sally_anne import plot as plot
    from sally_anne.benchmarks.samples import Sample as Sample
    from sally_anne.benchmarks.samples import read_samples as read_samples
    from sally_anne.core.errors import SallyAnneError as SallyAnneError
    from sally_anne.models.loading import LoadedModel as LoadedModel
    from sally_anne.models.loading import load_model as load_model
    from sally_anne.notebook import Run as Run
    from sally_anne.notebook import __version__ as __version__
    from sally_anne.notebook import gridtom as gridtom
    from sally_anne.notebook import samples as samples

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
