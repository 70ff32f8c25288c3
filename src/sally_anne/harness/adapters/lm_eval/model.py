"""In lm-eval: the model ``sally-anne``, steered by a vector or not, and our tasks' questions."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import Collator
from PIL import Image
from tqdm import tqdm

from sally_anne.core.errors import HarnessError
from sally_anne.core.media import frames_of
from sally_anne.core.processes import AUTO
from sally_anne.harness.adapters import common, questions
from sally_anne.harness.adapters.questions import MARK, mean, said_by
from sally_anne.harness.model import complete, continuation_log_probs, token_inputs
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel
from sally_anne.models.options import DEFAULT_MODEL
from sally_anne.models.processor import plain
from sally_anne.models.prompts import encode, reply_prompt
from sally_anne.models.videos import context_of

LOGGER = logging.getLogger(__name__)
BATCH_SIZE = 16
MAX_GEN_TOKS = 256
_CACHE_KEY = "sally-anne"
# lm-eval's names for one thing, in its order of precedence.
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


class _Asked(NamedTuple):
    """A reply that is asked for: its context, and how it is written."""

    request: Instance
    text: str  # as the tokenizer reads it, the mark of a clip in its place
    ids: list[int]  # its tokens; a clip counts as its mark
    pictures: list[Image.Image]  # frames of the clip
    how: common.Decoding

    @property
    def kind(self) -> Any:
        """Replies of one kind, and clips of one shape, make a batch."""
        return self.how, tuple(picture.size for picture in self.pictures)


class SallyAnneLM(HFLM):
    """A steered model for ``lm_eval``: its own ``hf``, whose passes are steered.

    Prompts are taken as lm-eval lays them out: with its ``apply_chat_template`` in the model's
    chat layout, otherwise as bare text. A vector at ``last_prompt`` acts on the last token of a
    context, one at ``generated`` on the tokens of a reply or, where log-likelihoods are asked for,
    of the continuation. In ``loglikelihood_rolling`` the context is the model's first token (or the
    one before a window), so ``generated`` is nearly all of the text. Pictures become the frames of
    one clip, where replies are asked for.

    Args:
        pretrained: catalogue name, hub id or folder; or a model that is loaded already.
        steer, alpha, allow_mismatch, options: as of
            :func:`sally_anne.harness.adapters.common.open_steered`.
        batch_size: contexts that go through the model together; ``auto`` (or ``auto:N``) is 16.
        max_batch_size: the most that ``auto`` may be.
        max_length: tokens of a context and its continuation; the model's own by default. Longer
            contexts are cut on the left, with a warning.
        max_gen_toks: length of a reply where the task does not say.
        device: e.g. ``cuda:1`` or ``cpu``; the first GPU, or the CPU, by default. lm-eval's command
            line gives ``cuda:0`` if nothing is said, so without a GPU that means the CPU.
    """

    MULTIMODAL = True
    max_gen_toks = MAX_GEN_TOKS

    def __init__(
        self,
        pretrained: str | LoadedModel = DEFAULT_MODEL,
        steer: str | Path | SteeringVector | None = None,
        alpha: float | None = None,
        batch_size: int | str = BATCH_SIZE,
        max_batch_size: int | None = None,
        max_length: int | None = None,
        max_gen_toks: int = MAX_GEN_TOKS,
        allow_mismatch: bool = False,
        device: str | None = None,
        **options: Any,
    ) -> None:
        if str(batch_size).partition(":")[0] == AUTO:
            most = common.whole("max_batch_size", max_batch_size or BATCH_SIZE)
            batch_size = min(BATCH_SIZE, most)
        self.max_gen_toks = common.whole("max_gen_toks", max_gen_toks)
        if device and device.startswith("cuda") and not torch.cuda.is_available():
            LOGGER.warning("there is no GPU for device %s; the model goes to the CPU", device)
            device = None
        self.steered = common.open_steered(
            pretrained, options | {"device": device}, steer, alpha, allow_mismatch
        )
        self.loaded = loaded = self.steered.loaded
        tokenizer = loaded.processor.tokenizer
        longest = context_of(loaded) or int(tokenizer.model_max_length)
        super().__init__(
            loaded.model,
            backend="causal",
            tokenizer=tokenizer,
            batch_size=common.whole("batch_size", batch_size),
            max_length=longest if max_length is None else common.whole("max_length", max_length),
        )

    @property
    def tokenizer_name(self) -> str:
        """Names tokenizer and chat template; prompts that lm-eval keeps are kept under it."""
        return f"{Path(self.loaded.source).name}-{self.loaded.processor_hash[:16]}"

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The model's only template; None for none."""
        own = self.loaded.processor.chat_template or self.tokenizer.chat_template
        return str(own) if chat_template and own else None

    def apply_chat_template(
        self, chat_history: list[dict[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        """A conversation in the model's chat layout; ``<image>`` marks stay in its texts."""

        def said(text: str) -> str:
            return MARK.join(plain(self.loaded, part) for part in text.split(MARK))

        # Templates of the hub take lists of parts, not all of them bare texts.
        turns = [
            {**turn, "content": [{"type": "text", "text": said(turn["content"])}]}
            if isinstance(turn["content"], str)
            else turn
            for turn in chat_history
        ]
        return common.laid_out(self.loaded, turns, add_generation_prompt)

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Log-probability of each continuation in nats, and whether it is the greedy one."""
        if any(len(request.args) > 2 for request in requests):
            raise HarnessError("pictures are taken where replies are asked for, not probabilities")
        return super().loglikelihood(requests, disable_tqdm)

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
        """Of requests with a name for lm-eval's cache and the tokens of context and continuation.

        Equal contexts are read once, the longest first.
        """
        members: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for number, (name, context, ending) in enumerate(requests):
            if not ending:
                raise HarnessError(f"the continuation of {name} adds no token to its context")
            members[tuple(self._fitting(context, len(ending) - 1))].append(number)
        contexts, found = sorted(members, key=len, reverse=True), {}
        steps = range(0, len(contexts), self.batch_size)
        for start in tqdm(steps, "Running loglikelihood requests", disable=disable_tqdm):
            batch = contexts[start : start + self.batch_size]
            numbers = [number for ids in batch for number in members[ids]]
            rows = [row for row, ids in enumerate(batch) for _ in members[ids]]
            endings, inputs = [requests[n][2] for n in numbers], token_inputs(self.loaded, batch)
            scores = continuation_log_probs(self.steered, inputs, rows, endings, self.batch_size)
            for number, score in zip(numbers, scores, strict=True):
                found[number] = score
                if (name := requests[number][0]) is not None:
                    self.cache_hook.add_partial("loglikelihood", name, score)
        return [found[number] for number in range(len(requests))]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Greedy replies, cut before the first stop string."""
        order = Collator(
            [self._asked(request) for request in requests],
            lambda one: -len(one.ids),
            lambda one: one.kind,
            group_by="gen_kwargs",
        )
        found: list[str] = []
        with tqdm(
            None, "Running generate_until requests", len(requests), disable=disable_tqdm
        ) as bar:
            for batch in order.get_batched(self.batch_size):
                how = batch[0].how
                clips: list[Any] = [frames_of(one.pictures) for one in batch if one.pictures]
                if clips:
                    inputs = encode(self.loaded, [one.text for one in batch], clips)
                else:
                    inputs = token_inputs(self.loaded, [one.ids for one in batch])
                said = complete(self.steered, inputs, how.max_new_tokens, how.until)
                for one, reply in zip(batch, said, strict=True):
                    self.cache_hook.add_partial("generate_until", one.request.args, reply)
                found += said
                bar.update(len(said))
        return order.get_original(found)

    def _asked(self, request: Instance) -> _Asked:
        text, settings, *_ = request.args
        given = {name for name, value in settings.items() if value is not None}
        if unknown := sorted(given - {"until", *common.SAMPLING, *_LENGTHS}):
            raise HarnessError(f"generation_kwargs: {unknown[0]!r} is not supported")
        how = common.decoding(settings, self.max_gen_toks, _LENGTHS)
        if shown := pictures_of(request):
            text = place_clip(text, clip_mark(self.loaded), len(shown))
        else:
            text = text.replace(MARK, plain(self.loaded, MARK))
        ids = self.tok_encode(text) or [self.prefix_token_id]
        return _Asked(request, text, self._fitting(ids, how.max_new_tokens), shown, how)

    def _fitting(self, ids: list[int], fed: int) -> list[int]:
        """The end of a context that leaves room for ``fed`` tokens; a text with a clip stays."""
        room = self.max_length - fed
        if room <= 0:
            raise HarnessError(f"max_length {self.max_length} leaves no room before {fed} tokens")
        if len(ids) > room:
            cut = "a context of %d tokens is cut to its last %d (max_length %d)"
            LOGGER.warning(cut, len(ids), room, self.max_length)
        return ids[-room:]

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Keep answers in lm-eval's ``use_cache`` file.

        lm-eval knows them by their prompts alone. So that no vector is given the answers of
        another, the file is marked with model, vector and strength.
        """
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
        """What lm-eval writes with its results."""
        own = {"model_sha": self.loaded.revision, "sally_anne": self._identity()}
        return {"model_dtype": self.loaded.dtype, **own}

    def _identity(self) -> dict[str, Any]:
        return self.steered.about | {"max_length": self.max_length}


def clip_mark(loaded: LoadedModel) -> str:
    """What the model's chat template writes for a clip, e.g. ``<video>`` and a line break."""
    probe = "x"
    without, with_clip = (reply_prompt(loaded, probe, video) for video in (False, True))
    before, _, after = without.rpartition(probe)
    if not (with_clip.startswith(before) and with_clip.endswith(probe + after)):
        raise HarnessError(
            f"the chat template of {loaded.name} does not put a clip right before the text, so "
            "pictures have no place in its prompts"
        )
    return with_clip.removeprefix(before).removesuffix(probe + after)


def place_clip(text: str, mark: str, pictures: int) -> str:
    """The text with the clip's own mark in the place of the pictures' marks."""
    if (found := text.count(MARK)) != pictures:
        raise HarnessError(
            f"a prompt needs one {MARK} for each of its pictures: it has {found} for {pictures} "
            f"({text[:60]!r} ...); examples of few-shot prompts cannot have pictures"
        )
    return text.replace(MARK, mark, 1).replace(MARK, "")


def pictures_of(request: Instance) -> list[Image.Image]:
    """The pictures of a request, from what lm-eval sends with its text."""
    extra = request.args[2] if len(request.args) > 2 else {}
    visuals = extra.get("visual") or ()
    found = list(visuals) if isinstance(visuals, list | tuple) else [visuals]
    if "audio" in extra or not all(isinstance(picture, Image.Image) for picture in found):
        raise HarnessError("of what a task shows only PIL pictures can be taken, and no sounds")
    return found


def bare_scores(document: Mapping[str, Any], replies: Sequence[str]) -> dict[str, Any]:
    """Plain numbers where a mean is taken, as lm-eval's takes them."""
    found = questions.results(document, replies)
    return {name: row.get("score", row) for name, row in found.items()}


class Questions(questions.Questions, ConfigurableTask):
    """The questions of ``sally-anne evaluate --task``, asked of lm-eval's models.

    What lm-eval's command line says with ``--metadata`` and ``--model_args`` are options as well;
    ``stories`` are only the first so many.
    """

    length = "max_gen_toks"
    mark = MARK
    shows = "doc_to_image"
    scores = staticmethod(bare_scores)

    def __init__(self, config: Mapping[str, Any]) -> None:
        given = said_by(config.get("metadata") or {})
        super().__init__({"description": "system", **config}, given)

    def aggregation_of(self, metric: str, parser: str, beliefs: bool) -> Any:
        found = super().aggregation_of(metric, parser, beliefs)
        # lm-eval has a standard error for its own mean.
        return "mean" if found is mean else found
