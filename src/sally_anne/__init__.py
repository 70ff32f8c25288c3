"""Find the attention heads that keep what others believe, and steer them.

    import sally_anne as sa

Names are imported when they are first used, so that this import takes no torch.
"""

import importlib
from typing import Any

_HOMES = {
    "Activations": "probing.activations",
    "ActivationStore": "core.store",
    "Capture": "hooks.capture",
    "Edit": "hooks.edit",
    "HeadProbes": "probing.probes",
    "LoadedModel": "models.loading",
    "Redirect": "hooks.edit",
    "Run": "api",
    "SallyAnneError": "core.errors",
    "Sample": "data.samples",
    "SteeringVector": "hooks.vector",
    "__version__": "api",
    "audit": "probing.audit",
    "datasets": "api",
    "evaluate": "api",
    "extract": "probing.extraction",
    "gridtom": "api",
    "load_model": "models.loading",
    "localisation": "experiments.localisation.bench",
    "patch": "probing.patching",
    "patching": "probing.patching",
    "plot": "",
    "probe": "api",
    "read_samples": "data.samples",
    "samples": "api",
    "sweep": "api",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sally_anne' has no attribute {name!r}")
    home = importlib.import_module(f"sally_anne.{_HOMES[name] or name}")
    value = globals()[name] = getattr(home, name) if _HOMES[name] else home
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
