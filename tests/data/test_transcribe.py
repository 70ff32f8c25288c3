"""Transcripts by Whisper and a diariser of the very classes, tiny and random; errors by hand."""

from __future__ import annotations

import json
import random
import wave
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    Wav2Vec2FeatureExtractor,
    WavLMConfig,
    WavLMForAudioFrameClassification,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperProcessor,
    WhisperTokenizer,
)

from sally_anne.core.errors import HarnessError, MediaError, ModelError
from sally_anne.data.speech import RATE, Diariser, Transcriber, read_sound, run, srt
from sally_anne.data.transcripts import (
    TranscribeConfig,
    Utterance,
    read_transcript,
    speaker_errors,
    word_errors,
    words_of,
)
from tests.harness.made_benchmarks import encoded
from tests.made_replies import printed


def write_wav(path: Path, sound: np.ndarray, rate: int = RATE) -> Path:
    """``sound``: float ``[S]`` or ``[S, channels]``, from -1 to 1."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 if sound.ndim == 1 else sound.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((sound * 32767).round().astype("<i2").tobytes())
    return path


def tone(seconds: float, pitch: float = 440.0, rate: int = RATE) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)


def save_whisper(folder: Path) -> Path:
    """A random Whisper with one letter a token, and Whisper's own marks and times."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    marks = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>"]
    marks += ["<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>"]
    marks += ["<|notimestamps|>"]
    core.add_special_tokens(marks)
    core.add_tokens([f"<|{i * 0.02:.2f}|>" for i in range(1501)])
    core.save(str(folder / "core.json"))
    tokenizer = WhisperTokenizer(tokenizer_file=str(folder / "core.json"))
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    ids = {mark: tokenizer.convert_tokens_to_ids(mark) for mark in marks}
    size = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
    size |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    own = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), ids["<|endoftext|>"])
    own["decoder_start_token_id"] = ids["<|startoftranscript|>"]
    config = WhisperConfig(
        vocab_size=len(tokenizer),
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_mel_bins=8,
        max_target_positions=64,
        **size,
        **own,
    )
    torch.manual_seed(3)
    model = WhisperForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name and "embed_positions" not in name:
                parameter.normal_(std=0.3)
    model.generation_config = GenerationConfig(
        is_multilingual=True,
        lang_to_id={"<|en|>": ids["<|en|>"], "<|de|>": ids["<|de|>"]},
        task_to_id={"transcribe": ids["<|transcribe|>"], "translate": ids["<|translate|>"]},
        no_timestamps_token_id=ids["<|notimestamps|>"],
        **own,
        max_initial_timestamp_index=50,
        max_length=64,
        prev_sot_token_id=ids["<|startofprev|>"],
    )
    model.save_pretrained(folder)
    extractor = WhisperFeatureExtractor(feature_size=8)
    WhisperProcessor(extractor, tokenizer).save_pretrained(folder)
    (folder / "core.json").unlink()
    return folder


def save_diariser(folder: Path, speakers: int = 2) -> Path:
    config = WavLMConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        conv_dim=(8,) * 7,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        num_labels=speakers,
    )
    torch.manual_seed(0)
    WavLMForAudioFrameClassification(config).save_pretrained(folder)
    Wav2Vec2FeatureExtractor().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_whisper(tmp_path_factory.mktemp("whisper"))


@pytest.fixture(scope="module")
def diariser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_diariser(tmp_path_factory.mktemp("diariser"))


