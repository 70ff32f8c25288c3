"""Loading a model with its processor, checked before any work is done with it."""

from __future__ import annotations

import datetime
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers.quantizers.auto import AutoHfQuantizer

from sally_anne.core import hub
from sally_anne.core.errors import ModelError
from sally_anne.core.files import LFS, POINTER
from sally_anne.core.media import frames_of
from sally_anne.core.options import checked
from sally_anne.core.processes import (
    check_place,
    first_gpu,
    is_out_of_memory,
    place_of,
    within_memory,
)
from sally_anne.hooks.identity import (
    FINGERPRINT,
    ModelIdentity,
    added_hash,
    file_hash,
    folder_hash,
    weight_files,
    weights_hash,
)
from sally_anne.models.adapter import (
    ADAPTER,
    forget_packing,
    gguf_at,
    merged,
    read_from,
    with_adapter,
    without_adapter,
)
from sally_anne.models.decoding import decode, greedy, prefill
from sally_anne.models.families import (
    Family,
    check_senses,
    family_of,
    takes_no_videos,
)
from sally_anne.models.options import (
    CATALOGUE,
    DEFAULT_MODEL,
    Attention,
    Dtype,
    Entry,
    PromptFrame,
    Quantization,
)
from sally_anne.models.processor import RAW, hash_of, layout_of, marks_of, open_processor
from sally_anne.models.prompts import Message, encode, pieces_of, reply_prompt, tells_date

