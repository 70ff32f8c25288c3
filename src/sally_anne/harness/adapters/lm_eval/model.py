"""In lm-eval: the model ``sally-anne``, steered by a vector or not, and our tasks' questions."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, CacheHook
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.utils import Collator
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from PIL import Image
from tqdm import tqdm

from sally_anne.core.errors import HarnessError
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


class SallyAnneLM(LM):
    """A steered model for ``lm_eval``.

    Prompts are taken as lm-eval lays them out: with its ``apply_chat_template`` in the model's
    chat layout, otherwise as bare text. A vector at ``last_prompt`` acts on the last token of a
    context, one at ``generated`` on the tokens of a reply or, where log-likelihoods are asked for,
    of the continuation. In ``loglikelihood_rolling`` the context is the model's first token (or the
    one before a window), so ``generated`` is nearly all of the text. Pictures become the frames of
    one clip.

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
        super().__init__()
        if str(batch_size).partition(":")[0] == AUTO:
            batch_size = min(
                BATCH_SIZE, common.whole("max_batch_size", max_batch_size or BATCH_SIZE)
            )
        self.batch_size = common.whole("batch_size", batch_size)
        self.max_gen_toks = common.whole("max_gen_toks", max_gen_toks)
        if device and device.startswith("cuda") and not torch.cuda.is_available():
            LOGGER.warning("there is no GPU for device %s; the model goes to the CPU", device)
            device = None
        self.model = common.open_steered(
            pretrained, options | {"device": device}, steer, alpha, allow_mismatch
        )
        self.loaded = self.model.loaded
        self.tokenizer = self.loaded.processor.tokenizer
        longest = context_of(self.loaded) or int(self.tokenizer.model_max_length)
        self.max_length = longest if max_length is None else common.whole("max_length", max_length)

    @property
    def prefix_token_id(self) -> int:
        """Stands for an empty context."""
        first = self.tokenizer.bos_token_id
        return int(self.tokenizer.eos_token_id if first is None else first)

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

    def tok_encode(self, string: str, add_special_tokens: bool | None = None) -> list[int]:
        """Token ids; the model's first token is put before a text that does not begin with it."""
        if add_special_tokens is None:
            first = self.tokenizer.bos_token
            add_special_tokens = not (first and string.startswith(first))
        return self.tokenizer(string, add_special_tokens=add_special_tokens)["input_ids"]

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Log-probability of each continuation in nats, and whether it is the greedy one."""
        jobs = []
        for request in requests:
            text, found = self._placed(request)
            text, ids, ending = split(self.tok_encode, self.prefix_token_id, text, request.args[1])
            jobs.append((self._fitting(text, ids, found, len(ending) - 1), ending))
        return self._kept("loglikelihood", requests, self._scores(jobs), disable_tqdm)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-probability of whole texts in nats, in windows of ``max_length`` tokens."""
        jobs, owners = [], []
        for number, request in enumerate(requests):
            tokens, first = self.tok_encode(request.args[0]), self.prefix_token_id
            for window in get_rolling_token_windows(tokens, first, self.max_length, 1):
                ids, ending = make_disjoint_window(window)
                jobs.append((Context("", tuple(ids)), ending))
                owners.append(number)
        totals = [0.0] * len(requests)
        scores = tqdm(self._scores(jobs), total=len(jobs), disable=disable_tqdm)
        for number, (log_prob, _) in scores:
            totals[owners[number]] += log_prob
        return self._kept("loglikelihood_rolling", requests, enumerate(totals), disable=True)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Greedy replies, cut before the first stop string."""
        jobs = []
        for request in requests:
            settings = request.args[1]
            given = {name for name, value in settings.items() if value is not None}
            if unknown := sorted(given - {"until", *common.SAMPLING, *_LENGTHS}):
                raise HarnessError(f"generation_kwargs: {unknown[0]!r} is not supported")
            how = common.decoding(settings, self.max_gen_toks, _LENGTHS)
            text, found = self._placed(request)
            ids = self.tok_encode(text) or [self.prefix_token_id]
            jobs.append((self._fitting(text, ids, found, how.max_new_tokens), how))
        return self._kept("generate_until", requests, self._replies(jobs), disable_tqdm)

    def _replies(
        self, jobs: Sequence[tuple[Context, common.Decoding]]
    ) -> Iterator[tuple[int, str]]:
        """Numbers and results of jobs as they are done."""
        for batch in self._batches(jobs):
            how = jobs[batch[0]][1]
            inputs = self._inputs([jobs[i][0] for i in batch])
            said = complete(self.model, inputs, how.max_new_tokens, how.until)
            yield from zip(batch, said, strict=True)

    def _scores(
        self, jobs: Sequence[tuple[Context, list[int]]]
    ) -> Iterator[tuple[int, tuple[float, bool]]]:
        """Numbers and results of jobs as they are done; equal contexts are read once."""
        members: dict[Any, list[int]] = defaultdict(list)
        for number, (context, _) in enumerate(jobs):
            members[context.key].append(number)
        groups = list(members.values())
        contexts = [jobs[group[0]][0] for group in groups]
        for batch in self._batches([(context, None) for context in contexts]):
            numbers = [number for i in batch for number in groups[i]]
            rows = [row for row, i in enumerate(batch) for _ in groups[i]]
            endings = [jobs[number][1] for number in numbers]
            inputs = self._inputs([contexts[i] for i in batch])
            found = continuation_log_probs(self.model, inputs, rows, endings, self.batch_size)
            yield from zip(numbers, found, strict=True)

    def _batches(
        self, jobs: Sequence[tuple[Context, common.Decoding | None]]
    ) -> Iterator[list[int]]:
        """Numbers of jobs that go through the model together, the longest of each kind first."""
        longest, kind = lambda i: -len(jobs[i][0].ids), lambda i: (jobs[i][1], jobs[i][0].shape)
        order = Collator(range(len(jobs)), longest, kind, group_by="gen_kwargs")
        return order.get_batched(self.batch_size)

    def _kept(
        self,
        kind: str,
        requests: Sequence[Instance],
        found: Iterable[tuple[int, Any]],
        disable: bool,
    ) -> list[Any]:
        """Numbered results in the order of their requests; lm-eval's cache has each at once."""
        results = {}
        for number, result in tqdm(
            found, f"Running {kind} requests", len(requests), disable=disable
        ):
            results[number] = result
            self.cache_hook.add_partial(kind, requests[number].args, result)
        return [results[number] for number in range(len(requests))]

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
        return {
            "model_num_parameters": sum(p.numel() for p in self.loaded.skeleton.parameters()),
            "model_dtype": self.loaded.dtype,
            "model_sha": self.loaded.revision,
            "sally_anne": self._identity(),
        }

    def _identity(self) -> dict[str, Any]:
        return self.model.about | {"max_length": self.max_length}

    def _placed(self, request: Instance) -> tuple[str, tuple[Any, ...]]:
        """A request's text, with the mark of a clip where its pictures stand, and these."""
        text, found = request.args[0], pictures_of(request)
        if not found:
            return text.replace(MARK, plain(self.loaded, MARK)), found
        return place_clip(text, clip_mark(self.loaded), len(found)), found

    def _fitting(self, text: str, ids: Sequence[int], pictures: Any, fed: int) -> Context:
        """A context that leaves room for ``fed`` tokens; one with pictures is never cut."""
        room = self.max_length - fed
        if room <= 0:
            raise HarnessError(f"max_length {self.max_length} leaves no room before {fed} tokens")
        if not pictures and len(ids) > room:
            cut = "a context of %d tokens is cut to its last %d (max_length %d)"
            LOGGER.warning(cut, len(ids), room, self.max_length)
            ids = ids[-room:]
        return Context(text, tuple(ids), pictures)

    def _inputs(self, contexts: Sequence[Context]) -> dict[str, Any]:
        if not contexts[0].pictures:
            return token_inputs(self.loaded, [context.ids for context in contexts])
        clips = [context.clip for context in contexts]
        return encode(self.loaded, [context.text for context in contexts], clips)


