"""The extractions of released code, written anew and plainly, with its order of work.

Both run one prompt at a time, let the model give the logits of every position, take all positions
of all layers to the CPU, and then keep the last one. They get this project's prompts and frames,
so that all contenders read the same.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.contenders import Contender
from bench.workload import Workload
from sally_anne.hooks.geometry import HEAD_OUT, RESID, find_geometry
from sally_anne.models.prompts import to_model


class GridToM(Contender):
    """The GridToM release: hidden states of all layers, cut in slices, one file a prompt.

    It reads the residual stream; of the last layer it reads what comes after the last norm.
    """

    name = "released GridToM procedure"
    form = "single"
    site = RESID
    part = True
    writes = "a file a prompt"
    note = "one prompt at a time; hidden states of all layers and positions to the CPU"

    def forward(self, work: Workload, prepared: Any) -> Tensor | None:
        heads = find_geometry(work.loaded.model).n_heads
        kept = []
        for inputs in prepared:
            with torch.no_grad():
                output = work.loaded.model(
                    **to_model(work.loaded, inputs), output_hidden_states=True, return_dict=True
                )
            layers = []
            for hidden in output.hidden_states[1:]:
                states = hidden[0].cpu().to(torch.float32).numpy()
                layers.append(states.reshape(len(states), heads, -1))
            everything = np.array(layers)
            last = everything[:, -1]
            if np.isnan(last).any():
                raise FloatingPointError("a hidden state is not a number")
            kept.append(torch.from_numpy(last.copy()))
        return torch.stack(kept)


class HonestLlama(Contender):
    """The release of inference-time intervention (honest_llama).

    Hidden states, head outputs and outputs of the feed-forward layers of all layers.
    """

    name = "released honest_llama procedure"
    form = "single"
    site = HEAD_OUT
    part = True
    writes = "one file"
    note = (
        "one prompt at a time; hidden states, head outputs and feed-forward outputs of all layers "
        "and positions to the CPU"
    )

    def forward(self, work: Workload, prepared: Any) -> Tensor | None:
        model = work.loaded.model
        geometry = find_geometry(model)
        kept = []
        for inputs in prepared:
            heads: dict[int, Tensor] = {}
            feeds: dict[int, Tensor] = {}
            with ExitStack() as hooks:
                for layer, block in enumerate(geometry.layer_names):
                    o_proj = model.get_submodule(geometry.o_proj_names[layer])
                    hooks.callback(_watch_input(o_proj, heads, layer).remove)
                    feed = model.get_submodule(f"{block}.mlp")
                    hooks.callback(_watch_output(feed, feeds, layer).remove)
                with torch.no_grad():
                    output = model(**to_model(work.loaded, inputs), output_hidden_states=True)
            hidden = _numbers(torch.stack(output.hidden_states).squeeze(1))
            everything = (hidden, _gathered(feeds), _gathered(heads))
            *_, last = (each[:, -1].copy() for each in everything)
            kept.append(torch.from_numpy(last).unflatten(-1, (geometry.n_heads, -1)))
        return torch.stack(kept)


def _watch_input(module: nn.Module, kept: dict[int, Tensor], layer: int) -> Any:
    def hook(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        kept[layer] = arguments[0]

    return module.register_forward_pre_hook(hook)


def _watch_output(module: nn.Module, kept: dict[int, Tensor], layer: int) -> Any:
    def hook(module: nn.Module, arguments: Any, output: Any) -> None:
        kept[layer] = output

    return module.register_forward_hook(hook)


def _gathered(kept: dict[int, Tensor]) -> np.ndarray:
    """``[L, T, W]``."""
    return _numbers(torch.stack([kept[layer].squeeze(0).cpu() for layer in sorted(kept)]))


def _numbers(tensor: Tensor) -> np.ndarray:
    """On the CPU; numpy knows no bfloat16."""
    there = tensor.detach().cpu()
    return (there.float() if there.dtype == torch.bfloat16 else there).numpy()
