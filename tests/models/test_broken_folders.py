"""A model folder with a broken file or number ends in one of our errors, which names the model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sally_anne.core.errors import SallyAnneError
from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.loading import load_model
from sally_anne.models.options import CATALOGUE
from sally_anne.models.prompts import encode, reply_prompt

pytestmark = pytest.mark.integration

SOURCE = Path(CATALOGUE["tiny-qwen2-vl"].source)
FILES = ("config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json")
FILES += ("generation_config.json", "chat_template.jinja", "model.safetensors")
CONTENTS: dict[str, bytes | None] = {
    "empty": b"",
    "text": b"hello",
    "object": b"{}",
    "list": b"[]",
    "bytes": b"\xff\xfe\x00" * 50,
    "folder": None,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    for name in FILES:
        shutil.copy(SOURCE / name, made / name)
    return made


def ends_plainly(folder: Path) -> str | None:
    """What is said, None if all goes well (not every file is needed)."""
    try:
        loaded = load_model(str(folder))
        find_geometry(loaded.skeleton)
        assert loaded.processor_hash
        loaded.model(**encode(loaded, [reply_prompt(loaded, "Where is Ann?", False)], None))
    except SallyAnneError as error:
        return str(error)
    return None


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_replaced(folder, name, content) -> None:
    (folder / name).unlink()
    data = CONTENTS[content]
    (folder / name).mkdir() if data is None else (folder / name).write_bytes(data)
    said = ends_plainly(folder)
    assert said is None or str(folder) in said
    if name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert said is not None


@pytest.mark.parametrize("template", ["{% for x in %}", "{{ 1 / 0 }}", "{{ messages[7].role.x }}"])
def test_a_template_that_cannot_be_used(folder, template) -> None:
    (folder / "chat_template.jinja").write_text(template)
    said = ends_plainly(folder)
    assert said is not None and "chat template cannot be used" in said and str(folder) in said
