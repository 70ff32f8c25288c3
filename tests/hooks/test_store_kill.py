from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sally_anne.hooks.store import ActivationStore

pytestmark = pytest.mark.integration

KILLS = 50
SCRIPT = Path(__file__).with_name("store_killer.py")
ROOT = Path(__file__).parents[2]


def contents(path: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in path.rglob("*")
    }


def test_fifty_kills_leave_the_same_bytes(tmp_path):
    """Killed with SIGKILL at any moment and resumed, a store ends up as if nothing had happened."""
    result = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), str(KILLS)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    survived = json.loads(result.stdout.splitlines()[-1])
    assert sum(survived) >= KILLS
    assert max(survived) > 1, "no store was killed more than once"

    reference = contents(tmp_path / "reference")
    assert "manifest.json" in reference and "journal" not in reference
    for number in range(len(survived)):
        store = tmp_path / f"killed-{number}"
        assert contents(store) == reference
        ActivationStore.open(store).verify()