_FLOATS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@dataclass
class LoadedModel:
    """A model ready to run; its weights are read when they are first needed.

    Attributes:
        name: what the user asked for.
        source: hub id, folder, GGUF file, or the catalogue name of a shipped model.
        revision: commit of the hub, or :func:`hooks.identity.folder_hash`.
        processor: pads on the left, so that the last prompt token of every row is the last column;
            a :class:`sally_anne.models.processor.TextProcessor` where the model only reads.
        location: where its files are, a folder, GGUF file or hub id.
        hub_revision: commit, branch or tag of its files there.
        device_map: as in accelerate; None for :func:`first_gpu`, or the CPU.
        adapter: the folder of a LoRA adapter that is merged into the weights, if any.
        prompt: what stands around a text, ``chat`` or ``raw``.
        date: today, as its chat template may say it.
        changes: options that may change its numbers: ``attn_implementation``, ``quantization``,
            ``max_pixels``, ``adapter`` and the hash of its files, ``processor``, each only if it
            was given, ``prompt`` if it is raw, and ``date`` if its chat template tells it; part of
            a run's identity.
        video_sizes: tokens and patches of videos by their shape, once they are known.
    """

    name: str
    source: str
    revision: str
    family: Family
    dtype: str
    config: Any = field(repr=False)
    processor: Any = field(repr=False)
    location: str = field(repr=False)
    hub_revision: str | None = field(repr=False, default=None)
    device_map: str | None = field(repr=False, default=None)
    adapter: Path | None = field(repr=False, default=None)
    prompt: str = field(repr=False, default="chat")
    date: datetime.date = field(repr=False, default_factory=datetime.date.today)
    changes: dict[str, str] = field(default_factory=dict)
    video_sizes: dict[tuple[int, ...], tuple[int, int]] = field(repr=False, default_factory=dict)
    _hash: str = field(repr=False, default="", init=False)

    @cached_property
    def skeleton(self) -> Any:
        """The model's modules without weights, on torch's meta device."""
        try:
            with torch.device("meta"):
                return getattr(transformers, self.family.class_name)(self.config).eval()
        # Whatever the class does with a number that it did not expect; counts of heads, say.
        except Exception as error:
            raise ModelError(
                f"model {self.name!r}: its config.json makes no {self.family.class_name} "
                f"({type(error).__name__}: {_first_line(error)})"
            ) from error

    @property
    def attention(self) -> str:
        """How attention is computed, also if nobody asked for it."""
        chosen = self.changes.get("attn_implementation")
        return chosen or str(self.skeleton.config._attn_implementation)

    @cached_property
    @within_memory("load the weights with --dtype bfloat16, or spread them with --device-map auto")
    def model(self) -> Any:
        """The model with its weights, in evaluation mode; ModelError if they cannot be had."""
        _ = self.skeleton  # says what is wrong with a config before the weights are read
        dtype = getattr(torch, self.dtype)
        more: dict[str, Any] = {
            name: value for name, value in self.changes.items() if name == "attn_implementation"
        }
        if bits := self.changes.get("quantization"):
            more["quantization_config"] = transformers.BitsAndBytesConfig(
                **{f"load_in_{bits}": True},
                bnb_4bit_quant_type="nf4",
                bnb_4bit_compute_dtype=dtype,
            )
        folder, gguf = read_from(self.location)
        if gguf:
            more |= {"config": self.config, **gguf}
            # Newer versions can leave weights as they are packed, of which heads cannot be read.
            if (packing := getattr(transformers, "GgufConfig", None)) is not None:
                more["quantization_config"] = packing(dequantize=True)
        try:
            with without_adapter(folder) as place:
                model, report = getattr(transformers, self.family.class_name).from_pretrained(
                    place,
                    revision=self.hub_revision,
                    dtype=dtype,
                    device_map=self.device_map or first_gpu(),
                    # The other format is a pickle, which runs code when it is opened.
                    use_safetensors=True,
                    output_loading_info=True,
                    # Reported below, with the model's name.
                    ignore_mismatched_sizes=True,
                    local_files_only=not (Path(place).is_dir() or hub.answers()),
                    **more,
                )
        except ImportError as error:
            raise ModelError(
                f"model {self.name!r} needs a library that is missing here: {_first_line(error)}"
            ) from error
        # The last three: JSON of another shape than transformers expects.
        except (OSError, ValueError, SafetensorError, TypeError, LookupError, AttributeError) as e:
            raise _unavailable(self.name, self.location, e) from e
        except RuntimeError as error:  # of a method of quantisation that wants a GPU, say
            if is_out_of_memory(error):
                raise
            raise _unavailable(self.name, self.location, error) from error
        _check_filled(self.name, self.location, report)
        model.config._name_or_path = self.location
        if gguf:
            forget_packing(model)
        if self.adapter is not None:
            model = merged(model, self.name, self.adapter)
            setattr(model, FINGERPRINT, self.identity.fingerprint)
        return model.eval()

    @checked
    def generate(
        self,
        text: str | Sequence[Message],
        images: Sequence[Any] | None = None,
        video: Any = None,
        max_new_tokens: int = 32,
        sound: np.ndarray | None = None,
    ) -> str:
        """The reply to one user's turn, without special tokens; always the likeliest token.

        Where the prompt is raw it is how the text goes on.

        With a vector: ``with vector.apply(loaded.model): loaded.generate(text)``.

        Args:
            text: what the user says, or the turns of a chat; marks of the chat layout in it are
                plain text.
            images: pictures that the user shows, as the frames of one clip.
            video: a clip in their place; see :func:`sally_anne.core.media.frames_of`.
            sound: for a model that hears: ``float [S]``, 16,000 samples a second, as
                :func:`sally_anne.data.speech.read_sound` reads them.

        Raises:
            OptionError: an argument that there is not, or of another kind.
            ModelError: the model takes no videos or sounds, or a raw prompt comes with one.
            ContextError, MediaError: the prompt is too long, or what is shown is no clip.
        """
        clip = frames_of(images, video)
        pieces = [] if sound is None else pieces_of(self, sound)
        prompt = reply_prompt(self, text, clip is not None, len(pieces))
        clips, sounds = None if clip is None else [clip], [pieces] if pieces else None
        with torch.inference_mode():
            state = prefill(self, encode(self, [prompt], clips, sounds))
            return decode(self, greedy(self, state, max_new_tokens))[0]

    @property
    def identity(self) -> ModelIdentity:
        """What tells it from other models; the weights' hash once their files are here."""
        if not self._hash:
            self._hash = weights_hash(self.location, self.hub_revision)
            if self.adapter is not None:
                added = file_hash(self.adapter / name for name in ADAPTER)
                self._hash = added_hash(self._hash, added)
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
    def described(self) -> str:
        """Its name, dtype and place, and what was merged into it, for a run's first line."""
        place = self.device_map or first_gpu() or "cpu"
        merged = f", with {self.changes['adapter']}" if self.adapter is not None else ""
        return f"{self.name} ({self.dtype} on {place}{merged})"

    @property
    def about(self) -> dict[str, Any]:
        """What answers depend on, for a run's record."""
        known = {"model": self.source, "revision": self.revision, "dtype": self.dtype}
        return known | self.changes

    @cached_property
    def marks(self) -> re.Pattern[str]:
        """Where marks of the model begin, see :mod:`sally_anne.models.processor`."""
        return marks_of(self.processor)

    @cached_property
    def processor_hash(self) -> str:
        """Hash of all that turns a prompt into tensors: tokenizer, image settings, chat layout."""
        return hash_of(self.processor)


