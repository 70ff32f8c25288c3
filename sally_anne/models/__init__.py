"""Names -> weights, processor and chat layout.

Holds: the catalogue of model names, loading, and how prompts and frames become a model's inputs.
Must not know: benchmarks, probes or steering.
"""

from typing import TYPE_CHECKING

from sally_anne.core.lazy import lazy

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel as LoadedModel
    from sally_anne.models.loading import load_model as load_model

__getattr__, __dir__, __all__ = lazy(
    __name__, {"sally_anne.models.loading": ["LoadedModel", "load_model"]}
)
