"""Other libraries that read and steer the same activations, behind one small class.

All backends agree on what is read and where; `native` is the one that also follows generation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from sally_anne.core.errors import HookError
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import HEAD_OUT, site_module
from sally_anne.hooks.positions import LAST_PROMPT, LAST_PROMPT_GENERATED

NATIVE = "native"
BACKENDS = (NATIVE, "nnsight", "transformer_lens")
# nnsight's rehearsal of a remote run: the trace is sent to this process.
LOCAL = "local"
# Hooks of these packages belong to the model and are copied with it.
_OWN = ("accelerate.", "transformers.")


class Backend:
    """Reads and steers the heads of a model in one forward pass; `name` is one of BACKENDS.

    `model` is the Hugging Face model and stays as it is; `inputs` are the keyword arguments of its
    forward, on its device, frames included. In a single pass nothing is generated yet:
    `last_prompt+generated` means the last prompt token. With a cache give `position_ids`.
    """

    name: str = NATIVE

    def read(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT,
        layers: Sequence[int] | None = None,
        items: Sequence[str] | None = None,
    ) -> Tensor:
        """The activations `[B, P, L, H, D]`, on the CPU, as `hooks.capture.Capture` takes them.

        Errors are those of `Capture`, or a HookError.
        """
        capture = Capture(model, site, positions, layers)
        self._read(capture, dict(inputs))
        return capture.take(items)

    def logits(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        delta: Tensor,
        site: str = HEAD_OUT,
        positions: str = LAST_PROMPT_GENERATED,
    ) -> Tensor:
        """The logits `[B, T, V]` with `delta`, `[L, H, D]` or `[B, L, H, D]`, added.

        Errors are those of `hooks.edit.Edit`, or a HookError.
        """
        return self._add(Edit(model, delta, site, positions), dict(inputs))

    # By plain forward hooks: the only way for which a capture or edit around it counts, too.

    def _read(self, capture: Capture, inputs: dict[str, Any]) -> None:
        """Run `capture.model(**inputs)`, or what gives the same, and let `capture` keep it."""
        with torch.no_grad(), capture:
            capture.model(**inputs)

    def _add(self, edit: Edit, inputs: dict[str, Any]) -> Tensor:
        """The logits of `edit.model(**inputs)` with what `edit` adds."""
        with torch.no_grad(), edit:
            return edit.model(**inputs).logits


class SharingBackend(Backend):
    """A backend that leaves modules or methods of its own in a model.

    So it gets a copy that shares the model's weights, and uses it again until the model changes.
    """

    def __init__(self) -> None:
        # Only a weak reference: what shares the model's weights must not keep it alive.
        self._model: ref[nn.Module] | None = None
        self._state: tuple[object, ...] = ()
        self._built: Any = None

    def _build(self, model: nn.Module) -> Any:
        """What the library makes of a copy."""
        raise NotImplementedError

    def _around(self, model: nn.Module) -> Any:
        """What is built around the model's weights."""
        for name, module in model.named_modules():
            for hook in chain(module._forward_hooks.values(), module._forward_pre_hooks.values()):
                if not (getattr(hook, "__module__", None) or "").startswith(_OWN):
                    raise HookError(
                        f"{name or type(model).__name__} has a forward hook, which {self.name!r} "
                        f"would not run: close every open Capture and Edit, or use {NATIVE!r}."
                    )
        # All that may be exchanged later; the copy keeps the tensors alive, so that ids stay.
        attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
        state = (model.training, attention, *map(id, _tensors(model)))
        if self._model is None or self._model() is not model or self._state != state:
            self._model = None
            shared = {id(tensor): tensor for tensor in _tensors(model)}
            self._built = self._build(copy.deepcopy(model, shared))
            self._model, self._state = ref(model), state
        return self._built


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    return chain(model.parameters(), model.buffers())


