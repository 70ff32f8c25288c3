"""The commands of README and docs, run as a reader would."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from sally_anne.cli import main
from sally_anne.core.run import Run
from sally_anne.hooks.vector import SteeringVector
from tests.e2e.test_pages import assert_shown

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
DOCS = ROOT / "docs"
FIRST_PAGE = (DOCS / "index.md").read_text()
MODEL = "tiny-qwen2-vl"
# Least test accuracy of the best Y_p head, and normalised effect of the eight heads that few
# validation pairs ranked first.
FLOOR, EFFECT = 0.95, 0.8
Said = Callable[..., str]
RUN_FILES = ("config.json", "heads.parquet", "probes.safetensors", "activations/index.json")


def undocumented(table: pd.DataFrame) -> list[str]:
    """Columns that the page of files does not explain."""
    page = (DOCS / "files.md").read_text()
    names = {name: re.sub(r"^y_[po]_", "LABEL_", name) for name in table}
    names = {own: re.sub(r"^(question|statement)_", "KIND_", name) for own, name in names.items()}
    return [own for own, name in names.items() if f"`{name}`" not in page]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Said:
    """``said(*words)``: what a command prints, in this process, where the libraries are loaded."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str | Path) -> str:
        capsys.readouterr()
        main(list(map(str, words)))
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The main job on the default model, with all 631 stories, few pairs and random sets."""
    folder = tmp_path_factory.mktemp("run") / MODEL
    done = subprocess.run(
        [sys.executable, "-m", "sally_anne.probing.run", *main_job(folder)],
        env=os.environ | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.partition("Y_p: does the")[2].splitlines()) <= 25
    assert done.stdout.splitlines()[-1] == f"report: {folder / 'report.html'}"
    # What the site's first page shows of it, as far as the number of pairs plays no part.
    shown, _, _ = FIRST_PAGE.partition("```text\n")[2].partition("Share of the answer")
    assert_shown(shown, done.stdout)
    return folder


def main_job(folder: Path) -> list[str]:
    few = ["--pairs", "12", "--validation-pairs", "8", "--random-sets", "30"]
    return ["--model", folder.name, "--out", str(folder), *few]


def test_main_job_finds_belief_heads(run_folder: Path) -> None:
    heads = pd.read_parquet(run_folder / "heads.parquet")
    best = heads.loc[heads["y_p_rank"].idxmin()]
    assert best["y_p_test_accuracy"] >= FLOOR
    assert undocumented(heads) == []
    assert heads.loc[heads["layer"] == 0, "y_p_test_accuracy"].median() <= 0.65
    saved = json.loads((run_folder / "results.json").read_text())
    assert saved["results"]["stories"] == {"test": 500, "train": 86, "validation": 45}
    assert all((run_folder / name).exists() for name in RUN_FILES)
    # Readable, not used: what moves the answer is not what is read best.
    sets = pd.DataFrame(json.loads((run_folder / "patching.json").read_text())["question"]["sets"])
    eight = sets[sets["k"] == 8].set_index("by")
    patched, probed = eight.loc["patching"], eight.loc["y_p"]
    assert patched["effect"] >= EFFECT and probed["effect"] < patched["effect"] / 2
    assert patched["low"] > patched["random_high"] > probed["effect"]
    assert {p.suffix for p in (run_folder / "figures").iterdir()} == {".png", ".pdf", ".parquet"}


def test_second_run_computes_nothing_again(run_folder: Path, said: Said) -> None:
    before = {p: p.stat().st_mtime_ns for p in run_folder.rglob("*") if p.is_file()}
    said("probe", *main_job(run_folder))
    after = {p: p.stat().st_mtime_ns for p in run_folder.rglob("*") if p.is_file()}
    after = {p: t for p, t in after.items() if p.name != ".lock"}
    assert {p: t for p, t in before.items() if p.name != ".lock"} == after


def test_figure_commands(run_folder: Path, tmp_path: Path, said: Said) -> None:
    page = (DOCS / "probing.md").read_text()
    lines = re.findall(r"^sally-anne figures RUN(.*)$", page, re.MULTILINE)
    assert len(lines) == 3
    for rest in lines:
        said("figures", run_folder, *rest.split(), "--out", tmp_path)
    assert len(list(tmp_path.glob("*.png"))) >= 3


def test_steering_commands(run_folder: Path, tmp_path: Path, said: Said) -> None:
    names = ("my-vector", "sweep", "baked", "eval", "baked-eval")
    vector, swept, baked, asked, again = (tmp_path / name for name in names)
    few = ("--limit", "16", "--K", "4", "8", "--alpha", "2")
    controls = ("--control-stories", "8", "--leave-out", "1")
    steps: tuple[tuple[str | Path, ...], ...] = (
        ("sweep", "--model", MODEL, "--run", run_folder, "--out", swept, *few, *controls),
        ("steer", "--sweep", swept, "--out", vector),
        ("evaluate", "--model", MODEL, "--steer", vector, "--limit", "4", "--out", asked),
        ("bake", "--model", MODEL, "--vector", vector, "--out", baked),
        ("evaluate", "--model", baked, "--limit", "2", "--setting", "text", "--out", again),
        ("figures", swept, "--out", tmp_path / "pictures"),
    )
    page = (DOCS / "steering.md").read_text()
    for name, *options in steps:
        assert f"sally-anne {name}" in page
        printed = said(name, *options)
        if name == "sweep":
            next_command = printed.splitlines()[-1].removeprefix("next: ")
    # The sweep's last line is a command that steers by what was chosen.
    said(*shlex.split(next_command)[1:], "--limit", "2", "--out", tmp_path / "next")
    assert len(pd.read_parquet(tmp_path / "next" / "answers.parquet")) == 4
    assert len(pd.read_parquet(asked / "answers.parquet")) == 8
    sweep = pd.read_parquet(swept / "sweep.parquet")
    assert undocumented(sweep) == []
    assert undocumented(pd.read_parquet(swept / "answers.parquet")) == []
    validation = sweep[sweep["split"] == "validation"]
    assert set(validation["direction"]) == {"none", "logistic", "random", "random_heads"}
    assert (tmp_path / "pictures" / "sweep.png").exists()
    found = json.loads((swept / "results.json").read_text())
    steered = next(iter(found["test"].values()))["difference"]["Both"]
    specific = found["control_rank"]
    assert specific["of"] == 41 and specific["stories"] == 8
    # The probed heads' steps are compared with random ones of their length.
    for kind in specific["kinds"].values():
        assert kind["n"] == 20 and kind["low"] <= kind["value"] <= kind["high"]
    assert specific["beats_controls"] == (specific["rank"] == 1)
    assert steered["value"] >= 0.2 and steered["low"] > 0
    assert all(kind["value"] < steered["value"] for kind in specific["kinds"].values())


def test_first_command_of_the_readme_is_the_main_job() -> None:
    block = re.search(r"```sh\n(.*?)```", README, re.DOTALL)
    assert block and block.group(1).strip().endswith("pip install . && python -m probing.run")
    assert len(README.split()) <= 700


def test_build_command(tmp_path: Path, said: Said) -> None:
    assert "sally-anne build --out DIR" in (DOCS / "stories.md").read_text()
    said("build", "--out", tmp_path / "g", "--stories", "2")
    lines = (tmp_path / "g" / "info.json").read_text().splitlines()
    assert len(lines) == 2
    assert list((tmp_path / "g").rglob("fps3.mp4"))


SENTENCES = ROOT / "docs" / "examples" / "sentences.jsonl"


def test_sentences_become_a_heatmap_densities_and_a_vector(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = said("probe", "--samples", SENTENCES, "--out", "run")
    assert "40 groups, 80 samples" in printed
    assert "does not know" not in printed
    words = " ".join(printed.split())
    assert "room: best head L" in words and "chance 0.1" in words
    run = Run.open(tmp_path / "run")
    assert run.labels == ("fits", "room")
    assert run.saved["labels"]["fits"] == [False, True] and "red" in run.saved["labels"]["room"]
    assert run.title[1] == "samples sentences.jsonl"
    splits = run.samples.groupby("group")["split"].nunique()
    assert (splits == 1).all() and len(splits) == 40
    heads = run.heads
    # At its end a sentence still says which room it named.
    assert heads.loc[heads["room_rank"] == 1, "room_test_accuracy"].item() > 0.5
    drawn = {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    assert {"heatmap.png", "kde.png", "kde_room.png"} <= drawn
    assert list(pd.read_parquet(tmp_path / "run" / "figures" / "kde.parquet"))[-3] == "fits"
    options = ("--run", "run", "--label", "fits", "--K", "4", "--alpha", "2", "--out", "vector")
    said("steer", *options)
    vector = SteeringVector.load(tmp_path / "vector")
    assert vector.k == 4 and vector.alpha == 2 and vector.fitted["label"] == "fits"
