"""The same seed gives the same bytes in any process and any year."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gridtom.export import info_line
from benchmarks.gridtom.records import generated
from benchmarks.gridtom.splits import assign

ROOT = Path(__file__).parents[3]
# The whole info.json of the default seed. Raise GENERATOR_VERSION with every change of it.
GOLDEN_METADATA = "1bc553db8aa18c0783bf5f1c576c75b346e94220f4db175e75df5eaa085a16df"
# Key frames of two stories in all versions and perspectives.
GOLDEN_FRAMES = "fc908b5a1dacd39a675dac38347d683e0baf480abf072a6b150f1919bcd04d89"

SCRIPT = """
import hashlib
from benchmarks.gridtom.export import info_line
from benchmarks.gridtom.records import generated
from benchmarks.gridtom.render import PERSPECTIVES
digest = hashlib.sha256()
for record in generated(stories=[3, 400]):
    digest.update(info_line(record, "test").encode())
    for case in record.versions:
        for perspective in PERSPECTIVES:
            digest.update(case.frames(perspective).tobytes())
print(digest.hexdigest())
"""


def test_metadata() -> None:
    split = assign()
    text = "".join(info_line(record, split[record.index]) for record in generated())
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN_METADATA


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_frames_in_a_fresh_process(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == GOLDEN_FRAMES
