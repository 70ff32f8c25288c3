"""Loading a model with its processor, checked before any work is done with it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from sally_anne.core import processes
from sally_anne.core.console import Shown
from sally_anne.core.errors import ModelError, SallyAnneError, first_line
from sally_anne.core.media import frames_of
from sally_anne.core.options import checked
from sally_anne.hooks import identity
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.identity import ModelIdentity, file_hash
from sally_anne.models import checkpoint, options
from sally_anne.models import processor as processing
from sally_anne.models.checkpoint import ADAPTER, located, read_from, unavailable
from sally_anne.models.decoding import decode, greedy
from sally_anne.models.families import FAMILIES, Family, Showing, check_senses, family_of
from sally_anne.models.options import CATALOGUE
from sally_anne.models.prefix import prefill
from sally_anne.models.processor import RAW, layout_of
from sally_anne.models.prompts import NOW, Message, encode, pieces_of, reply_prompt, sound_tokens
from sally_anne.models.videos import check_room, crops, frames_at_once, limited, patches_as_product


@dataclass(repr=False)
class LoadedModel(Shown):
    """A model ready to run; its weights are read when they are first needed.

    Attributes:
        source: hub id, folder, GGUF file, or the catalogue name of a shipped model.
        revision: commit of the hub, or :func:`hooks.identity.folder_hash`.
        processor: pads on the left, so that the last column has each row's last prompt token.
        location: where its files are, a folder, GGUF file or hub id, of ``hub_revision`` there.
        device_map: as in accelerate; None for :func:`first_gpu`, or the CPU.
        adapter: the folder of a LoRA adapter that is merged into the weights, if any.
        prompt: what stands around a text, ``chat`` or ``raw``; ``date`` is today, as a chat
            template may say it.
        changes: options that may change its numbers, by name; part of a run's identity.
        video_sizes: tokens and patches of videos by their shape, once they are known.
        limits: of a type without a family, once it is loaded, how it cannot be read and why.
    """

    name: str
    source: str
    revision: str
    family: Family
    showing: Showing
    dtype: str
    config: Any
    processor: Any
    location: str
    hub_revision: str | None = None
    device_map: str | None = None
    adapter: Path | None = None
    prompt: str = "chat"
    date: datetime.date = field(default_factory=datetime.date.today)
    changes: dict[str, str] = field(default_factory=dict)
    video_sizes: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    _hash: str = field(default="", init=False)

    def _shown(self) -> dict[str, object]:
        facts: dict[str, object] = {"name": self.name, "class": self.family.class_name}
        with suppress(SallyAnneError):  # of a config that makes no model the rest is known
            facts["heads"] = find_geometry(self.skeleton)
        facts |= {"dtype": self.dtype, "device": self.place, "prompt": self.prompt}
        return facts | self.changes

    @cached_property
    def skeleton(self) -> Any:
        """The model's modules without weights, on torch's meta device."""
        try:
            with torch.device("meta"):
                made = getattr(transformers, self.family.class_name)(self.config).eval()
        # Whatever the class does with a number that it did not expect; counts of heads, say.
        except Exception as error:
            why = f"no {self.family.class_name} ({type(error).__name__}: {first_line(error)})"
            raise ModelError(f"model {self.name!r}: its config.json makes {why}") from error
        part = made.get_submodule(self.family.part)
        if any(getattr(one.config, "is_encoder_decoder", False) for one in (made, part)):
            raise ModelError(f"model {self.name!r} reads by an encoder: take a decoder alone")
        return part

    @property
    def attention(self) -> str:
        chosen = self.changes.get("attn_implementation")
        return chosen or str(self.skeleton.config._attn_implementation)

    @cached_property
    @processes.within_memory(
        "load the weights with --dtype bfloat16, or spread them with --device-map auto"
    )
    def model(self) -> Any:
        """The model with its weights, in evaluation mode; ModelError if they cannot be had."""
        _ = self.skeleton  # says what is wrong with a config before the weights are read
        model = checkpoint.read_weights(self)
        if self.adapter is not None:
            model = checkpoint.merged(model, self.name, self.adapter)
            setattr(model, identity.FINGERPRINT, self.identity.fingerprint)
        patches_as_product(model.eval())
        if model.device.type == "cuda":
            frames_at_once(model)
        if self.family not in FAMILIES:
            vars(self)["model"] = model
            checkpoint.limits_of(self)
        return model

    @checked
    def generate(
        self,
        text: str | Sequence[Message],
        images: Sequence[Any] | None = None,
        video: Any = None,
        max_new_tokens: int = 32,
        sound: np.ndarray | None = None,
    ) -> str:
        """The reply to one user's turn, or how a raw text goes on, by the likeliest tokens.

        With a vector: ``with vector.apply(loaded.model): loaded.generate(text)``.

        Args:
            text: what the user says, or the turns of a chat; marks of the chat layout in it are
                plain text.
            images: pictures that the user shows, as the frames of one clip.
            video: a clip in their place; see :func:`sally_anne.core.media.frames_of`.
            sound: for a model that hears: ``float [S]``, 16,000 samples a second, as
                :func:`sally_anne.data.speech.read_sound` reads them.

        A ModelError for what the model does not take; a ContextError where prompt and
        ``max_new_tokens`` are more than it can read.
        """
        clip = frames_of(images, video)
        pieces = [] if sound is None else pieces_of(self, sound)
        prompt = reply_prompt(self, text, clip is not None, len(pieces))
        clips, sounds = None if clip is None else [clip], [pieces] if pieces else None
        shape = None if clip is None else clip.shape[:3]
        heard = 0 if sound is None else sum(n - 1 for n in sound_tokens(self, len(sound)))
        remedy = "give less text, or a smaller max_new_tokens"
        check_room(self, "the prompt", prompt, shape, max_new_tokens, remedy, heard)
        with torch.inference_mode():
            state = prefill(self, encode(self, [prompt], clips, sounds))
            return decode(self, greedy(self, state, max_new_tokens))[0]

    @property
    def identity(self) -> ModelIdentity:
        """What tells it from other models; the weights' hash once their files are here."""
        if not self._hash:
            self._hash = identity.weights_hash(self.location, self.hub_revision)
            if self.adapter is not None:
                added = file_hash(self.adapter / name for name in ADAPTER)
                self._hash = identity.added_hash(self._hash, added)
        return ModelIdentity(
            source=self.source,
            revision=self.revision,
            model_type=str(self.config.model_type),
            dtype=self.dtype,
            quantization=self.changes.get("quantization", ""),
            fingerprint=self._hash,
            prompt=self.prompt,
        )

    @property
    def place(self) -> str:
        """The device that it is on, or how it is spread over several."""
        return self.device_map or processes.first_gpu() or "cpu"

    @property
    def accelerated(self) -> bool:
        """Whether weights are on something else than CPUs."""
        return any(weights.device.type != "cpu" for weights in self.model.parameters())

    @property
    def described(self) -> str:
        """Its name, dtype and place, and what was merged into it, for a run's first line."""
        merged = f", with {self.changes['adapter']}" if self.adapter is not None else ""
        return f"{self.name} ({self.dtype} on {self.place}{merged})"

    @property
    def about(self) -> dict[str, Any]:
        """What answers depend on, for a run's record."""
        known = {"model": self.source, "revision": self.revision, "dtype": self.dtype}
        return known | self.changes

    @cached_property
    def marks(self) -> re.Pattern[str]:
        """Where marks of the model begin, see :mod:`sally_anne.models.processor`."""
        return processing.marks_of(self.processor)

    @cached_property
    def processor_hash(self) -> str:
        """Hash of all that turns a prompt into tensors: tokenizer, image settings, chat layout."""
        return processing.hash_of(self.processor)


