"""Wrong calls, replaced files and files that the system refuses end every command in one line.

They stand beside the made-up run that they are about; nothing here loads a model's weights.
"""

from __future__ import annotations

import builtins
import errno
import importlib
import io
import shutil
import sys
from pathlib import Path

import pytest

from sally_anne.core.errors import SallyAnneError
from sally_anne.figures import heatmap, kde
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.fit import fit_vector

pytestmark = pytest.mark.integration


def said_by(monkeypatch: pytest.MonkeyPatch, module: str, words: list[str]) -> str:
    """What a command ends with, run in this process."""
    monkeypatch.setattr(sys, "argv", [module, *words])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main()
    assert isinstance(ended.value.code, str), ended.value.code
    assert ended.value.code.startswith("error: ")
    return ended.value.code


# FILE is a text file, FOLDER an empty folder, RUN a finished probing run, OUT is not there yet.
CALLS = [
    ("sally_anne.probing.run", "--c inf", "--c must be finite, got inf"),
    ("sally_anne.probing.run", "--c -1", "--c must be positive, got -1.0"),
    ("sally_anne.probing.run", "--max-iter 0", "--max-iter must be at least 1, got 0"),
    (
        "sally_anne.probing.run",
        "--split-seed -1",
        "--split-seed must be from 0 to 4294967295, got -1",
    ),
    ("sally_anne.probing.run", "--stories -5", "--stories must be at least 1, got -5"),
    ("sally_anne.probing.run", "--batch-size 0", "--batch-size must be at least 1, got 0"),
    ("sally_anne.probing.run", "--model FILE --out OUT", "unknown model"),
    ("sally_anne.probing.run", "--model FOLDER --out OUT", "has no config.json"),
    ("sally_anne.probing.run", "--data FILE --out OUT", "FILE"),
    ("sally_anne.probing.run", "--data FOLDER --out OUT", "FOLDER"),
    ("sally_anne.probing.run", "--out FILE", "it is a file"),
    ("sally_anne.harness.run", "--limit 0", "--limit must be at least 1, got 0"),
    ("sally_anne.harness.run", "--alpha nan --steer FOLDER", "--alpha must be finite, got nan"),
    ("sally_anne.harness.run", "--max-new-tokens 0", "--max-new-tokens must be at least 1, got 0"),
    ("sally_anne.harness.run", "--data-seed 4294967296", "--data-seed must be from 0 to"),
    ("sally_anne.harness.run", "--steer FILE --out OUT", "FILE is damaged or another kind of file"),
    ("sally_anne.harness.run", "--steer FOLDER --out OUT", "vector.safetensors is missing"),
    ("sally_anne.harness.run", "--steer nowhere --out OUT", "nowhere is missing"),
    ("sally_anne.harness.run", "--data FILE --out OUT", "FILE"),
    ("sally_anne.harness.run", "--out FILE", "FILE"),
    (
        "sally_anne.steering.sweep",
        "--decode-batch-size 0",
        "--decode-batch-size must be at least 1, got 0",
    ),
    ("sally_anne.steering.sweep", "--seed -1", "--seed must be from 0 to 4294967295, got -1"),
    ("sally_anne.steering.sweep", "--K 4 0", "--K must be at least 1, got 0"),
    ("sally_anne.steering.sweep", "--alpha 1 inf", "--alpha must be finite, got inf"),
    ("sally_anne.steering.run", "--run RUN --K 999 --alpha 1 --out OUT", "999"),
    (
        "sally_anne.steering.run",
        "--run RUN --K 0 --alpha 1 --out OUT",
        "--K must be at least 1, got 0",
    ),
    ("sally_anne.steering.run", "--run RUN --K 2 --alpha inf --out OUT", "--alpha must be finite"),
    ("sally_anne.steering.run", "--run RUN --K 2 --alpha 1 --seed -1", "--seed must be from 0 to"),
    ("sally_anne.steering.run", "--run FILE --K 2 --alpha 1 --out OUT", "FILE"),
    ("sally_anne.steering.run", "--run FOLDER --K 2 --alpha 1 --out OUT", "config.json is missing"),
    ("sally_anne.steering.run", "--run RUN --K 2 --alpha 1 --out FILE", "FILE"),
    ("sally_anne.steering.run", "--sweep FILE --out OUT", "FILE"),
    ("sally_anne.steering.run", "--sweep FOLDER --out OUT", "results.json is missing"),
    (
        "sally_anne.steering.bake",
        "--vector FILE --out OUT",
        "FILE is damaged or another kind of file",
    ),
    ("sally_anne.steering.bake", "--vector FOLDER --out OUT", "vector.safetensors is missing"),
    ("sally_anne.steering.side_effects", "--vector FILE --out OUT", "FILE is damaged"),
    (
        "sally_anne.steering.side_effects",
        "--vector FOLDER --prompts FOLDER --out OUT",
        "not a file but a f",
    ),
    (
        "sally_anne.steering.side_effects",
        "--vector FOLDER --batch-size 0",
        "--batch-size must be at least 1",
    ),
    ("sally_anne.figures.heatmap", "FILE", "no run folder at FILE"),
    ("sally_anne.figures.heatmap", "FOLDER", "config.json is missing"),
    ("sally_anne.figures.kde", "RUN --layer -1", "--layer must be at least 0, got -1"),
    ("sally_anne.figures.kde", "RUN --layer 999 --head 0 --out OUT", "999"),
    ("sally_anne.figures.sweep", "FOLDER", "sweep.parquet is missing"),
    ("bench.probes", "--threads 0", "--threads must be at least 1, got 0"),
    ("bench.sweep", "--rows 0", "--rows must be at least 1, got 0"),
    ("bench.scaling", "--repeats 0", "--repeats must be at least 1, got 0"),
    (
        "sally_anne.experiments.train_tiny.config",
        "--family qwen2-vl --mixing-steps -1",
        "--mixing-steps must be at least 0",
    ),
    (
        "sally_anne.data.gridtom.build",
        "--seed -1",
        "--seed must be from 0 to 4294967295, got -1",
    ),
    ("sally_anne.data.gridtom.build", "--stories 1 --out FILE", "FILE"),
]