@checked
def load_model(
    name: str | Path = DEFAULT_MODEL,
    dtype: Dtype = "auto",
    device_map: str | None = None,
    revision: str | None = None,
    *,
    device: str | torch.device | None = None,
    adapter: str | Path | None = None,
    processor: str | Path | None = None,
    prompt: PromptFrame = "auto",
    date: str | None = None,
    attn_implementation: Attention | None = None,
    quantization: Quantization = "none",
    max_pixels: int | None = None,
    videos: bool = False,
    sounds: bool = False,
) -> LoadedModel:
    """Open a model by catalogue name, hub id, local folder or GGUF file.

    The options are those of :class:`sally_anne.models.options.ModelOptions`, and what is wrong with
    them is said before anything is read; ``videos`` and ``sounds`` say whether it will be shown
    and played any.

    Raises:
        OptionError: an option with a value that there is not.
        ModelError: nothing of that name, or its files cannot be had from here; another class of
            model; an option that the model or this machine cannot serve; a processor without its
            parts.
    """
    name = str(name)
    adapter, processor = (None if it is None else str(it) for it in (adapter, processor))
    try:
        today = datetime.date.fromisoformat(date) if date else datetime.date.today()
    except ValueError as error:
        raise ModelError(f"--date must be a day such as 2026-01-31, got {date!r}") from error
    device_map = place_of(None if device is None else str(device), device_map)
    check_place(device_map)
    _check_installed(attn_implementation, quantization)
    entry = CATALOGUE.get(name)
    if videos and entry and not entry.videos:
        raise takes_no_videos(name)
    source = location = _located(name, entry, revision)
    location, adapter_folder = with_adapter(name, location, adapter)
    folder, gguf = read_from(location)
    is_here = Path(location).exists()
    if gguf and quantization != "none":
        raise ModelError(
            f"--quantization {quantization} does not go with {location}: its weights are unpacked"
        )
    if is_here:
        _check_files(name, Path(folder))
    # Left open, it may ask on the terminal whether to run code that comes with the model.
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
    options["local_files_only"] = not (is_here or hub.answers())
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **options, **gguf)
        commit = getattr(config, "_commit_hash", None)
        # Of Qwen2.5-Omni the part that reads and writes text.
        config = getattr(config, "thinker_config", config)
        family = family_of(config.model_type, name)
        check_senses(family, name, videos, sounds)
        if max_pixels is not None:
            check_pixels(family, name, max_pixels)
        strategy = getattr(config, "vision_feature_select_strategy", None)
        if family.name == "llava-next-video" and strategy not in (None, "default"):
            raise ModelError(
                f"model {name!r}: its config.json asks for vision features {strategy!r}, of which "
                "transformers cannot pool a video; set vision_feature_select_strategy to default"
            )
        # A branch may move before the weights are read.
        options["revision"] = commit or revision
        if getattr(config.get_text_config(), "use_bidirectional_attention", False):
            raise ModelError(
                f"model {name!r} attends to later words as well (use_bidirectional_attention); "
                "only decoders that look back are supported"
            )
        place, how = folder, options | gguf
        if processor is not None:
            place, own = read_from(_located(processor, CATALOGUE.get(processor), None))
            there = Path(place).is_dir() or hub.answers()
            how = options | {"revision": None, "local_files_only": not there} | own
        opened = open_processor(name, family, place, config, how)
        frame = frame_of(name, prompt, layout_of(opened), videos or sounds)
        version = folder_hash(Path(location)) if is_here else str(commit)
        _check_quantised(name, config, device_map)
    except ModelError:
        raise
    # A damaged file ends in any kind of error: tokenizers have no kind of their own.
    except Exception as error:
        raise _unavailable(name, location, error) from error
    asked = {
        "quantization": None if quantization == "none" else quantization,
        "attn_implementation": attn_implementation,
        "max_pixels": max_pixels,
        "adapter": adapter or (source if adapter_folder else None),
        # One that is trained on in its folder is another one.
        "adapter_hash": adapter_folder and file_hash(adapter_folder / file for file in ADAPTER),
        "processor": processor,
        "prompt": RAW if frame == RAW else None,
        "date": today.isoformat() if frame != RAW and tells_date(opened) else None,
    }
    return LoadedModel(
        name=name,
        source=name if entry and is_here else source,
        revision=version,
        family=family,
        dtype=_stored_dtype(config, location, commit) if dtype == "auto" else dtype,
        config=config,
        processor=opened,
        location=location,
        hub_revision=options["revision"],
        device_map=device_map,
        adapter=adapter_folder,
        prompt=frame,
        date=today,
        changes={option: str(value) for option, value in asked.items() if value is not None},
    )


