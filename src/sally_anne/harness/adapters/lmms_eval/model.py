"""In lmms-eval: a model of this toolkit, steered or not, and the questions of our tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from lmms_eval.api.instance import Instance
from lmms_eval.api.model import lmms
from lmms_eval.api.task import ConfigurableTask
from tqdm import tqdm

from sally_anne.core.errors import BenchmarkError, HarnessError
from sally_anne.core.media import frames_of
from sally_anne.core.processes import AUTO
from sally_anne.data.items import Media, Sampling
from sally_anne.data.media import read_clip
from sally_anne.harness.adapters import common
from sally_anne.harness.model import Prompt
from sally_anne.models.options import DEFAULT_MODEL

# As the models of lmms-eval have it where a task says nothing.
DEFAULT_LENGTH = 128
# Some tasks mark the place of pictures in their text; here frames come before it.
_PLACES = ("<image>", "<video>")


class SallyAnne(lmms):
    """Qwen2-VL or LLaVA-NeXT-Video with a steering vector, or as it is.

    What a document shows is one clip, see :func:`clip_of`, and comes before the text. The model's
    own chat layout is used, and decoding is greedy, as in ``sally-anne evaluate``.

    Args:
        pretrained: catalogue name, hub id or folder.
        steer, alpha, allow_mismatch, options: as of
            :func:`sally_anne.harness.adapters.common.open_steered`.
        max_frames: so many frames are taken of a video.
        batch_size: prompts that go through the model together; ``auto`` is 1.
        max_batch_size: for models that find out their batch size; of no effect here.
    """

    is_simple = True

    def __init__(
        self,
        pretrained: str = DEFAULT_MODEL,
        steer: str | None = None,
        alpha: float | None = None,
        max_frames: int = 8,
        allow_mismatch: bool = False,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.batch_size = 1 if batch_size == AUTO else common.whole("batch_size", batch_size)
        self.max_frames = common.whole("max_frames", max_frames)
        rank = os.environ.get("LOCAL_RANK")
        if rank and torch.cuda.is_available() and not options.get("device"):
            # Where several processes share the work, each has its own GPU.
            options["device"] = f"cuda:{rank}"
        self.model = common.open_steered(str(pretrained), options, steer, alpha, allow_mismatch)

    @property
    def device(self) -> Any:
        return self.model.loaded.model.device

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Greedy replies; a batch has one shape of clips and one way to answer."""
        found: list[str] = []
        with tqdm(total=len(requests), desc="sally_anne", disable=self.rank != 0) as bar:
            asked = map(self._asked, requests)
            for (_, how), alike in groupby(asked, lambda one: (one[0].shape, one[1])):
                while batch := [prompt for prompt, _ in islice(alike, self.batch_size)]:
                    replies = self.model.replies(batch, how.max_new_tokens, how.until)
                    found += [reply.text for reply in replies]
                    bar.update(len(batch))
        return found

    def loglikelihood(self, requests: list[Instance]) -> NoReturn:
        raise HarnessError("sally_anne writes replies; tasks of log-likelihoods are not offered")

    def generate_until_multi_round(self, requests: list[Instance]) -> NoReturn:
        raise HarnessError("sally_anne answers single questions; tasks in rounds are not offered")

    def _asked(self, request: Instance) -> tuple[Prompt, common.Decoding]:
        context, options, doc_to_visual, doc_id, task, split = request.args
        for place in _PLACES:
            context = context.replace(place, "")
        try:
            clip = clip_of(doc_to_visual(self.task_dict[task][split][doc_id]), self.max_frames)
            return Prompt(context, clip), decoding_of(options)
        except (BenchmarkError, HarnessError) as error:
            raise type(error)(f"{task}, document {doc_id}: {error}") from error


def decoding_of(options: Mapping[str, Any]) -> common.Decoding:
    """A task's ``generation_kwargs``, of which many are meant for one model; replies are greedy."""
    given = {name: value for name, value in options.items() if value is not None}
    temperature, beams = given.get("temperature", 0), given.get("num_beams", 1)
    sampled = given.get("do_sample", False)
    # Many tasks mean greedy replies by temperature 0 alone.
    if (
        str(temperature) not in ("0", "0.0")
        or beams != 1
        or (sampled and "temperature" not in given)
    ):
        raise HarnessError(
            f"decoding is greedy, but temperature is {temperature}, do_sample {sampled} and "
            f"num_beams {beams}; set --gen_kwargs do_sample=False,temperature=0"
        )
    until = given.get("until", [])
    stops = [until] if isinstance(until, str) else list(until)
    if not all(isinstance(stop, str) for stop in stops):
        raise HarnessError(f"until is {until!r}, not strings at which a reply ends")
    length = common.whole("max_new_tokens", given.get("max_new_tokens", DEFAULT_LENGTH))
    return common.Decoding(length, tuple(filter(None, stops)))


def clip_of(visuals: Any, max_frames: int) -> np.ndarray | None:
    """The frames of a document, ``uint8 [F, height, width, 3]``; None if there is nothing to see.

    A task's ``doc_to_visual`` gives a list with the path of one video, of which ``max_frames`` are
    taken, with one list of frames, or with frames, pictures or ``uint8 [height, width, 3]``.
    """
    parts = list(visuals) if isinstance(visuals, (list, tuple, np.ndarray)) else [visuals]
    parts = [one for one in parts if one is not None]
    if len(parts) == 1:
        (one,) = parts
        if isinstance(one, (str, Path)):
            return read_clip(Media(path=Path(one)), "full", Sampling(count=max_frames)).frames
        if isinstance(one, (list, tuple)) or getattr(one, "ndim", 0) == 4:
            parts = list(one)
    return frames_of(parts or None)


class Questions(common.Questions, ConfigurableTask):
    length = "max_new_tokens"
    systems = False
    shows = "doc_to_visual"

    def __init__(self, config: Mapping[str, Any]) -> None:
        # Text alone shows nothing; errors of lmms-eval are clustered by story, as our intervals.
        shown = {"doc_to_visual": common.pictures, "cluster_key": "story"}
        super().__init__(shown | dict(config), common.from_environment())
