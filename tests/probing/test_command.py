"""``sally-anne probe``: help, and what it says when it cannot go on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from sally_anne.cli import main
from sally_anne.probing import pipeline

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "minigrid", "sklearn", "pandas", "scipy", "matplotlib")
HEAVY += ("nnsight", "transformer_lens")


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> str | int | None:
    """Run the command line in this process; what it exits with."""
    with pytest.raises(SystemExit) as ended:
        main(["probe", *words])
    return ended.value.code


def test_help_is_light() -> None:
    code = (
        "import sys\n"
        "from sally_anne.cli import main\n"
        "try:\n    main(['probe', '--help'])\n"
        "except SystemExit as ended:\n    assert not ended.code\n"
        f"print('HEAVY', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "HEAVY []" in done.stdout
    for option in ("--model", "--order", "--contrast", "--setting", "--site", "--stories", "--out"):
        assert option in done.stdout
    assert "inverse strength of the probes' penalty" in done.stdout


def test_a_failing_command_prints_one_message_and_no_traceback(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sally_anne.probing.run", "--data", str(tmp_path / "none")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1
    assert str(tmp_path / "none") in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "no-such-model"), "unknown model 'no-such-model'"),
        (("--stories", "0"), "--stories must be at least 1, got 0"),
        (("--stories", "3"), "--stories 3 is too few"),
        (("--stories", "700"), "--stories 700 is more than the 631"),
        (("--batch-size", "0"), "--batch-size must be at least 1"),
        (("--c", "0"), "--c must be positive"),
    ],
)
def test_bad_options_are_named(monkeypatch, tmp_path, words, said: str) -> None:
    out = tmp_path / "run"
    stories = () if "--stories" in words else ("--stories", "20")
    code = command(monkeypatch, *words, *stories, "--out", str(out))
    assert isinstance(code, str) and code.startswith("error: ") and said in code
    assert not out.exists()


def test_run_folder_that_cannot_be_made(monkeypatch, tmp_path, model_folder) -> None:
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "run")
    code = command(monkeypatch, "--model", str(model_folder), "--stories", "20", "--out", out)
    assert isinstance(code, str) and f"{out} cannot be made" in code and "--out" in code


def test_weights_that_are_not_numbers(monkeypatch, tmp_path, model_folder) -> None:
    folder = Path(shutil.copytree(model_folder, tmp_path / "broken"))
    weights = load_file(folder / "model.safetensors")
    name = next(n for n in weights if n.endswith("layers.2.self_attn.v_proj.weight"))
    weights[name][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    words = ("--model", str(folder), "--setting", "text", "--stories", "20")
    code = command(monkeypatch, *words, "--out", str(tmp_path / "run"))
    assert isinstance(code, str) and code.startswith("error: activations of ")
    assert "item 'story-" in code and "/first' at layer 2" in code


def test_interrupt_says_how_to_go_on(monkeypatch, tmp_path, capsys) -> None:
    def interrupted(config, draw) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "run", interrupted)
    assert command(monkeypatch, "--out", str(tmp_path / "run")) == 130
    said = capsys.readouterr().err
    assert "stopped" in said and str(tmp_path / "run") in said