def test_a_sound_is_read_as_it_is(tmp_path: Path) -> None:
    sound = np.concatenate([tone(1.0), np.zeros(RATE), tone(0.5, 220)])
    path = write_wav(tmp_path / "a.wav", sound)
    found = read_sound(path)
    assert found.dtype == np.float32 and np.abs(found - sound).max() < 1e-4
    assert np.array_equal(read_sound(path, 0.25, 1.5), found[RATE // 4 : RATE * 3 // 2])
    with pytest.raises(MediaError):
        read_sound(path, 3.0)
    # Two channels are one, the mean; another rate is ours.
    both = np.stack([tone(1.0, rate=48_000), 0.2 * tone(1.0, rate=48_000)], axis=1)
    mono = read_sound(write_wav(tmp_path / "b.wav", both, 48_000))
    assert len(mono) == pytest.approx(RATE, abs=20)
    assert np.abs(mono[200:-200] - 0.6 * tone(1.0)[200 : len(mono) - 200]).max() < 0.02


def write_film(path: Path, sound: np.ndarray | None, late: float = 0.0) -> Path:
    """Two seconds of grey, and a sound that begins so late."""
    words = None if sound is None else (sound * 32767).round().astype(np.int16)
    return encoded(path, [np.full((32, 32, 3), 99, np.uint8)] * 20, sound=words, late=late)


def test_the_sound_of_a_film(tmp_path: Path) -> None:
    found = read_sound(write_film(tmp_path / "film.mkv", tone(1.0), late=0.5))
    assert np.abs(found[: RATE // 2 - 100]).max() < 1e-3
    heard = found[RATE // 2 :][: len(tone(1.0))]
    assert np.abs(heard - tone(1.0)[: len(heard)]).max() < 0.02
    with pytest.raises(MediaError):
        read_sound(write_film(tmp_path / "mute.mkv", None))
    (tmp_path / "no.mp4").write_bytes(b"not a film")
    with pytest.raises(MediaError):
        read_sound(tmp_path / "no.mp4")
    with pytest.raises(MediaError):
        read_sound(tmp_path / "missing.mp4")


@pytest.mark.integration
def test_whisper_says_what_transformers_decodes(whisper: Path) -> None:
    sound = np.random.default_rng(0).normal(0, 0.1, 8 * RATE).astype(np.float32)
    said = Transcriber(str(whisper)).transcribe(sound)
    model = WhisperForConditionalGeneration.from_pretrained(whisper)
    processor = WhisperProcessor.from_pretrained(whisper)
    inputs = processor(sound, sampling_rate=RATE, return_tensors="pt", return_attention_mask=True)
    tokens = model.generate(**inputs, return_timestamps=True, task="transcribe")
    parts = processor.tokenizer.decode(tokens[0], output_offsets=True)["offsets"]
    texts = [" ".join(part["text"].split()) for part in parts]
    assert [one.text for one in said] == [text for text in texts if text] != []
    assert all(0 <= one.start <= one.end <= 8 for one in said)


@pytest.mark.integration
def test_a_diariser_window_by_window(diariser: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Diariser(str(diariser))
    sound = np.random.default_rng(0).normal(0, 0.1, 5 * RATE).astype(np.float32)
    whole = model.activity(sound)
    inputs = model._extract(sound, sampling_rate=RATE, return_tensors="pt")
    with torch.inference_mode():
        own = model._model(**inputs).logits[0].sigmoid().numpy()
    assert np.abs(whole[: len(own)] - own).max() < 1e-6
    # Two people who talk in turns of ten seconds; a window names them as it likes.
    truth = np.zeros((100 * 50, 2))
    for turn in range(10):
        truth[turn * 500 : (turn + 1) * 500, turn % 2] = 1.0
    place, names = np.arange(100 * RATE, dtype=np.float32), random.Random(0)

    def window(self: Diariser, heard: np.ndarray) -> np.ndarray:
        first = int(heard[0]) // 320
        rows = truth[first : first + len(heard) // 320 - 1]
        return rows[:, ::-1] if names.random() < 0.5 else rows

    monkeypatch.setattr(Diariser, "_window", window)
    found = model.activity(place)
    flipped = found[:, ::-1] if found[0, 1] > found[0, 0] else found
    assert np.array_equal(flipped[:-1] > 0.5, truth[:-1] > 0.5)
    said = [Utterance(2.0, 9.0, "a"), Utterance(11.0, 18.0, "b"), Utterance(8.0, 15.0, "c")]
    one, two, three = model.named(said, place)
    assert {one.speaker, two.speaker} == {"SPEAKER_00", "SPEAKER_01"}
    assert three.speaker == two.speaker
    with pytest.raises(ModelError):
        Diariser(str(save_diariser(diariser, speakers=1)))
    save_diariser(diariser)


def test_words_against_the_plain_recursion() -> None:
    said = [Utterance(0, 1, "It's a DAY, isn't it?"), Utterance(1, 2, "Yes!")]
    assert words_of(said) == ["its", "a", "day", "isnt", "it", "yes"]
    draw = random.Random(0)
    for _ in range(200):
        one, two = ([draw.choice("abc") for _ in range(draw.randrange(9))] for _ in range(2))
        table = [[i + j for j in range(len(two) + 1)] for i in range(len(one) + 1)]
        for i, a in enumerate(one, 1):
            for j, b in enumerate(two, 1):
                table[i][j] = min(
                    table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a != b)
                )
        assert word_errors(one, two) == table[-1][-1]


def by(speaker: str, start: float, end: float) -> Utterance:
    return Utterance(start, end, "x", speaker)


@pytest.mark.parametrize(
    ("found", "missed", "confused"),
    [
        ([by("1", 0, 10), by("2", 10, 16)], 0, 0),
        # Two seconds of Ann are given to Bob's name, one of Bob is not there.
        ([by("1", 0, 8), by("2", 8, 15)], 1, 2),
        # What lies outside of the reference's speech does not count.
        ([by("1", 0, 10), by("2", 10, 30), by("3", 40, 50)], 0, 0),
        # One name for both: the longer is right.
        ([by("1", 0, 16)], 0, 6),
        ([by("", 0, 16)], 0, 16),
        ([], 16, 0),
    ],
)
def test_speakers_by_hand(found: list[Utterance], missed: float, confused: float) -> None:
    reference = [by("Ann", 0, 6), by("Ann", 4, 10), by("Bob", 10, 16)]
    assert speaker_errors(reference, found) == (missed, confused, 16)


@pytest.fixture
def films(tmp_path: Path) -> Path:
    folder = tmp_path / "films"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        write_wav(folder / f"{name}.wav", rng.normal(0, 0.1, 3 * RATE).clip(-1, 1))
    write_film(folder / "mute.mkv", None)
    return folder


transcribe = partial(printed, run)


@pytest.mark.integration
def test_a_folder_of_films(
    films: Path, whisper: Path, diariser: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TranscribeConfig(films, str(whisper), str(diariser), out=films.parent / "said")
    listen, heard = Transcriber.transcribe, []

    def once(self: Transcriber, sound: np.ndarray) -> list[Utterance]:
        if len(heard) == stop:
            raise KeyboardInterrupt
        heard.append(len(sound))
        return listen(self, sound)

    monkeypatch.setattr(Transcriber, "transcribe", once)
    stop = 1
    with pytest.raises(KeyboardInterrupt):
        transcribe(config)
    stop = -1
    _, words = transcribe(config)
    assert len(heard) == 2 and "left out: " in words and "mute.mkv: has no sound" in words
    one = read_transcript(config.folder / "one.srt")
    assert one and all(said.speaker in ("", "SPEAKER_00", "SPEAKER_01") for said in one)
    # Its own transcripts are a reference without errors, and half of them one with some.
    for name in ("one", "two"):
        said = read_transcript(config.folder / f"{name}.srt")
        named = [replace(part, speaker="Ann") for part in said]
        (films.parent / "mine").mkdir(exist_ok=True)
        (films.parent / "mine" / f"{name}.srt").write_text(srt(named))
    found, words = transcribe(replace(config, reference=films.parent / "mine"))
    assert len(heard) == 2 and found["all"]["word_errors"] == 0 and found["all"]["words"] > 0
    assert "0.0" in words
    saved = json.loads((config.folder / "results.json").read_text())["results"]
    assert saved == found and set(found) == {"one", "two", "all"}
    with pytest.raises(HarnessError, match="another run: diariser"):
        transcribe(replace(config, diariser=None))
