"""``sally-anne transcribe``: films to subtitles with Whisper and a model of speakers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
import transformers
from scipy.optimize import linear_sum_assignment

from sally_anne.core.console import Bars, Console, print_lines, print_table
from sally_anne.core.errors import BenchmarkError, MediaError, ModelError
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import RESULTS, Journal, claims, save_config
from sally_anne.core.media import UNREADABLE, open_container
from sally_anne.core.processes import check_place
from sally_anne.data import transcripts
from sally_anne.data.items import VIDEOS, Media, videos_in
from sally_anne.data.read import one_line
from sally_anne.data.transcripts import TranscribeConfig, Utterance, read_transcript, words_of
from sally_anne.hooks.identity import folder_hash

# Samples a second, as Whisper, WavLM and Qwen's models with sound take them.
RATE = 16_000
# Seconds of sound that the model of speakers takes; windows overlap by half.
WINDOW = 30
SOUNDS = (".wav", ".mp3", ".flac", ".m4a", ".ogg", ".opus")


class Transcriber:
    """A Whisper checkpoint; always the likeliest token, as the paper's temperature of 0."""

    def __init__(self, location: str, device: str = "cpu") -> None:
        self.about = _about(location)
        self._model = _opened("WhisperForConditionalGeneration", location).to(device).eval()
        self._processor = _opened("WhisperProcessor", location, weights=False)
        many = getattr(self._model.generation_config, "is_multilingual", False)
        self._options = {"task": "transcribe"} if many else {}

    def transcribe(self, sound: np.ndarray) -> list[Utterance]:
        """The speech of a sound ``float32 [S]``, in Whisper's own segments."""
        extract = self._processor.feature_extractor
        options: dict[str, Any] = {"sampling_rate": RATE, "return_attention_mask": True}
        # Less than a window is padded to one, more is read window by window.
        if len(sound) > extract.n_samples:
            options |= {"truncation": False, "padding": "longest"}
        inputs = extract(sound, return_tensors="pt", **options)
        inputs = inputs.to(self._model.device, self._model.dtype)
        with torch.inference_mode():
            output = self._model.generate(
                **inputs, return_timestamps=True, return_segments=True, **self._options
            )
        utterances = []
        for segment in output["segments"][0]:
            text = self._processor.tokenizer.decode(segment["tokens"], skip_special_tokens=True)
            times = [float(segment[name]) for name in ("start", "end")]
            start, end = np.clip(times, 0, len(sound) / RATE).tolist()
            utterances.append(Utterance(start, max(start, end), one_line(text)))
        return [one for one in utterances if one.text]