def _located(name: str, entry: Entry | None, revision: str | None) -> str:
    location = entry.source if entry else name
    folder = Path(location).expanduser()
    if (file := gguf_at(folder)) is not None:
        if revision is not None:
            raise ModelError(f"revision {revision!r} is for models of the hub, not for {file}")
        return str(file)
    if folder.is_dir():
        if not any((folder / file).exists() for file in ("config.json", ADAPTER[0])):
            raise ModelError(
                f"folder {folder} has no config.json, so it holds no model; give a folder written "
                "by save_pretrained, or a GGUF file"
            )
        if revision is not None:
            raise ModelError(f"revision {revision!r} is for models of the hub, not for {folder}")
        return str(folder)
    if entry is None and (location.count("/") != 1 or location[0] in "./~"):
        known = "\n".join(
            f"  {name:22} {entry.note}{'' if entry.videos else ', text alone'}"
            for name, entry in CATALOGUE.items()
        )
        raise ModelError(
            f"unknown model {name!r}. Give a folder, a GGUF file, a hub id (owner/name) or one of:"
            f"\n{known}"
        )
    if folder.is_absolute():
        raise ModelError(
            f"model {name!r} is shipped with this package, but {folder} is not there: "
            "install the package again"
        )
    return location


def frame_of(name: str, asked: str, layout: Any, shows: bool) -> str:
    """What stands around a text, ``chat`` or ``raw``; a ModelError if that cannot be."""
    if asked == "chat" and not layout:
        raise ModelError(
            f"model {name!r} has no chat template: leave --prompt chat out, and texts are read as "
            "they are; or take a model that was tuned on conversations (often named -Instruct)"
        )
    if asked == "chat" or (layout and asked != RAW):
        return "chat"
    if shows:
        raise ModelError(
            f"model {name!r}: what is shown and played has no place in a raw prompt; run it with "
            "--setting text" + (", or leave --prompt raw out" if layout else "")
        )
    return RAW