class Context(NamedTuple):
    text: str  # as the tokenizer reads it, the mark of a clip in its place
    ids: tuple[int, ...]  # its tokens; a clip counts as its mark
    pictures: tuple[Image.Image, ...] = ()  # frames of the clip

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal contexts have equal keys as long as the pictures live."""
        return self.ids, tuple(map(id, self.pictures))

    @property
    def shape(self) -> tuple[int, ...]:
        """Clips of one shape make a batch; empty for text."""
        return (len(self.pictures), *self.pictures[0].size) if self.pictures else ()

    @property
    def clip(self) -> np.ndarray:
        """``uint8 [F, height, width, 3]``; all frames take the size of the first picture."""
        size, bicubic = self.pictures[0].size, Image.Resampling.BICUBIC
        frames = (picture.convert("RGB") for picture in self.pictures)
        scaled = (f if f.size == size else f.resize(size, bicubic) for f in frames)
        return np.stack([*map(np.asarray, scaled)])


def split(
    encode: Callable[..., list[int]], first_token: int, context: str, continuation: str
) -> tuple[str, list[int], list[int]]:
    """The context's text and tokens, and the continuation's tokens.

    The context ends at its own last token if that is a token of the whole text as well. Otherwise
    white space at its end belongs to the continuation, since tokenizers join it to the next word.
    An empty context is the model's first token. (lm-eval's own models move white space in any case;
    here it is the prompt's last token, at which steering vectors act.)
    """
    if not context.strip():
        text, begun = "", [first_token]
        ending = encode(context + continuation, add_special_tokens=False)
        ending = ending[1:] if ending[:1] == begun else ending
    else:
        whole, begun, text = encode(context + continuation), encode(context), context
        if whole[: len(begun)] != begun:
            text = context.rstrip()
            begun = encode(text)
        ending = whole[len(begun) :]
    if not ending:
        raise HarnessError(
            f"the continuation {continuation!r} adds no token to its context "
            f"({context[-60:]!r}), so it has no probability"
        )
    return text, begun, ending


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


def pictures_of(request: Instance) -> tuple[Image.Image, ...]:
    """The pictures of a request, from what lm-eval sends with its text."""
    extra = request.args[2] if len(request.args) > 2 else {}
    visuals = extra.get("visual") or ()
    found = tuple(visuals) if isinstance(visuals, list | tuple) else (visuals,)
    if "audio" in extra or not all(isinstance(picture, Image.Image) for picture in found):
        raise HarnessError("of what a task shows only PIL pictures can be taken, and no sounds")
    return tuple(map(common.checked, found))


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