class NnsightBackend(SharingBackend):
    """Reads and steers inside nnsight traces; see `Backend`.

    With `remote`, True or the address of a host, the trace runs on NDIF, on the checkpoint that
    `model.config` names; `model` itself may then lie on the meta device. Only the way there is
    tested, by nnsight's rehearsal `remote="local"`.
    """

    name = "nnsight"

    def __init__(self, remote: bool | str = False) -> None:
        super().__init__()
        self.nnsight = import_module("nnsight")
        self.remote = remote
        self._how: dict[str, Any] = {"remote": remote} if remote else {}
        self._served: dict[tuple[str, str | None], Any] = {}

    def _build(self, model: nn.Module) -> Any:
        if self.remote != LOCAL:
            return self.nnsight.NNsight(model)
        return self.nnsight.TransformersModel(model, **_pipeline(model.config))

    def _read(self, capture: Capture, inputs: dict[str, Any]) -> None:
        nnsight = self.nnsight
        traced, modules = self._traced(capture, inputs)
        before, rows, index = capture.site == HEAD_OUT, capture.rows, capture.index
        with torch.no_grad(), traced.trace(**inputs, **self._how):
            pieces = nnsight.save([])
            for module in modules:
                value = module.input if before else module.output
                if isinstance(value, tuple):
                    value = value[0]
                pieces.append(value[rows.to(value.device), index.to(value.device)].detach().cpu())
        for layer, piece in zip(sorted(capture.layers), pieces, strict=True):
            capture.keep(layer, piece)
        capture.after_pass(capture.model, (), None)

    def _add(self, edit: Edit, inputs: dict[str, Any]) -> Tensor:
        nnsight = self.nnsight
        traced, modules = self._traced(edit, inputs)
        before, mask = edit.site == HEAD_OUT, edit.mask[..., None]
        vectors = [edit.vectors(layer) for layer in edit.layers]
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
            logits = nnsight.save(traced.output.logits)
        return logits

    def _traced(self, hooks: Capture | Edit, inputs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The model to trace, and its layers' modules in the order in which a trace meets them."""
        hooks.before_pass(hooks.model, (), inputs)
        here = not self.remote or self.remote == LOCAL
        traced = self._around(hooks.model) if here else self._on_host(hooks.model)
        names = [site_module(hooks.geometry, layer, hooks.site) for layer in sorted(hooks.layers)]
        return traced, [traced.get(name) for name in names]

    def _on_host(self, model: nn.Module) -> Any:
        config: Any = model.config
        name, commit = config.name_or_path, getattr(config, "_commit_hash", None)
        if name.count("/") != 1 or name[0] in "./~":
            raise HookError(
                f"remote tracing needs a checkpoint of the hub, not {name or 'of none'!r}."
            )
        if (name, commit) not in self._served:
            self._served[name, commit] = self.nnsight.TransformersModel(
                name, revision=commit, **_pipeline(config)
            )
        return self._served[name, commit]


def _pipeline(config: Any) -> dict[str, str]:
    """The task, which is part of the name by which NDIF knows a model, and what it needs."""
    if hasattr(config, "vision_config"):
        return {"task": "image-text-to-text", "processor": config.name_or_path}
    return {"task": "text-generation", "tokenizer": config.name_or_path}


def backend(name: str = NATIVE, **options: Any) -> Backend:
    """The backend of that name, one of BACKENDS; `nnsight` has the option `remote`.

    Raises:
        HookError: an unknown name or option, or a package that is not installed.
    """
    if name not in BACKENDS:
        raise HookError(f"unknown backend {name!r}: choose one of {', '.join(BACKENDS)}.")
    if name != NATIVE and find_spec(name) is None:
        raise HookError(f"backend {name!r} is not installed: pip install {name.replace('_', '-')}.")
    made: Any = Backend if name == NATIVE else NnsightBackend
    if name == "transformer_lens":
        made = import_module("sally_anne.hooks.lens").TransformerLensBackend  # slow to import
    try:
        return made(**options)
    except TypeError as error:
        raise HookError(f"backend {name!r} does not take these options: {error}") from error
