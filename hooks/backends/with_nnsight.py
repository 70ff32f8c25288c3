"""nnsight as a backend: the same reads and additions, written as traces."""

from __future__ import annotations

from typing import Any

import nnsight
import torch
from torch import Tensor, nn

from hooks.backends import Backend
from hooks.backends.shared_weights import SharedWeights
from hooks.capture import Capture
from hooks.edit import Edit
from hooks.geometry import HEAD_OUT, site_module
from sally_anne.core.errors import BackendError

# Runs the whole remote path in this process: the trace is sent to itself.
LOCAL = "local"


class NnsightBackend(Backend):
    """Reads and steers inside nnsight traces; see `Backend`.

    nnsight leaves methods of its own in the modules it traces, so it gets a copy that shares
    the model's weights, which is used again until the model changes.

    With `remote` the trace runs on NDIF, on the checkpoint that `model.config` names; `model`
    itself is then only asked for its geometry and may lie on the meta device. Host and key come
    from nnsight's own configuration. NDIF has to serve that very checkpoint, and nothing here has
    been run against it: only the way there is tested, by the rehearsal `remote="local"`.

    Args:
        remote: False for this process; True for NDIF; the address of another host; or "local" for
            nnsight's rehearsal of the remote way.
    """

    name = "nnsight"

    def __init__(self, remote: bool | str = False) -> None:
        self.remote = remote
        self._how: dict[str, Any] = {"remote": remote} if remote else {}
        build = _rehearsed if remote == LOCAL else nnsight.NNsight
        self._traced: SharedWeights[Any] = SharedWeights(self.name, build)
        self._served: dict[tuple[str, str | None], Any] = {}

    def _read(self, asked: Capture, inputs: dict[str, Any]) -> None:
        asked.before_pass(asked.model, (), inputs)
        traced, before = self._trace_of(asked.model), asked.site == HEAD_OUT
        # A trace meets modules in the order in which they run.
        order = sorted(asked.layers)
        modules = [traced.get(site_module(asked.geometry, layer, asked.site)) for layer in order]
        rows, index = asked.rows, asked.index
        with torch.no_grad(), traced.trace(**inputs, **self._how):
            pieces = nnsight.save([])
            for module in modules:
                value = module.input if before else module.output
                if isinstance(value, tuple):
                    value = value[0]
                pieces.append(value[rows.to(value.device), index.to(value.device)].detach().cpu())
        for layer, piece in zip(order, pieces, strict=True):
            asked.keep(layer, piece)
        asked.after_pass(asked.model, (), None)

    def _add(self, asked: Edit, inputs: dict[str, Any]) -> Tensor:
        asked.before_pass(asked.model, (), inputs)
        mask = asked.mask[..., None]
        traced, before = self._trace_of(asked.model), asked.site == HEAD_OUT
        steps = [
            (
                traced.get(site_module(asked.geometry, layer, asked.site)),
                asked.vectors(layer)[:, None],
            )
            for layer in asked.layers
        ]
        with torch.no_grad(), traced.trace(**inputs, **self._how):
            # Plain torch calls alone: a remote host has no module of this project.
            for module, vector in steps:
                value = module.input if before else module.output
                rest = None
                if isinstance(value, tuple):
                    value, rest = value[0], value[1:]
                added = vector.to(value.device, value.dtype)
                where = mask.to(value.device) & added.ne(0)
                value = torch.where(where, value + added, value)
                if before:
                    module.input = value
                elif rest is None:
                    module.output = value
                else:
                    module.output = (value, *rest)
            found = nnsight.save(traced.output.logits)
        return found

    def _trace_of(self, model: nn.Module) -> Any:
        if not self.remote or self.remote == LOCAL:
            return self._traced.of(model)
        config: Any = model.config
        name, commit = config.name_or_path, getattr(config, "_commit_hash", None)
        if name.count("/") != 1 or name[0] in "./~":
            raise BackendError(
                f"remote tracing needs a checkpoint of the hub; this {type(model).__name__} comes "
                f"from {name or 'nowhere'!r}."
            )
        if (name, commit) not in self._served:
            self._served[name, commit] = nnsight.TransformersModel(
                name, revision=commit, **_pipeline(config)
            )
        return self._served[name, commit]


def _rehearsed(model: nn.Module) -> Any:
    config: Any = model.config
    return nnsight.TransformersModel(model, **_pipeline(config))


def _pipeline(config: Any) -> dict[str, str]:
    """The task, which is part of the name by which NDIF knows a model, and what the task needs.

    nnsight 0.8.1 does not find out by itself what a task of transformers 5.23 needs.
    """
    if hasattr(config, "vision_config"):
        return {"task": "image-text-to-text", "processor": config.name_or_path}
    return {"task": "text-generation", "tokenizer": config.name_or_path}
