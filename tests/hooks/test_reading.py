"""Missing, refused and damaged files are told apart, for every library that reads them."""

from __future__ import annotations

import builtins
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sally_anne.hooks.store.files import check_shard, write_shard

from sally_anne.core.errors import StoreDamagedError, StoreError
from sally_anne.core.files import read_object, reading

READERS: dict[str, Callable[[Path], object]] = {
    "parquet": pd.read_parquet,
    "safetensors": load_file,
    "json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    "csv": lambda path: pd.read_csv(path, encoding="utf-8")[["a"]],
}


def write(path: Path, kind: str) -> bytes:
    table = pd.DataFrame({"a": range(60)})
    if kind == "parquet":
        table.to_parquet(path)
    elif kind == "safetensors":
        save_file({"a": np.arange(60.0)}, path)
    elif kind == "json":
        path.write_text(json.dumps({"a": list(range(60))}))
    else:
        table.to_csv(path)
    return path.read_bytes()


def refuse(monkeypatch: pytest.MonkeyPatch, number: int, path: Path) -> None:
    """Let the system refuse to open one file."""
    plain = builtins.open

    def opened(file, *args, **kwargs):
        if isinstance(file, str | os.PathLike) and Path(file) == path:
            raise OSError(number, os.strerror(number), str(file))
        return plain(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", opened)


@pytest.mark.parametrize("kind", READERS)
def test_what_is_wrong_with_a_file(kind, tmp_path, monkeypatch) -> None:
    path = tmp_path / "file"

    def read(made_by: str | None = "make it") -> str:
        with pytest.raises(StoreError) as caught, reading(path, StoreError, made_by):
            READERS[kind](path)
        return str(caught.value)

    assert read() == f"{path} is missing; `make it` makes it"
    assert read(None) == f"{path} is missing"
    path.mkdir()
    assert read() == read(None) == f"{path} is not a file but a folder"
    path.rmdir()
    whole = write(path, kind)
    with reading(path, StoreError):
        READERS[kind](path)
    cut = [b"", whole[: len(whole) // 2], b"\xff\x00" * 99, b"hello\n" * 9]
    other = {name: write(tmp_path / name, name) for name in READERS if name != kind}
    for data in cut if kind != "csv" else [b"", b"\xff\x00" * 99, *other.values()]:
        if kind == "csv" and data == other.get("json"):
            continue
        path.write_bytes(data)
        assert read().startswith(f"{path} is damaged or another kind of file (")
        assert read().endswith("); delete it and run `make it` again")
        assert "delete" not in read(None)
        with pytest.raises(StoreDamagedError), reading(path, ValueError, None, StoreDamagedError):
            READERS[kind](path)
    path.write_bytes(whole)
    for number in (errno.EACCES, errno.EPERM, errno.EIO):
        with monkeypatch.context() as patch:
            refuse(patch, number, path)
            said = read()
            assert said.startswith(f"{path} cannot be read ({os.strerror(number)}); ")
            assert "may be whole" in said and "delete" not in said and "make it" not in said
            with pytest.raises(StoreError) as caught, reading(path, StoreError, "x", ValueError):
                READERS[kind](path)
            assert type(caught.value) is StoreError


def test_a_disk_that_fails_while_it_is_read_is_no_damage(tmp_path) -> None:
    write(tmp_path / "file", "json")
    with (
        pytest.raises(StoreError, match=r"cannot be read \(Input/output error\)"),
        reading(tmp_path / "file", StoreError, "make it"),
    ):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_is_no_file_at_all(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(StoreError, match="pipe is not a file$"),
        reading(tmp_path / "pipe", StoreError, "make it"),
    ):
        raise AssertionError("it would wait for ever")
    # A file of the user's own may well be one: `--prompts <(command)`.
    with reading(tmp_path / "pipe", StoreError):
        pass
    (tmp_path / "file").touch()
    with (
        pytest.raises(StoreError, match=r"cannot be read \(Not a directory\)"),
        reading(tmp_path / "file" / "below", StoreError, "make it"),
    ):
        pass


def test_our_own_errors_and_stops_pass(tmp_path) -> None:
    (tmp_path / "file").touch()
    for raised in (StoreDamagedError("ours"), KeyboardInterrupt()):
        with pytest.raises(type(raised)) as caught, reading(tmp_path / "file", StoreError):
            raise raised
        assert caught.value is raised


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "it holds a list, not an object"),
        ("{}", "it has no object 'config'"),
        ('{"config": 3}', "it has no object 'config'"),
        ('{"config": {"k": 1}}', "its 'config' lacks 'c'"),
        ("{", "Expecting property name"),
        ("[" * 100_000, "recursion|Expecting value"),
    ],
)
def test_objects(text, message, tmp_path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=rf"config.json is damaged .*({message}).*run `make it`"):
        read_object(path, StoreError, "make it", {"config": ("k", "c")})
    path.write_text('{"config": {"k": 1, "c": 2}}')
    assert read_object(path, StoreError, "make it", {"config": ("k", "c")})["config"]["c"] == 2


def test_a_shard_that_the_system_refuses_is_not_damaged(tmp_path, monkeypatch) -> None:
    written = write_shard(tmp_path, 0, torch.zeros(2, 1, 1, 3))
    with monkeypatch.context() as patch:
        refuse(patch, errno.EACCES, tmp_path / "shard-00000.safetensors")
        with pytest.raises(StoreError, match="cannot be read") as caught:
            check_shard(tmp_path, 0)
        assert type(caught.value) is StoreError
    assert check_shard(tmp_path, 0) == written
    (tmp_path / "shard-00000.safetensors").write_bytes(b"")
    with pytest.raises(StoreDamagedError, match="extraction again"):
        check_shard(tmp_path, 0)
