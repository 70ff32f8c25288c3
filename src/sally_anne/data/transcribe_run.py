"""Films through Whisper, one after the other; what is written is not made again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import BenchmarkError, ClipError, FolderError
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import CONFIG, RESULTS, claims, save_config
from sally_anne.data.moments import VIDEOS
from sally_anne.data.sound import SOUNDS, read_sound
from sally_anne.data.speech import Diariser, Listener
from sally_anne.data.speech_errors import speaker_errors, word_errors, words_of
from sally_anne.data.transcribe import TranscribeConfig
from sally_anne.data.transcripts import SUFFIXES, Utterance, read_transcript
from sally_anne.models.loading import check_place


@claims("a transcription")
def run(config: TranscribeConfig, console: Console | None = None) -> dict[str, dict[str, Any]]:
    """Write ``<film>.srt`` for each film, in ``config.folder``; returns the errors by film.

    Silence gives an empty file. Films whose sound cannot be read are said in the end, and the
    others are done. With references, ``results.json`` has for each film, and over ``all``, word
    and speaker errors with what they are shares of, as the paper defines them (appendix A.4).
    """
    console = console or Console()
    check_place(config.device)
    films = _films(config.data)
    references = {} if config.reference is None else _references(config.reference, films)
    listener = Listener(config.whisper, config.device, config.language)
    diariser = None if config.diariser is None else Diariser(config.diariser, config.device)
    about = {
        "whisper": listener.about,
        "diariser": diariser and diariser.about,
        "language": config.language,
    }
    _require_same(config.folder, about)
    save_config(config.folder, asdict(config), about=about)
    problems: list[str] = []
    with Bars(console) as bar:
        task = bar.add_task("films", total=len(films))
        for name, path in films.items():
            out = config.folder / f"{name}.srt"
            if not out.exists():
                try:
                    sound = read_sound(path)
                except ClipError as error:
                    problems.append(str(error))
                    bar.advance(task)
                    continue
                said = listener.listen(sound)
                write_atomic(out, srt(diariser.named(said, sound) if diariser else said).encode())
            bar.advance(task)
    found = {
        name: _errors(read_transcript(path), read_transcript(config.folder / f"{name}.srt"))
        for name, path in references.items()
        if (config.folder / f"{name}.srt").exists()
    }
    if found:
        found["all"] = _together(list(found.values()))
        write_json(config.folder / RESULTS, {"results": found})
        _print(console, found)
    for problem in problems:
        console.print(f"left out: {escape(problem)}", soft_wrap=True)
    if config.reference is not None and (
        bare := [name for name in films if name not in references]
    ):
        console.print(escape(f"without a reference: {', '.join(bare)}"), soft_wrap=True)
    if problems and len(problems) == len(films):
        raise BenchmarkError(
            f"{config.data}: none of its {len(films)} files has sound that is read"
        )
    console.print(f"transcripts: {escape(str(config.folder))}", soft_wrap=True)
    return found


def srt(said: Sequence[Utterance]) -> str:
    """Utterances as SubRip, ``[SPEAKER]: text`` where a speaker is named."""
    blocks = []
    for number, one in enumerate(said, start=1):
        text = f"[{one.speaker}]: {one.text}" if one.speaker else one.text
        blocks.append(f"{number}\n{_clock(one.start)} --> {_clock(one.end)}\n{text}\n")
    return "\n".join(blocks)


def _clock(seconds: float) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(whole, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d},{thousandths:03d}"


def _films(data: Path) -> dict[str, Path]:
    """Files with sound by their names; of two endings a film's goes first."""
    suffixes = (*VIDEOS, *SOUNDS)
    if not data.exists():
        raise BenchmarkError(f"{data}: is not there; give a film, a sound file or a folder of them")
    files = sorted(data.iterdir()) if data.is_dir() else [data]
    files = [path for path in files if path.suffix.lower() in suffixes]
    if not files:
        raise BenchmarkError(f"{data}: holds no films or sounds; they end in {', '.join(suffixes)}")
    ranked = sorted(files, key=lambda path: suffixes.index(path.suffix.lower()), reverse=True)
    return dict(sorted({path.stem: path for path in ranked}.items()))


def _references(folder: Path, films: dict[str, Path]) -> dict[str, Path]:
    """The user's transcripts of these films; all are read once, so that bad ones are named now."""
    found = {}
    for name in films:
        paths = [folder / f"{name}{suffix}" for suffix in (".srt", *SUFFIXES)]
        if path := next((path for path in paths if path.exists()), None):
            read_transcript(path)
            found[name] = path
    if not found:
        raise BenchmarkError(
            f"--reference {folder}: has no transcript of {next(iter(films))!r} or any other film; "
            f"they are named as the films and end in {', '.join(SUFFIXES)}"
        )
    return found


def _require_same(folder: Path, about: dict[str, Any]) -> None:
    path = folder / CONFIG
    if not path.exists():
        return
    there = json.loads(path.read_text(encoding="utf-8")).get("about", {})
    for name, value in about.items():
        if there.get(name) != value:
            raise FolderError(
                f"{folder} holds transcripts of another {name} ({there.get(name)}, not {value}); "
                "choose another --out"
            )


def _errors(reference: Sequence[Utterance], found: Sequence[Utterance]) -> dict[str, Any]:
    words = words_of(reference)
    errors: dict[str, Any] = {"words": len(words)}
    errors["word_errors"] = word_errors(words, words_of(found))
    # Speech of nobody would be a speaker of its own.
    if all(one.speaker for one in reference) and any(one.speaker for one in found):
        missed, confused, seconds = speaker_errors(reference, found)
        errors |= {"missed": missed, "confused": confused, "seconds": seconds}
    return errors


def _together(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = ("words", "word_errors", "missed", "confused", "seconds")
    return {
        name: sum(one[name] for one in found if name in one)
        for name in names
        if any(name in one for one in found)
    }


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else ""


def _print(console: Console, found: dict[str, dict[str, Any]]) -> None:
    table = Table(title="Errors against the reference (%)")
    for number, name in enumerate(("film", "words", "WER", "speech (s)", "DER")):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for name, one in found.items():
        seconds = one.get("seconds", 0.0)
        table.add_row(
            escape(name),
            str(one["words"]),
            _share(one["word_errors"], one["words"]),
            f"{seconds:.1f}" if seconds else "",
            _share(one.get("missed", 0.0) + one.get("confused", 0.0), seconds),
        )
    console.print(table)