@pytest.mark.parametrize(("module", "call", "message"), CALLS)
def test_wrong_calls(module, call, message, made, tmp_path, monkeypatch) -> None:
    places = {name: tmp_path / name for name in ("FILE", "FOLDER", "OUT")} | {"RUN": made.folder}
    places["FILE"].write_text("hello\n" * 20)
    places["FOLDER"].mkdir()
    monkeypatch.chdir(tmp_path)
    words = [str(places.get(word, word)) for word in call.split()]
    said = said_by(monkeypatch, module, words)
    for name, place in places.items():
        message = message.replace(name, str(place))
    assert message in said
    assert not places["OUT"].exists()
    assert places["FILE"].read_text() == "hello\n" * 20


FILES = ("config.json", "heads.parquet", "probes.safetensors", "activations/manifest.json")
FILES += ("activations/items.parquet", "activations/shard-00001.safetensors")
REPLACED = ("nothing", "empty", "text", "folder", "cut", "another", "nowhere")
CONSUMERS = {
    "sally_anne.steering.fit": lambda run: fit_vector(run, 3),
    "sally_anne.figures.heatmap": lambda run: heatmap.draw(heatmap.HeatmapConfig(run)),
    "sally_anne.figures.kde": lambda run: kde.draw(kde.KdeConfig(run)),
}
NEEDED = {
    "sally_anne.steering.fit": FILES,
    "sally_anne.figures.heatmap": (*FILES[:2], *FILES[3:5]),
    "sally_anne.figures.kde": FILES,
}


@pytest.fixture
def run(made, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.folder, tmp_path / "run"))


def replace(run: Path, name: str, by: str) -> None:
    path, whole = run / name, (run / name).read_bytes()
    other = (run / FILES[FILES.index(name) - 1]).read_bytes()
    path.unlink()
    if by == "folder":
        path.mkdir()
    elif by == "nowhere":
        path.symlink_to(run / "not there")
    elif by != "nothing":
        content = {"empty": b"", "text": b"hello\n" * 9, "cut": whole[: len(whole) // 2]}
        path.write_bytes(content.get(by, other))


@pytest.mark.parametrize("by", REPLACED)
@pytest.mark.parametrize("name", FILES)
def test_replaced_files_are_named(name, by, run, numbers_only) -> None:
    replace(run, name, by)
    for consumer, consume in CONSUMERS.items():
        if name in NEEDED[consumer]:
            with pytest.raises(SallyAnneError) as caught:
                consume(run)
            assert str(run) in str(caught.value), (consumer, str(caught.value))
            if by == "folder":
                assert "delete" not in str(caught.value).lower()


@pytest.fixture
def numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take long, and are not what this is about."""
    monkeypatch.setattr("sally_anne.figures.style._picture", lambda *_: b"")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("name", FILES)
def test_refused_files_are_not_called_damaged(name, number, run, numbers_only, monkeypatch) -> None:
    """The superuser may read everything, so the refusal is planted."""
    plain = io.open

    def opened(file, *args, **kwargs):
        if isinstance(file, str | Path) and Path(file) == run / name:
            raise OSError(number, "not now", str(file))
        return plain(file, *args, **kwargs)

    for place in (builtins, io):
        monkeypatch.setattr(place, "open", opened)
    for consumer, consume in CONSUMERS.items():
        if name in NEEDED[consumer]:
            with pytest.raises(SallyAnneError) as caught:
                consume(run)
            said = str(caught.value)
            assert f"{run / name} cannot be read (not now)" in said, consumer
            assert "delete" not in said.lower() and "again" not in said


@pytest.mark.parametrize("by", ["empty", "text", "folder", "cut"])
def test_replaced_vectors_are_named(by, made, tmp_path) -> None:
    path = fit_vector(made.folder, 3).save(tmp_path / "vector") / "vector.safetensors"
    whole = path.read_bytes()
    path.unlink()
    if by == "folder":
        path.mkdir()
    else:
        path.write_bytes({"empty": b"", "text": b"hello", "cut": whole[:-9]}[by])
    for given in (path, path.parent):
        with pytest.raises(SallyAnneError, match="vector.safetensors is ") as caught:
            SteeringVector.load(given)
        assert ("delete" in str(caught.value)) == (by != "folder")
