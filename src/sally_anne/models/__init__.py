"""Names -> weights, processor and chat layout; how prompts and frames become a model's inputs."""

from typing import TYPE_CHECKING

from sally_anne.core import lazy

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel as LoadedModel
    from sally_anne.models.loading import load_model as load_model

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
