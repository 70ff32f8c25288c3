"""The report page, clicked through in a browser."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from figures.report import write_report
from tests.e2e.browser import choose, chromium, click_cell, complaints, open_page, text_of  # noqa: F401
from tests.made_run import CONFIG, make_run  # noqa: F401

pytestmark = pytest.mark.e2e

LARGEST, LONGEST = 25_000_000, 3.0  # bytes; seconds


def asked(run) -> None:
    """Add a null and a causal scan to a made run: layer 4, head 3 is used, and three others."""
    heads, count = run.heads.copy(), len(run.heads)
    for label in ("y_p", "y_o"):
        heads[f"{label}_threshold"] = 0.7
        heads[f"{label}_p_family"] = np.where(heads[f"{label}_validation_accuracy"] > 0.7, 0.01, 1)
        heads[f"{label}_selectivity"] = 0.1
    share = np.where(heads["layer"] * 8 + heads["head"] == 35, 0.6, 0.0)
    share[:3] = 0.2
    for name, by in (("", 0), ("_low", -0.05), ("_high", 0.05)):
        heads[f"question_patch{name}"] = share + by
    heads["question_verdict"] = np.where(share > 0.05 + 1 / count, "readable and used", "not used")
    heads.to_parquet(run.folder / "heads.parquet")
    table = pd.DataFrame({"item_id": run.items["item_id"], "text": "the red agent <b>looks</b> ."})
    table.to_parquet(run.folder / "prompts.parquet")


def test_a_head_is_clicked_and_its_panel_read(make_run, chromium) -> None:  # noqa: F811
    run = make_run(config=CONFIG | {"model": "<img src=x onerror='document.title=1'>"})
    asked(run)
    open_page(chromium, write_report(run.folder))
    assert chromium.title == "Heads of <img src=x onerror='document.title=1'>"
    assert text_of(chromium, "panel-title") == "Layer 4, head 3: rank 1 of 48 by Y_p (protagonist)"
    click_cell(chromium, "map", 6, 1)
    row = run.heads[(run.heads["layer"] == 1) & (run.heads["head"] == 6)].iloc[0]
    rank = int(row["y_p_rank"])
    assert text_of(chromium, "panel-title").startswith(f"Layer 1, head 6: rank {rank} of 48")
    assert f"{row['y_p_test_accuracy']:.3f}" in text_of(chromium, "panel-numbers")
    assert text_of(chromium, "status").startswith("layer 1, head 6: validation accuracy of Y_p")
    # Confusion is of all held-out samples, and its diagonal of those that the probe tells.
    cells = chromium.find_elements("css selector", "#confusion td.right")
    parts = row["y_p_validation_accuracy"] * 40 + row["y_p_test_accuracy"] * 60
    assert sum(int(cell.text) for cell in cells) == round(parts)
    choose(chromium, "shown", "test")
    assert "test samples (all 60)" in text_of(chromium, "confusion")
    summary = chromium.find_element("css selector", "#samples summary")
    chromium.execute_script("arguments[0].click()", summary)
    assert "the red agent <b>looks</b> ." in text_of(chromium, "samples")
    # The other label has other numbers, on the map and in the panel.
    chromium.find_element("id", "label-1").click()
    assert "by Y_o (omniscient)" in text_of(chromium, "panel-title")
    words = chromium.find_element("id", "map").get_attribute("aria-label")
    assert "validation accuracy of Y_o" in words
    assert "heads are above the null" in words
    choose(chromium, "measure", "question")
    words = chromium.find_element("id", "map").get_attribute("aria-label")
    assert "Highest: 0.60 at layer 4, head 3. 4 of 48 heads are used." in words
    chromium.find_element("id", "theme").click()
    assert complaints(chromium) == []


def test_the_map_is_walked_by_keys(make_run, chromium) -> None:  # noqa: F811
    from selenium.webdriver.common.keys import Keys

    open_page(chromium, write_report(make_run().folder))
    plot = chromium.find_element("id", "map")
    plot.send_keys(Keys.ARROW_UP, Keys.ARROW_RIGHT)
    assert text_of(chromium, "status").startswith("layer 3, head 4")
    plot.send_keys(Keys.ENTER)
    assert text_of(chromium, "panel-title").startswith("Layer 3, head 4")
    for name in ("map", "kde", "clusters", "ranks"):
        assert len(chromium.find_element("id", name).get_attribute("aria-label")) > 40
    assert complaints(chromium) == []


def test_a_large_run_opens_at_once(make_run, chromium) -> None:  # noqa: F811
    groups = {"train": 50, "validation": 25, "test": 75}
    run = make_run(layers=32, heads=32, groups=groups, strength=np.full((32, 32), 0.5))
    table = pd.DataFrame({"item_id": run.items["item_id"]})
    table["text"] = [f"{name} " + "the agent walks . " * 80 for name in table["item_id"]]
    table.to_parquet(run.folder / "prompts.parquet")
    page = write_report(run.folder)
    assert len(run.items) == 600 and page.stat().st_size <= LARGEST
    begun = time.monotonic()
    open_page(chromium, page)
    chromium.find_element("css selector", "#ranks .main-svg")
    taken = time.monotonic() - begun
    print(json.dumps({"seconds": taken, "bytes": page.stat().st_size}))
    assert taken <= LONGEST
    click_cell(chromium, "map", 31, 31)
    assert text_of(chromium, "panel-title").startswith("Layer 31, head 31")
    assert complaints(chromium) == []


def test_the_report_command_writes_the_page(make_run, capsys) -> None:  # noqa: F811
    from sally_anne.__main__ import main

    run = make_run(layers=2, heads=2)
    main(["report", str(run.folder)])
    assert Path(capsys.readouterr().out.strip()) == run.folder / "report.html"
