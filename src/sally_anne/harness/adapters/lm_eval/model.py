"""In lm-eval: the model ``sally-anne``, steered by a vector or not, and our tasks' questions."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.model import CacheHook
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import Collator
from tqdm import tqdm

from sally_anne.core.errors import HarnessError
from sally_anne.core.processes import AUTO
from sally_anne.harness.adapters import common
from sally_anne.harness.adapters.common import mean, said_by
from sally_anne.hooks.positions import ALL, LAST_PROMPT
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.decoding import gained
from sally_anne.models.loading import LoadedModel
from sally_anne.models.options import DEFAULT_MODEL
from sally_anne.models.prefix import CACHE, prefill, require
from sally_anne.models.processor import padded
from sally_anne.models.prompts import open_prompt, reply_prompt
from sally_anne.models.videos import rotary

BATCH_SIZE = 16
_CACHE_KEY = "sally-anne"


class SallyAnneLM(HFLM):
    """A steered model for ``lm_eval``: its own ``hf``, whose passes are steered; words alone.

    Prompts are taken as lm-eval lays them out: with its ``apply_chat_template`` in the model's
    chat layout, otherwise as bare text. A vector at ``last_prompt`` acts on the last token of a
    context, one at ``generated`` on the tokens of a reply or, where log-likelihoods are asked for,
    of the continuation. In ``loglikelihood_rolling`` the context is the model's first token (or the
    one before a window), so ``generated`` is nearly all of the text.

    Args:
        pretrained: catalogue name, hub id or folder; or a model that is loaded already.
        steer, alpha, allow_mismatch, options: as of
            :func:`sally_anne.harness.adapters.common.open_steered`.
        batch_size: contexts that go through the model together; ``auto`` (or ``auto:N``) is 16.
        max_batch_size: for models that find out their batch size; of no effect here.
        max_length: tokens of a context and its continuation; the model's own by default.
        device: e.g. ``cuda:1`` or ``cpu``. lm-eval's command line gives ``cuda:0`` if nothing is
            said, so without a GPU that means the CPU.
    """

    def __init__(
        self,
        pretrained: str | LoadedModel = DEFAULT_MODEL,
        steer: str | Path | SteeringVector | None = None,
        alpha: float | None = None,
        batch_size: int | str = BATCH_SIZE,
        max_batch_size: int | None = None,
        max_length: int | None = None,
        allow_mismatch: bool = False,
        device: str | None = None,
        **options: Any,
    ) -> None:
        if device and device.startswith("cuda") and not torch.cuda.is_available():
            logging.getLogger(__name__).warning("no GPU for device %s: on the CPU", device)
            device = None
        options["device"] = device
        self.steered = common.open_steered(pretrained, options, steer, alpha, allow_mismatch)
        self.loaded = loaded = self.steered.loaded
        auto = str(batch_size).partition(":")[0] == AUTO
        super().__init__(
            loaded.model,
            backend="causal",
            tokenizer=loaded.processor.tokenizer,
            batch_size=BATCH_SIZE if auto else common.whole("batch_size", batch_size),
            max_length=None if max_length is None else common.whole("max_length", max_length),
        )

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        own = self.loaded.processor.chat_template or self.tokenizer.chat_template
        return str(own) if chat_template and own else None

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        lay_out = reply_prompt if add_generation_prompt else open_prompt
        return lay_out(self.loaded, chat_history, video=False)

    def _model_generate(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Greedy where a task does not say otherwise, whatever the model's folder has."""
        with self.steered.applied():
            return super()._model_generate(*args, **{"repetition_penalty": 1.0, **kwargs})

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Token ids of both; the context ends at its own last token, at which vectors act.

        That is so if it is a token of the whole text as well; otherwise white space at its end
        belongs to the continuation, as in lm-eval, since tokenizers join it to the next word.
        """
        whole, begun = self.tok_encode(context + continuation), self.tok_encode(context)
        if whole[: len(begun)] != begun:
            begun = self.tok_encode(context.rstrip()) or [self.prefix_token_id]
        return begun, whole[len(begun) :]

    def _loglikelihood_tokens(
        self, requests: Sequence[Any], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """Log-probability of each continuation in nats, and whether it is the greedy one."""
        require(self.loaded, "a cache")
        order = Collator(requests, lambda one: -len(one[1]) - len(one[2]))
        found: list[tuple[float, bool]] = []
        with tqdm(
            None, "Running loglikelihood requests", len(requests), disable=disable_tqdm
        ) as bar:
            for batch in order.get_batched(self.batch_size):
                names, contexts, endings = zip(*batch, strict=True)
                scores = self._scores(contexts, endings)
                for name, score in zip(names, scores, strict=True):
                    if name is not None:
                        self.cache_hook.add_partial("loglikelihood", name, score)
                found += scores
                bar.update(len(batch))
        return order.get_original(found)

    @torch.inference_mode()
    def _scores(
        self, contexts: Sequence[list[int]], endings: Sequence[list[int]]
    ) -> list[tuple[float, bool]]:
        """Contexts first, at whose ends vectors act, then continuations in one pass.

        To hooks, several tokens on top of a cache are the rest of a prompt, so that a vector there
        acts on all of them: just what ``generated`` means here.
        """
        model, loaded, vector = self.loaded.model, self.loaded, self.steered.steering
        if not all(0 < len(ending) <= self.max_length for ending in endings):
            raise HarnessError(f"a continuation has no token or more than {self.max_length}")
        kept = [
            c[-(self.max_length + 1 - len(e)) :] for c, e in zip(contexts, endings, strict=True)
        ]
        if short := sum(len(k) < len(c) for k, c in zip(kept, contexts, strict=True)):
            cut = "%d contexts are cut on the left to fit max_length %d"
            logging.getLogger(__name__).warning(cut, short, self.max_length)
        ids, mask = (part.to(model.device) for part in padded(loaded, kept))
        with self.steered.applied():
            state = prefill(loaded, {"input_ids": ids, "attention_mask": mask})
        logits = state.logits[:, None]
        # Padding stands on the right: no real token sees it.
        rest = [ending[:-1] for ending in endings]
        ids, mask = (part.to(model.device) for part in padded(loaded, rest, "right"))
        if ids.shape[1]:
            places = state.following[:, None] + (mask.cumsum(1) - 1).clamp(min=0)
            along: Any = nullcontext()
            if vector is not None and vector.positions != LAST_PROMPT:
                along = replace(vector, positions=ALL).apply(model, self.steered.alpha)
            with along:
                output = model(
                    input_ids=ids,
                    attention_mask=torch.cat([state.mask, mask], dim=1),
                    position_ids=rotary(model, places),
                    **{CACHE: state.cache},
                    use_cache=True,
                )
            logits = torch.cat([logits, output.logits], dim=1)
        sums, agrees = gained(logits, endings, 0)
        return list(zip(sums.tolist(), agrees.tolist(), strict=True))

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Mark lm-eval's ``use_cache`` file, which knows prompts alone, with model and vector."""
        if (kept := cache_hook.dbdict) is not None:
            mine = json.dumps(self._identity(), sort_keys=True, default=str)
            if len(kept) == 0:
                kept[_CACHE_KEY] = mine
            if (there := kept.get(_CACHE_KEY)) != mine:
                raise HarnessError(
                    "the --use_cache file holds answers of another model or vector: "
                    f"{there or 'not of sally-anne'}; this one is {mine}. Choose another file"
                )
        super().set_cache_hook(cache_hook)

    def get_model_info(self) -> dict[str, Any]:
        own = {"model_sha": self.loaded.revision, "sally_anne": self._identity()}
        return {"model_dtype": self.loaded.dtype, **own}

    def _identity(self) -> dict[str, Any]:
        return self.steered.about | {"max_length": self.max_length}


def bare_scores(document: Mapping[str, Any], replies: Sequence[str]) -> dict[str, Any]:
    found = common.results(document, replies)
    return {name: row.get("score", row) for name, row in found.items()}


class Questions(common.Questions, ConfigurableTask):
    length = "max_gen_toks"
    mark = common.MARK
    shows = "doc_to_image"
    scores = staticmethod(bare_scores)

    def __init__(self, config: Mapping[str, Any]) -> None:
        given = said_by(config.get("metadata") or {})
        super().__init__({"description": "system", **config}, given)

    def aggregation_of(self, metric: str, parser: str, beliefs: bool) -> Any:
        found = super().aggregation_of(metric, parser, beliefs)
        # lm-eval has a standard error for its own mean.
        return "mean" if found is mean else found