def _check_files(name: str, folder: Path) -> None:
    """Refuse pointers of Git LFS in the place of weights, or of a tokenizer."""
    for path in sorted(filter(Path.is_file, folder.iterdir())):
        with path.open("rb") as file:
            if file.read(len(LFS)) == LFS:
                raise ModelError(f"model {name!r}: {path} {POINTER}")


def _stored_dtype(config: Any, location: str, commit: str | None) -> str:
    """The dtype of the config, of its text part, or of the weights; float32 of unpacked ones."""
    for part in (config, config.get_text_config()):
        if part.dtype is not None:
            return str(part.dtype).removeprefix("torch.")
    for path in weight_files(location, commit) if not Path(location).is_file() else ():
        with safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118
                if (stored := _FLOATS.get(file.get_slice(key).get_dtype())) is not None:
                    return stored
    return "float32"


def check_pixels(family: Family, name: str, max_pixels: int) -> None:
    """Refuse a limit for a model to which the size of frames is nothing."""
    if family.frame_limit is None:
        raise ModelError(
            f"--max-pixels has no effect on model {name!r} ({family.class_name}), which takes as "
            "many tokens for a small frame as for a large one; show it fewer with --frames"
        )


def _check_installed(attn_implementation: str | None, quantization: str) -> None:
    needed = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
    package = needed.get(attn_implementation or "")
    if package is not None and importlib.util.find_spec(package) is None:
        raise ModelError(
            f"--attn-implementation {attn_implementation} needs the package {package}, which is "
            "not installed; sdpa and eager need none"
        )
    if quantization != "none" and importlib.util.find_spec("bitsandbytes") is None:
        raise ModelError(
            f"--quantization {quantization} needs bitsandbytes: pip install bitsandbytes"
        )


def _check_quantised(name: str, config: Any, place: str | None) -> None:
    """Refuse weights that are stored quantised by a method that nothing here opens."""
    how = getattr(config, "quantization_config", None) or {}
    if not how:
        return
    try:
        kind = AutoHfQuantizer.from_config(how, pre_quantized=True)
        kind.validate_environment(device_map=place or first_gpu())
    except RuntimeError:
        return  # It wants a GPU, without which --dry-run can still count.
    # Each method asks for its library by errors of its own.
    except Exception as error:
        method = how.get("quant_method") if isinstance(how, dict) else how
        raise ModelError(
            f"model {name!r} is stored quantised ({method or 'by no method'}), which cannot be "
            f"opened here: {_first_line(error).rstrip('.')}; or take the model as it was before"
        ) from error


def _check_filled(name: str, location: str, report: dict[str, Any]) -> None:
    """Refuse weights with gaps, which transformers fills with random numbers and a warning."""
    for problem in ("missing_keys", "mismatched_keys"):
        # A mismatched key comes with both shapes.
        if keys := sorted(k if isinstance(k, str) else str(k[0]) for k in report.get(problem, ())):
            raise ModelError(
                f"model {name!r}: the weights in {location} do not fit its config: "
                f"{len(keys)} {problem.replace('_', ' ')}, the first is {keys[0]}"
            )


def _unavailable(name: str, location: str, error: Exception) -> ModelError:
    what = f"model {name!r}: its files cannot be read from {location}: {_first_line(error)}"
    if not Path(location).exists() and not hub.answers():
        return ModelError(
            f"model {name!r} is not in the hub's cache, and the hub cannot be reached from here. "
            f"Fetch it where there is a network (`hf download {location}`; HF_HOME says where it "
            "is kept), then run with HF_HUB_OFFLINE=1; or give a folder (--model /path/to/folder)"
        )
    return ModelError(
        f"{what.rstrip('.')}. Give a folder that holds the model (--model /path/to/folder), or use "
        f"a model that is shipped with this package (--model {DEFAULT_MODEL})."
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