class Diariser:
    """A model with a head for audio frames that says which of its speakers speak when."""

    def __init__(self, location: str, device: str = "cpu") -> None:
        self.about = _about(location)
        self._model = _opened("AutoModelForAudioFrameClassification", location).to(device).eval()
        self._extract = _opened("AutoFeatureExtractor", location, weights=False)
        self._step = int(self._model.config.inputs_to_logits_ratio)
        self.speakers = int(self._model.config.num_labels)
        if self.speakers < 2:
            raise ModelError(f"{location} knows no speakers apart: it has {self.speakers} label")

    def activity(self, sound: np.ndarray) -> np.ndarray:
        """Probability that each speaker speaks, ``float64 [T, speakers]``.

        A row is as many samples as the model's convolutions take in a step. Speakers have no order
        of their own, so each window is matched to the half that it shares with the one before.
        """
        rows = -(-len(sound) // self._step)
        total, counts = np.zeros((rows, self.speakers)), np.zeros((rows, 1))
        half = WINDOW * RATE // 2 // self._step
        for first in range(0, max(rows - half, 1), half):
            part = sound[first * self._step : (first + 2 * half) * self._step]
            window = self._window(part)[: rows - first]
            place = slice(first, first + len(window))
            both = counts[place, 0] > 0
            before = total[place][both] / counts[place][both]
            order = linear_sum_assignment(-(before.T @ window[both]))[1]
            total[place] += window[:, order]
            counts[place] += 1
        return total / np.maximum(counts, 1)

    def named(self, utterances: list[Utterance], sound: np.ndarray) -> list[Utterance]:
        activity, step = self.activity(sound), self._step / RATE
        named = []
        for one in utterances:
            first = int(one.start / step)
            part = activity[first : max(first + 1, int(one.end / step))]
            amount = np.where(part >= 0.5, part, 0.0).sum(0)
            name = f"SPEAKER_{int(amount.argmax()):02d}" if amount.any() else ""
            named.append(replace(one, speaker=name))
        return named

    def _window(self, sound: np.ndarray) -> np.ndarray:
        # Convolutions need some samples for their first row.
        padded = np.pad(sound, (0, max(0, RATE // 10 - len(sound))))
        inputs = self._extract(padded, sampling_rate=RATE, return_tensors="pt")
        with torch.inference_mode():
            logits = self._model(**inputs.to(self._model.device)).logits[0]
        return logits.float().sigmoid().cpu().double().numpy()


def _opened(kind: str, location: str, weights: bool = True) -> Any:
    try:
        # The other format is a pickle, which runs code when it is opened.
        safe = {"use_safetensors": True} if weights else {}
        return getattr(transformers, kind).from_pretrained(location, **safe)
    # A damaged file ends in any kind of error.
    except Exception as error:
        raise ModelError(f"{location!r} cannot be opened as a {kind} ({error!r:.200})") from error


def _about(location: str) -> str:
    folder = Path(location)
    return f"{location} {folder_hash(folder)}" if folder.is_dir() else location


@claims("a transcription")
def run(config: TranscribeConfig, console: Console | None = None) -> dict[str, dict[str, Any]]:
    """Write ``<film>.srt`` for each film in ``config.folder``.

    Returns, for films with a reference and over ``all``, word and speaker errors with their totals
    (the MoMentS paper's appendix A.4).
    """
    console = console or Console()
    check_place(config.device)
    films = _films(config.data)
    there = videos_in(config.reference, (".srt", ".vtt", ".json")) if config.reference else {}
    references = {name: read_transcript(there[name]) for name in films if name in there}
    if config.reference is not None and not references:
        raise BenchmarkError(f"--reference {config.reference}: has no transcript of any film")
    transcriber = Transcriber(config.whisper, config.device)
    diariser = None if config.diariser is None else Diariser(config.diariser, config.device)
    about = {"whisper": transcriber.about, "diariser": diariser and diariser.about}
    problems: list[str] = []
    # The journal knows by which models the folder's transcripts are.
    with Journal(config.folder / "films.jsonl", about), Bars(console) as bar:
        save_config(config.folder, asdict(config))
        task = bar.add_task("films", total=len(films))
        for name, path in films.items():
            try:
                if not (out := config.folder / f"{name}.srt").exists():
                    sound = read_sound(path)
                    speech = transcriber.transcribe(sound)
                    speech = diariser.named(speech, sound) if diariser else speech
                    write_atomic(out, srt(speech).encode())
            except MediaError as error:
                problems.append(str(error))
            bar.advance(task)
    results = {
        name: _errors(reference, read_transcript(out))
        for name, reference in references.items()
        if (out := config.folder / f"{name}.srt").exists()
    }
    if results:
        every = Counter[str]()
        for one in results.values():
            every.update(one)
        results["all"] = dict(every)
        write_json(config.folder / RESULTS, {"results": results})
        _print(console, results)
    print_lines(console, [f"left out: {problem}" for problem in problems])
    if len(problems) == len(films):
        raise BenchmarkError(f"{config.data}: none of its {len(films)} files has readable sound")
    print_lines(console, [f"transcripts: {config.folder}"])
    return results


def srt(utterances: Sequence[Utterance]) -> str:
    def clock(seconds: float) -> str:
        whole, thousandths = divmod(round(seconds * 1000), 1000)
        minutes, second = divmod(whole, 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d},{thousandths:03d}"

    blocks = []
    for number, one in enumerate(utterances, start=1):
        text = f"[{one.speaker}]: {one.text}" if one.speaker else one.text
        blocks.append(f"{number}\n{clock(one.start)} --> {clock(one.end)}\n{text}\n")
    return "\n".join(blocks)


def _films(data: Path) -> dict[str, Path]:
    suffixes = (*VIDEOS, *SOUNDS)
    films = videos_in(data, suffixes)
    if data.suffix.lower() in suffixes and data.exists() and not data.is_dir():
        films = {data.stem: data}
    if not films:
        endings = ", ".join(suffixes)
        raise BenchmarkError(f"{data}: must be a film or sound ({endings}), or a folder of them")
    return dict(sorted(films.items()))


def _errors(reference: Sequence[Utterance], speech: Sequence[Utterance]) -> dict[str, Any]:
    words = words_of(reference)
    errors: dict[str, Any] = {"words": len(words)}
    errors["word_errors"] = transcripts.word_errors(words, words_of(speech))
    # Speech of nobody would be a speaker of its own.
    if all(one.speaker for one in reference) and any(one.speaker for one in speech):
        found = transcripts.speaker_errors(reference, speech)
        errors |= dict(zip(("missed", "confused", "seconds"), found, strict=True))
    return errors


def _print(console: Console, results: dict[str, dict[str, Any]]) -> None:
    def share(errors: float, total: float) -> str:
        return f"{100 * errors / total:.1f}" if total else ""

    rows = []
    for name, one in results.items():
        words, seconds = one["words"], one.get("seconds", 0.0)
        wrong = one.get("missed", 0.0) + one.get("confused", 0.0)
        rows.append([name, words, share(one["word_errors"], words), f"{seconds:.1f}"])
        rows[-1].append(share(wrong, seconds))
    columns = ("film", "words", "WER", "speech (s)", "DER")
    print_table(console, "Errors against the reference (%)", columns, rows)


def read_sound(path: Path, start: float = 0.0, end: float | None = None) -> np.ndarray:
    """The mean channel of a file's first sound, from ``start`` to ``end`` seconds: ``float32 [S]``.

    At :data:`RATE`, from -1 to 1; times are from the file's beginning, and a sound that begins
    later is silent until then. MediaError if there is none or it cannot be decoded.
    """
    blocks: list[np.ndarray] = []
    last = None if end is None else round(end * RATE)
    first, place = None, 0
    with _opened_sound(path) as container:
        if not container.streams.audio:
            raise MediaError(f"{path}: has no sound")
        origin = (container.start_time or 0) / 1_000_000
        resampler = av.AudioResampler(format="fltp", rate=RATE)
        for frame in chain(container.decode(container.streams.audio[0]), [None]):
            if first is None and frame is not None:
                first = place = round(((frame.time or 0.0) - origin) * RATE)
            # FFmpeg's own mix of two channels is louder than either.
            new = [part.to_ndarray().mean(0) for part in resampler.resample(frame)]
            blocks += new
            place += sum(map(len, new))
            if last is not None and place >= last:
                break
    if first is None or not blocks:
        raise MediaError(f"{path}: its sound is empty")
    sound = np.concatenate([np.zeros(max(first, 0)), *blocks])[max(-first, 0) :]
    part = sound[round(start * RATE) : last].astype(np.float32)
    if not len(part):
        raise MediaError(f"{path}: its sound ends before {start:g} s")
    return part


def seconds_of(path: Path) -> float | None:
    """How long a file's first sound is by its header, 0 where it is unknown; None without sound."""
    return _seconds(path, path.stat().st_mtime_ns if path.exists() else 0)


def has_sound(film: Media) -> bool:
    """Whether a film is here and has sound."""
    return film.path is not None and not film.files and seconds_of(film.path) is not None


@lru_cache(maxsize=1024)
def _seconds(path: Path, changed: int) -> float | None:
    with _opened_sound(path) as container:
        for stream in container.streams.audio[:1]:
            if stream.duration is not None and stream.time_base is not None:
                return float(stream.duration * stream.time_base)
            return (container.duration or 0) / 1_000_000
    return None


@contextmanager
def _opened_sound(path: Path) -> Iterator[Any]:
    # Pipes and devices may never end.
    if path.exists() and not path.is_file():
        raise MediaError(f"{path}: is no file with sound")
    try:
        with open_container(path, ",wav,mp3,flac,aac") as found:
            yield found
    except UNREADABLE as error:
        raise MediaError(f"{path}: its sound cannot be decoded ({error})") from error
