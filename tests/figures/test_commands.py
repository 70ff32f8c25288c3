"""The commands, the function that draws all, and what importing them costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

from sally_anne import figures
from sally_anne.figures import clusters, heatmap, kde

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2] / "src"
EXPECTED = ["heatmap", "heatmap_test", "kde", "kde_y_o", "clusters"]


def python(*arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=env, check=False
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_draw_all_writes_every_figure_and_touches_no_global_state(run) -> None:
    before = dict(matplotlib.rcParams)
    paths = figures.draw_all(run.folder)
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == []
    assert [path.name for path in paths] == [
        f"{name}.{suffix}" for name in EXPECTED for suffix in ("png", "pdf", "parquet")
    ]
    assert {path.parent for path in paths} == {run.folder / "figures"}
    assert set(contents(run.folder / "figures")) == {path.name for path in paths}


def test_another_process_with_another_hash_seed_gives_equal_bytes(run) -> None:
    kde.draw(kde.KdeConfig(run.folder))
    here = contents(run.folder / "figures")
    done = python("-m", "sally_anne.figures.kde", str(run.folder), seed="12345")
    assert done.returncode == 0, done.stderr
    assert contents(run.folder / "figures") == here


def test_without_test_samples_only_the_test_heatmap_is_left_out(make_run, numbers_only) -> None:
    run = make_run(layers=2, heads=2, groups={"train": 12, "validation": 6})
    names = {path.stem for path in figures.draw_all(run.folder)}
    assert names == set(EXPECTED) - {"heatmap_test"}


@pytest.mark.parametrize(
    ("module", "config"),
    [
        (heatmap, heatmap.HeatmapConfig),
        (kde, kde.KdeConfig),
        (clusters, clusters.ClustersConfig),
    ],
)
def test_a_command_prints_the_paths_it_wrote_and_writes_equal_bytes_again(
    run, tmp_path, capsys, module, config
) -> None:
    out = tmp_path / "elsewhere"
    module.main([str(run.folder), "--split", "validation", "--out", str(out)])
    printed = capsys.readouterr().out.splitlines()
    assert [Path(line).suffix for line in printed] == [".png", ".pdf", ".parquet"]
    assert {Path(line).parent for line in printed} == {out}
    assert all(Path(line).stat().st_size > 0 for line in printed)
    assert not (run.folder / "figures").exists()
    module.draw(config(run.folder, split="validation"))
    assert contents(run.folder / "figures") == contents(out)


def test_an_error_is_one_line_and_status_1(run) -> None:
    (run.folder / "heads.parquet").unlink()
    done = python("-m", "sally_anne.figures.heatmap", str(run.folder))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"error: {run.folder / 'heads.parquet'} is missing; `sally-anne probe` makes it\n"
    )


@pytest.mark.parametrize("name", ["heatmap", "kde", "clusters"])
def test_help_names_the_command_and_loads_nothing_heavy(name) -> None:
    code = (
        f"import sys; sys.argv = ['x', '--help']\nimport figures.{name} as m\n"
        "try: m.main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'matplotlib', 'seaborn', 'sklearn'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert f"usage: sally-anne {name} " in done.stdout
    assert "RUN" in done.stdout and "--split" in done.stdout


def test_the_room_imports_no_room_above_hooks() -> None:
    above = ("probing", "steering", "experiments", "sally_anne")
    for path in Path(figures.__file__).parent.glob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            # Numbers from a table of answers, and stories as plain data; no model is near.
            allowed = ("sally_anne.core", "sally_anne.harness.correlations")
            if path.name.startswith("story"):
                allowed += ("sally_anne.data.gridtom",)
            if words[:1] not in (["import"], ["from"]):
                continue
            if not words[1].startswith(allowed):
                assert words[1].split(".")[0] not in above, f"{path.name}: {line}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="draw_none"):
        _ = figures.draw_none
