"""``sally-anne probe``: help, and what it prints when it cannot go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from sally_anne.cli import main
from sally_anne.probing import pipeline

pytestmark = pytest.mark.integration


def command(*words: str) -> str | int | None:
    """Run the command line in this process; what it exits with."""
    with pytest.raises(SystemExit) as ended:
        main(["probe", *words])
    return ended.value.code


@pytest.mark.parametrize(
    "words", [("--model", "no-such-model"), ("--stories", "3"), ("--out", "file/run")]
)
def test_what_cannot_be_done_is_named(monkeypatch, tmp_path, words) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    code = command("--stories", "20", "--out", "run", *words)
    assert isinstance(code, str) and code.startswith("error: ") and words[1] in code
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_numbers(tmp_path, model_folder) -> None:
    folder = Path(shutil.copytree(model_folder, tmp_path / "broken"))
    weights = load_file(folder / "model.safetensors")
    name = next(n for n in weights if n.endswith("layers.2.self_attn.v_proj.weight"))
    weights[name][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    words = ("--model", str(folder), "--setting", "text", "--stories", "20")
    code = command(*words, "--out", str(tmp_path / "run"))
    assert isinstance(code, str) and "item 'story-" in code and "at layer 2" in code


def test_interrupt_says_how_to_go_on(monkeypatch, tmp_path, capsys) -> None:
    def interrupted(config) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "run", interrupted)
    assert command("--out", str(tmp_path / "run")) == 130
    assert str(tmp_path / "run") in capsys.readouterr().err
