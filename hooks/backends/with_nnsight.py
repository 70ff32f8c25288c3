"""nnsight as a backend: the same reads and additions, written as traces."""

from __future__ import annotations

from typing import Any

import nnsight
import torch
from torch import Tensor, nn

from sally_anne.core.errors import BackendError
from sally_anne.hooks.backends import SharingBackend
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import HEAD_OUT, site_module

# Runs the whole remote path in this process: the trace is sent to itself.
LOCAL = "local"


class NnsightBackend(SharingBackend):
    """Reads and steers inside nnsight traces; see `Backend`.

    With `remote`, True or the address of a host, the trace runs on NDIF, on the checkpoint that
    `model.config` names; `model` itself may then lie on the meta device. Host and key come from
    nnsight's own configuration. NDIF has to serve that very checkpoint, and nothing here has been
    run against it: only the way there is tested, by nnsight's rehearsal `remote="local"`.
    """

    name = "nnsight"

    def __init__(self, remote: bool | str = False) -> None:
        super().__init__()
        self.remote = remote
        self._how: dict[str, Any] = {"remote": remote} if remote else {}
        self._served: dict[tuple[str, str | None], Any] = {}

    def _build(self, model: nn.Module) -> Any:
        if self.remote != LOCAL:
            return nnsight.NNsight(model)
        return nnsight.TransformersModel(model, **_pipeline(model.config))

    def _read(self, asked: Capture, inputs: dict[str, Any]) -> None:
        traced, modules = self._traced(asked, inputs)
        before, rows, index = asked.site == HEAD_OUT, asked.rows, asked.index
        with torch.no_grad(), traced.trace(**inputs, **self._how):
            pieces = nnsight.save([])
            for module in modules:
                value = module.input if before else module.output
                if isinstance(value, tuple):
                    value = value[0]
                pieces.append(value[rows.to(value.device), index.to(value.device)].detach().cpu())
        for layer, piece in zip(sorted(asked.layers), pieces, strict=True):
            asked.keep(layer, piece)
        asked.after_pass(asked.model, (), None)

    def _add(self, asked: Edit, inputs: dict[str, Any]) -> Tensor:
        traced, modules = self._traced(asked, inputs)
        before, mask = asked.site == HEAD_OUT, asked.mask[..., None]
        vectors = [asked.vectors(layer) for layer in asked.layers]
        with torch.no_grad(), traced.trace(**inputs, **self._how):
            # Plain torch calls alone: a remote host has no module of this project.
            for module, vector in zip(modules, vectors, strict=True):
                value = module.input if before else module.output
                first = value[0] if isinstance(value, tuple) else value
                added = vector.to(first.device, first.dtype)
                where = mask.to(first.device) & added.ne(0)
                first = torch.where(where, first + added, first)
                if before:
                    module.input = first
                else:
                    module.output = (first, *value[1:]) if isinstance(value, tuple) else first
            found = nnsight.save(traced.output.logits)
        return found

    def _traced(self, asked: Capture | Edit, inputs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The model to trace, and its layers' modules in the order in which a trace meets them."""
        asked.before_pass(asked.model, (), inputs)
        traced = self._trace_of(asked.model)
        names = [site_module(asked.geometry, layer, asked.site) for layer in sorted(asked.layers)]
        return traced, [traced.get(name) for name in names]

    def _trace_of(self, model: nn.Module) -> Any:
        if not self.remote or self.remote == LOCAL:
            return self._around(model)
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


def _pipeline(config: Any) -> dict[str, str]:
    """The task, which is part of the name by which NDIF knows a model, and what the task needs.

    nnsight 0.8.1 does not find out by itself what a task of transformers 5.23 needs.
    """
    if hasattr(config, "vision_config"):
        return {"task": "image-text-to-text", "processor": config.name_or_path}
    return {"task": "text-generation", "tokenizer": config.name_or_path}
