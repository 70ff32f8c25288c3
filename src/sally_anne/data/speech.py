"""What is said in a film and by whom: Whisper, and a model that tells speakers apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from transformers import (
    AutoFeatureExtractor,
    AutoModelForAudioFrameClassification,
    WhisperForConditionalGeneration,
    WhisperProcessor,
)

from sally_anne.core.errors import ModelError, UnknownModelError
from sally_anne.data.sound import RATE
from sally_anne.data.transcripts import Utterance
from sally_anne.hooks.identity import folder_hash

# Seconds in which speakers are told apart together; the next window begins at half of it.
WINDOW = 30


class Listener:
    """A Whisper checkpoint; always the likeliest token, as the paper's temperature of 0."""

    def __init__(self, location: str, device: str = "cpu", language: str | None = None) -> None:
        self.about = _about(location)
        self._model = _opened(WhisperForConditionalGeneration, location).to(device).eval()
        self._processor = _opened(WhisperProcessor, location, weights=False)
        self._options: dict[str, Any] = {}
        known = getattr(self._model.generation_config, "lang_to_id", None) or {}
        if language is not None and known and f"<|{language}|>" not in known:
            codes = ", ".join(sorted(code.strip("<|>") for code in known))
            raise ModelError(f"{location} knows no language {language!r}; it has {codes}")
        if getattr(self._model.generation_config, "is_multilingual", False):
            self._options = {"task": "transcribe", "language": language}
        elif language is not None:
            raise ModelError(f"{location} knows one language; leave --language out")

    def listen(self, sound: np.ndarray) -> list[Utterance]:
        """What is said in a sound ``float32 [S]``, in Whisper's own segments."""
        read = self._processor.feature_extractor
        # Less than a window is padded to one, more is read window by window.
        long = len(sound) > read.n_samples
        how: dict[str, Any] = {"truncation": False, "padding": "longest"} if long else {}
        inputs = read(
            sound, sampling_rate=RATE, return_attention_mask=True, return_tensors="pt", **how
        ).to(self._model.device, self._model.dtype)
        with torch.inference_mode():
            said = self._model.generate(
                **inputs, return_timestamps=True, return_segments=True, **self._options
            )
        length = len(sound) / RATE
        found = []
        for segment in said["segments"][0]:
            tokens = segment["tokens"]
            text = self._processor.tokenizer.decode(tokens, skip_special_tokens=True)
            start, end = (min(max(float(segment[k]), 0.0), length) for k in ("start", "end"))
            if text := " ".join(text.split()):
                found.append(Utterance(start, max(start, end), text))
        return found


class Diariser:
    """A model that says for each moment of a sound which of its speakers talk.

    Any checkpoint of transformers with a head for audio frames, such as WavLM's and wav2vec2's for
    diarisation; it tells as many speakers apart as it has labels.
    """

    def __init__(self, location: str, device: str = "cpu") -> None:
        self.about = _about(location)
        self._model = _opened(AutoModelForAudioFrameClassification, location).to(device).eval()
        self._read = _opened(AutoFeatureExtractor, location, weights=False)
        self.speakers = int(self._model.config.num_labels)
        if self.speakers < 2:
            raise ModelError(f"{location} tells no speakers apart: it has {self.speakers} label")

    def activity(self, sound: np.ndarray) -> np.ndarray:
        """How probable it is that each speaker talks, ``float64 [T, speakers]``.

        A row is so many samples as the model's convolutions take in a step. Each window is fitted
        to what the one before says of the half that they share: speakers have no order of their
        own.
        """
        step = int(self._model.config.inputs_to_logits_ratio)
        rows = -(-len(sound) // step)
        total, counts = np.zeros((rows, self.speakers)), np.zeros((rows, 1))
        half = WINDOW * RATE // 2 // step
        for first in range(0, max(rows - half, 1), half):
            found = self._window(sound[first * step : (first + 2 * half) * step])[: rows - first]
            place = slice(first, first + len(found))
            both = counts[place, 0] > 0
            before = total[place][both] / counts[place][both]
            order = linear_sum_assignment(-(before.T @ found[both]))[1]
            total[place] += found[:, order]
            counts[place] += 1
        return total / np.maximum(counts, 1)

    def named(self, said: list[Utterance], sound: np.ndarray) -> list[Utterance]:
        """Utterances with the speaker who talks most in each; without one where nobody does."""
        talks, step = self.activity(sound), int(self._model.config.inputs_to_logits_ratio) / RATE
        found = []
        for one in said:
            part = talks[
                int(one.start / step) : max(int(one.start / step) + 1, int(one.end / step))
            ]
            heard = np.where(part >= 0.5, part, 0.0).sum(0)
            name = f"SPEAKER_{int(heard.argmax()):02d}" if heard.any() else ""
            found.append(Utterance(one.start, one.end, one.text, name))
        return found

    def _window(self, sound: np.ndarray) -> np.ndarray:
        # Convolutions need some samples for their first row.
        padded = np.pad(sound, (0, max(0, RATE // 10 - len(sound))))
        inputs = self._read(padded, sampling_rate=RATE, return_tensors="pt").to(self._model.device)
        with torch.inference_mode():
            logits = self._model(**inputs).logits[0]
        return logits.float().sigmoid().cpu().double().numpy()


def _opened(kind: Any, location: str, weights: bool = True) -> Any:
    try:
        # The other format is a pickle, which runs code when it is opened.
        return kind.from_pretrained(location, **({"use_safetensors": True} if weights else {}))
    # A damaged file ends in any kind of error.
    except Exception as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UnknownModelError(
            f"model {location!r}: cannot be opened as a {kind.__name__} ({said}); give a folder or "
            "hub id with such a model"
        ) from error


def _about(location: str) -> str:
    folder = Path(location)
    return f"{location} {folder_hash(folder)}" if folder.is_dir() else location
