"""Other libraries that read activations, on equal forwards: the same batches, the same arguments.

nnsight and TransformerLens run as this project's backends run them. TransformerLens computes
attention step by step, so its forwards are dearer from the start.
"""

from __future__ import annotations

import re
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bench.contenders import LEAN, Contender
from bench.workload import Workload
from sally_anne.hooks.backends import Backend, backend, sharing_weights
from sally_anne.hooks.geometry import HEAD_OUT, find_geometry
from sally_anne.hooks.positions import LAST_PROMPT
from sally_anne.models.prompts import to_model


class _Backed(Contender):
    """A backend of `hooks.backends`."""

    part = True
    backend_name: str

    def __init__(self) -> None:
        self._backend: Backend | None = None

    def forward(self, work: Workload, prepared: Any) -> Tensor | None:
        if self._backend is None:
            self._backend = backend(self.backend_name)
        inputs = to_model(work.loaded, prepared) | LEAN
        return self._backend.read(work.loaded.model, inputs, HEAD_OUT, LAST_PROMPT)[:, 0]


class Nnsight(_Backed):
    """A trace of nnsight that keeps the last position of each layer."""

    name = "nnsight trace"
    backend_name = "nnsight"
    package = "nnsight"
    note = "a trace that saves the last position of every layer"


class TransformerLens(_Backed):
    """Hooks of a TransformerBridge at hook_z."""

    name = "transformer-lens"
    backend_name = "transformer_lens"
    package = "transformer_lens"
    note = "hooks at hook_z of a TransformerBridge, which computes attention step by step"


class Pyvene(Contender):
    """pyvene: a collecting intervention at the input of every layer's W_o."""

    name = "pyvene collect"
    part = True
    package = "pyvene"
    note = "CollectIntervention at the input of every W_o, last position"

    def __init__(self) -> None:
        self._built: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def forward(self, work: Workload, prepared: Any) -> Tensor | None:
        model = work.loaded.model
        geometry = find_geometry(model)
        if model not in self._built:
            self._built[model] = _collecting(model, geometry.o_proj_names)
        inputs = to_model(work.loaded, prepared)
        last = inputs["input_ids"].shape[1] - 1
        with torch.no_grad():
            output = self._built[model](
                base=dict(inputs) | LEAN, unit_locations={"base": last}, return_dict=True
            )
        layers = [each.flatten(1) for each in output.collected_activations]
        return torch.stack(layers, dim=1).unflatten(-1, (geometry.n_heads, -1)).cpu()


def _collecting(model: Any, names: tuple[str, ...] | list[str]) -> Any:
    import pyvene

    places = [
        {
            # layers.0.self_attn becomes layers[0].self_attn, as pyvene writes paths.
            "component": re.sub(r"\.(\d+)\b", r"[\1]", name) + ".input",
            "intervention": pyvene.CollectIntervention(),
        }
        for name in names
    ]
    # The copy shares the weights; what pyvene leaves in modules stays out of the model itself.
    return pyvene.IntervenableModel(places, model=sharing_weights(model))