@checked
def load_model(
    name: str | Path = options.DEFAULT_MODEL,
    dtype: options.Dtype = "auto",
    device_map: str | None = None,
    revision: str | None = None,
    *,
    device: str | torch.device | None = None,
    adapter: str | Path | None = None,
    processor: str | Path | None = None,
    prompt: options.PromptFrame = "auto",
    date: str | None = None,
    attn_implementation: options.Attention | None = None,
    quantization: options.Quantization = "none",
    max_pixels: int | None = None,
    crop: bool = False,
    videos: bool = False,
    sounds: bool = False,
) -> LoadedModel:
    """Open a model by catalogue name, hub id, local folder or GGUF file.

    The options are those of :class:`sally_anne.models.options.ModelOptions`; ``videos`` and
    ``sounds`` say whether it will be shown and played any. What is wrong with them is said before
    anything is read: an OptionError for a value that there is not, a ModelError for a name of
    nothing, files that cannot be had, and what the model or this machine cannot serve.
    """
    name = str(name)
    adapter, processor = (None if it is None else str(it) for it in (adapter, processor))
    try:
        today = datetime.date.fromisoformat(date) if date else datetime.date.today()
    except ValueError as error:
        raise ModelError(f"--date must be a day such as 2026-01-31, got {date!r}") from error
    device_map = processes.place_of(None if device is None else str(device), device_map)
    processes.check_place(device_map)
    checkpoint.check_installed(attn_implementation, quantization)
    entry = CATALOGUE.get(name)
    if entry and videos and not entry.frames:
        raise ModelError(f"model {name!r} takes no videos: run it with --setting text")
    source = located(name, revision)
    location, adapter_folder = checkpoint.with_adapter(name, source, adapter)
    folder, how = read_from(location)
    is_here = Path(location).exists()
    if "gguf_file" in how and quantization != "none":
        why = f"does not go with {location}: its weights are unpacked"
        raise ModelError(f"--quantization {quantization} {why}")
    if is_here:
        checkpoint.check_files(name, Path(folder))
    # Left open, it may ask on the terminal whether to run code that comes with the model.
    how["trust_remote_code"] = False
    try:
        config = transformers.AutoConfig.from_pretrained(folder, revision=revision, **how)
        if "gguf_file" in how:
            checkpoint.complete(config, location)
        commit = getattr(config, "_commit_hash", None)
        # Of Qwen2.5-Omni the part that reads and writes text.
        config = getattr(config, "thinker_config", config)
        family = family_of(config.model_type, name, config.architectures or ())
        strategy = getattr(config, "vision_feature_select_strategy", None)
        if family.name == "llava-next-video" and strategy not in (None, "default"):
            why = "of which no video is pooled; set vision_feature_select_strategy to default"
            raise ModelError(f"model {name!r}: its config asks for features {strategy!r}, {why}")
        if getattr(config.get_text_config(), "use_bidirectional_attention", False) in (True, "all"):
            raise ModelError(f"model {name!r} sees later words, too (use_bidirectional_attention)")
        # A branch may move before the weights are read.
        place, how["revision"] = folder, commit or revision
        if processor is not None:
            place, own = read_from(located(processor))
            how = {"trust_remote_code": False, **own}
        opened = processing.open_processor(name, family, place, config, how)
        showing = processing.showing_of(family, opened)
        frame = processing.frame_of(name, prompt, layout_of(opened))
        version = identity.folder_hash(Path(location)) if is_here else str(commit)
        checkpoint.check_quantised(name, config, device_map)
        auto = dtype == "auto"
        stored = checkpoint.stored_dtype(config, location, commit) if auto else dtype
    except ModelError:
        raise
    # A damaged file ends in any kind of error: tokenizers have no kind of their own.
    except Exception as error:
        raise unavailable(name, location, error) from error
    asked = {
        "quantization": None if quantization == "none" else quantization,
        "attn_implementation": attn_implementation,
        "max_pixels": max_pixels,
        "crop": crop or None,
        "adapter": adapter_folder and (adapter or source),
        # One that is trained on in its folder is another one.
        "adapter_hash": adapter_folder and file_hash(adapter_folder / file for file in ADAPTER),
        "processor": processor,
        "prompt": RAW if frame == RAW else None,
        "date": today.isoformat() if frame != RAW and NOW in str(layout_of(opened)) else None,
    }
    loaded = LoadedModel(
        name=name,
        source=name if entry and is_here else source,
        revision=version,
        family=family,
        showing=showing,
        dtype=stored,
        config=config,
        processor=opened,
        location=location,
        hub_revision=commit or revision,
        device_map=device_map,
        adapter=adapter_folder,
        prompt=frame,
        date=today,
        changes={option: str(value) for option, value in asked.items() if value is not None},
    )
    check_senses(loaded, videos, sounds)
    check_frame_options(loaded)
    return loaded


def check_frame_options(loaded: LoadedModel) -> None:
    """Refuse options of frames that change nothing: of one size, or of which nothing is cut off."""
    eye, none = processing.eye_of(loaded), f"has no effect on model {loaded.name!r}"
    if "max_pixels" in loaded.changes and limited(eye) is None:
        why = f"({loaded.family.class_name}), whose processor has sizes of its own for frames"
        raise ModelError(f"--max-pixels {none} {why}; show it fewer with --frames")
    if "crop" in loaded.changes and not crops(eye):
        raise ModelError(f"--crop {none}: it sees frames whole; leave it out")
