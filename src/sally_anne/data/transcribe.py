"""``sally-anne transcribe``: subtitles of films, and how far they are from yours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TranscribeConfig:
    """Write what is said in films as SRT, as MoMentS' transcripts/ takes it.

    Attributes:
        data: a film or sound file, or a folder of them.
        whisper: hub id or folder of a Whisper checkpoint.
        diariser: hub id or folder of a model that tells speakers apart, frame by frame
            (...ForAudioFrameClassification, as WavLM's); nobody is named without one.
        language: what is spoken, as en; Whisper finds out by itself if it is left out.
        reference: folder of your own transcripts, named as the films: word errors, and speaker
            errors where these name all speakers.
        out: folder to write to. In an existing one films that are written are left as they are.
        device: where the models are put: cpu, cuda, cuda:1 or mps.
    """

    data: Path
    whisper: str
    diariser: str | None = None
    language: str | None = None
    reference: Path | None = None
    out: Path | None = None
    device: str = "cpu"

    @property
    def folder(self) -> Path:
        name = f"{self.data.stem}-{Path(self.whisper).name}"
        return self.out or Path("runs") / "transcribe" / name
