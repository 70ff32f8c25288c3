"""The pages in a browser: their figures are drawn, and no word of a run acts."""

from __future__ import annotations

import pytest

from sally_anne.figures.report import write_index, write_report
from tests.e2e.browser import chromium, complaints, open_page  # noqa: F401
from tests.figures.test_heatmap import scanned
from tests.figures.test_report import HOSTILE, evaluation, swept, with_prompts
from tests.made_run import CONFIG, make_run  # noqa: F401

pytestmark = pytest.mark.e2e


def test_a_probing_page_draws_its_heads_and_switches_its_map(make_run, chromium) -> None:  # noqa: F811
    run = make_run(config=CONFIG | {"model": HOSTILE})
    scanned(run.heads).to_parquet(run.folder / "heads.parquet")
    with_prompts(run, HOSTILE + "{}")
    open_page(chromium, write_report(run.folder))
    assert chromium.title == f"Heads of {HOSTILE}"
    maps = chromium.find_elements("css selector", "table.map")
    assert [one.is_displayed() for one in maps] == [True, True, *[False] * 5]
    chromium.find_elements("css selector", ".tabs > label")[1].click()
    assert [one.is_displayed() for one in maps] == [False, False, True, True, *[False] * 3]
    heads = chromium.find_elements("css selector", "details[name=head]")
    assert [head.get_attribute("open") for head in heads] == ["true", *[None] * 5]
    heads[1].find_element("css selector", "summary").click()
    assert [head.get_attribute("open") for head in heads][:2] == [None, "true"]
    assert complaints(chromium) == []


def test_all_other_pages_draw_their_figures(make_run, chromium, tmp_path) -> None:  # noqa: F811
    folders = [make_run(name=name).folder for name in ("one", "two")]
    folders += [evaluation(tmp_path / "three"), swept(tmp_path / "four")]
    write_index(folders)
    for folder in (tmp_path, *folders[2:]):
        open_page(chromium, folder / "report.html")
        assert complaints(chromium) == []
