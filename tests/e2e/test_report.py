"""The report page, clicked through in a browser."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sally_anne.data.gridtom.contrasts import Scene
from sally_anne.data.gridtom.stories import generated
from sally_anne.figures.report import write_report
from sally_anne.figures.report.frames import story_of, strip
from tests.e2e.browser import choose, chromium, click_cell, complaints, open_page, text_of, waited  # noqa: F401
from tests.figures.test_sweep import setting
from tests.figures.test_tables import KINDS, run_of
from tests.made_run import CONFIG, make_run  # noqa: F401

pytestmark = pytest.mark.e2e

LARGEST, LONGEST = 25_000_000, 3.0  # bytes; seconds of the processor
# What a page would give for download is kept instead, by the file's name.
KEEPING = """
    window.kept = {};
    let given;
    URL.createObjectURL = (blob) => { given = blob; return "blob:kept"; };
    HTMLAnchorElement.prototype.click = function () {
        window.kept[this.download] = given.text();
    };
"""


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
    chromium.execute_script(KEEPING)
    chromium.find_element("css selector", "#downloads button").click()
    written = pd.read_csv(io.StringIO(waited(chromium, "return window.kept['heads.csv']")))
    saved = pd.read_parquet(run.folder / "heads.parquet").drop(columns="question_verdict")
    saved = saved.sort_values(["layer", "head"], ignore_index=True)
    pd.testing.assert_frame_equal(written, saved, rtol=1e-4, check_dtype=False)
    assert complaints(chromium) == []


def test_a_listed_sample_shows_its_story(make_run, chromium, monkeypatch) -> None:  # noqa: F811
    told = generated(stories=[17])
    scene = Scene(told.story(17).case(1, "FB"), "omniscient")
    run = make_run(layers=2, heads=2)
    found = {"images": [strip(scene.frames())], "of": dict.fromkeys(run.items["item_id"], 0)}
    found["stories"] = {0: story_of(scene, told)}
    monkeypatch.setattr("sally_anne.figures.report.probing.strips_of", lambda *_: found)
    open_page(chromium, write_report(run.folder))
    opened = chromium.find_element("css selector", "#samples details")
    opened.find_element("css selector", "summary").send_keys("\n")
    said = [image.get_attribute("alt") for image in opened.find_elements("css selector", "img")]
    views = [words.partition(" of ")[0] for words in said]
    seen = ["what the protagonist perspective sees", "what the participant perspective sees"]
    assert views[1:] == seen and said[0].startswith("what the model was shown with ")
    rows = [row.text for row in opened.find_elements("css selector", "tr")]
    for (who, *places), row in zip(found["stories"][0]["beliefs"], rows[1:], strict=True):
        assert row.split() == [*who.split(), *places]
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
    # The page's own time on the processor: what else the machine does says nothing of the page.
    chromium.execute_cdp_cmd("Performance.enable", {})
    open_page(chromium, page)
    assert waited(chromium, "return document.querySelector('#ranks .main-svg') !== null")
    found = chromium.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    spent = next(metric["value"] for metric in found if metric["name"] == "ThreadTime")
    print(json.dumps({"seconds": spent, "bytes": page.stat().st_size}))
    assert 0 < spent <= LONGEST
    click_cell(chromium, "map", 31, 31)
    assert text_of(chromium, "panel-title").startswith("Layer 31, head 31")
    assert complaints(chromium) == []


def test_the_report_command_writes_the_page(make_run, capsys) -> None:  # noqa: F811
    from sally_anne.cli import main

    run = make_run(layers=2, heads=2)
    main(["report", str(run.folder)])
    assert Path(capsys.readouterr().out.strip()) == run.folder / "report.html"


def sweep_folder(tmp_path: Path) -> Path:
    """A sweep of 2 K and 4 alphas with its choice, controls, costs and replies."""
    folder = tmp_path / "sweep"
    folder.mkdir()
    rows = [r for k in (4, 8) for a in (-5.0, 0.5, 1.0, 5.0) for r in setting("logistic", k, a)]
    for control in ("random", "random_heads"):
        rows += [r for k in (4, 8) for a in (-5.0, 5.0) for r in setting(control, k, a)]
    plain = [r | {"cell": "baseline", "k": 0, "alpha": 0.0} for r in setting("none", 4, 0.0)]
    name = "logistic/K8/alpha5"
    side = {"split": "validation", "measure": "initial", "n": 30, "low": 0.8, "high": 1.0}
    cost = [plain[0] | side | {"value": 0.95}]
    cost += [row | side | {"value": 0.9} for row in setting("logistic", 8, 5.0)[:1]]
    # Tried before the chosen one.
    cost += [row | side | {"value": 0.5} for row in setting("logistic", 8, 1.0)[:1]]
    test = [r | {"split": "test"} for r in (*plain, *setting("logistic", 8, 5.0))]
    drawn = [(n, row) for n, k in enumerate((4, 8)) for row in setting("random", k, 5.0)]
    test += [row | {"split": "test", "cell": f"random/draw{n}"} for n, row in drawn]
    pd.DataFrame([*plain, *rows, *cost, *test]).to_parquet(folder / "sweep.parquet")
    said = [("baseline", "none", 0, 0.0, "red"), (name, "logistic", 8, 5.0, "<b>blue</b>")]
    answers = pd.DataFrame(
        {
            **{"item_id": f"s{n}/TB", "story": f"s{n}", "condition": "TB", "split": "validation"},
            **{"answer": "blue", "reply": reply, "robust_correct": "blue" in reply},
            **{"cell": cell, "direction": way, "heads": "probe", "k": k, "alpha": alpha},
        }
        for cell, way, k, alpha, reply in said
        for n in range(9)
    )
    answers.to_parquet(folder / "answers.parquet")
    chosen = {"direction": "logistic", "k": 8, "alpha": 5.0, "heads": "probe", "name": name}
    gain = {"value": 0.11, "low": 0.02, "high": 0.2, "n": 60}
    draws = {kind: gain | {"value": -0.05, "n": 20} for kind in ("random", "random_heads")}
    saved = {
        "config": {"model": "tiny-qwen2-vl", "order": "1", "label": "y_p", "reader": "robust"},
        "chosen": chosen,
        "test": {name: {"difference": {"Both": gain}}},
        "specificity": {"kinds": draws, "rank": 1, "of": 41, "specific": True}
        | {"gain": 0.11, "stories": 60},
        "initial": {"validation": gain | {"value": -0.05}},
        "vector": "order1-K8",
    }
    (folder / "results.json").write_text(json.dumps(saved))
    return folder


def test_the_slider_of_a_sweep_is_moved(tmp_path: Path, chromium) -> None:  # noqa: F811
    from selenium.webdriver.common.keys import Keys

    open_page(chromium, write_report(sweep_folder(tmp_path)))
    words = text_of(chromium, "main") + chromium.find_element("css selector", "header").text
    assert "Steering 8 heads by 5 standard deviations takes Both from 37.0" in words
    assert "rank 1 of 41 among its controls: specific" in words
    assert "Cost, initial belief on validation stories: -5.0 [2.0, 20.0] points." in words
    status = "K = 8, alpha 5: Both 48.4 %, the chosen point"
    assert text_of(chromium, "status") == status
    assert "<b>blue</b>" in text_of(chromium, "replies")
    assert "Both, random heads" in text_of(chromium, "numbers")
    chromium.find_element("id", "alpha").send_keys(Keys.ARROW_LEFT)
    assert text_of(chromium, "alpha-said") == "1"
    assert text_of(chromium, "status").startswith("K = 8, alpha 1: Both")
    assert text_of(chromium, "status").endswith("%, but it costs too much")
    names = "return document.getElementById('curves').data.map((trace) => trace.name)"
    assert "better, but costs too much" in chromium.execute_script(names)
    chromium.find_element("id", "alpha").send_keys(Keys.HOME)
    assert text_of(chromium, "alpha-said") == "-5"
    choose(chromium, "setting", "0")
    assert text_of(chromium, "status").startswith("K = 4, alpha -5: Both")
    chromium.find_element("id", "chosen").click()
    assert text_of(chromium, "status") == status
    chromium.find_element("id", "theme").click()
    assert complaints(chromium) == []


def test_tables_of_a_comparison_are_sorted(tmp_path: Path, chromium) -> None:  # noqa: F811
    kind, found, _ = KINDS["localisation"]
    open_page(chromium, write_report(run_of(tmp_path / "bench", kind, found)))
    column = [cell.text for cell in chromium.find_elements("css selector", "td:nth-child(2)")]
    assert column == ["patching", "random"]
    headings = chromium.find_elements("css selector", "#table-0 th button")
    next(one for one in headings if one.text == "localiser").click()
    column = [cell.text for cell in chromium.find_elements("css selector", "td:nth-child(2)")]
    assert column == ["random", "patching"]
    assert text_of(chromium, "status") == "sorted by localiser, highest first"
    assert complaints(chromium) == []


def evaluation_folder(tmp_path: Path, name: str = "eval", both: float = 0.5, **options) -> Path:
    """An evaluation of 40 questions, half of them answered rightly, one not understood."""
    folder = tmp_path / name
    folder.mkdir()
    count = 40
    right = [n % 2 == 0 for n in range(count)]
    answers = {
        "item_id": [f"s{n}" for n in range(count)],
        "condition": ["TB", "FB"] * 20,
        "answer": ["blue"] * count,
        "reply": [f"<i>{'blue' if ok else 'red'}</i>" for ok in right],
        "robust_correct": right,
        "robust_invalid": [n == 1 for n in range(count)],
    }
    pd.DataFrame(answers).to_parquet(folder / "answers.parquet")
    values = {"TB": 0.9, "FB": both + 0.1, "Both": both, "invalid": 0.025}
    numbers = {
        m: {"value": v, "low": v - 0.02, "high": v + 0.02, "n": 20} for m, v in values.items()
    }
    saved = {
        "config": {"model": "tiny-qwen2-vl", "task": "gridtom", "order": "1", **options},
        "counts": {"asked": count, "hidden": 0, "cut": 3, "missing": 0},
        "results": {"robust": numbers},
    }
    (folder / "results.json").write_text(json.dumps(saved))
    return folder


def test_replies_of_an_evaluation_are_read(tmp_path: Path, chromium) -> None:  # noqa: F811
    open_page(chromium, write_report(evaluation_folder(tmp_path)))
    header = chromium.find_element("css selector", "header").text
    assert "Both 50.0 [48.0, 52.0] %, TB 90.0 [88.0, 92.0] %" in header
    assert "3 of 40 replies were cut" in header
    words = chromium.find_element("id", "measures").get_attribute("aria-label")
    assert "FB 60.0 [58.0, 62.0] of 20" in words
    assert "19 of 19 replies that are wrong" in text_of(chromium, "replies")
    choose(chromium, "reading", "right")
    assert "<i>blue</i>" in text_of(chromium, "replies")
    choose(chromium, "reading", "invalid")
    assert text_of(chromium, "replies").count("<i>") == 1
    assert complaints(chromium) == []


def test_an_index_sorts_runs_and_draws_differences(make_run, tmp_path, chromium) -> None:  # noqa: F811
    from sally_anne.cli import main

    strength = np.zeros((6, 8))
    strength[2, 5] = 3.0
    runs = [make_run(name="one").folder, make_run(name="two", strength=strength).folder]
    runs += [sweep_folder(tmp_path), evaluation_folder(tmp_path, "cot", 0.7)]
    runs += [evaluation_folder(tmp_path, "<b>plain &amp;", 0.3)]
    main(["report", *map(str, runs)])
    open_page(chromium, tmp_path / "report.html")

    def order() -> list[str]:
        return [cell.text for cell in chromium.find_elements("css selector", "#runs td a")]

    assert order() == ["one", "two", "sweep", "cot", "<b>plain &amp;"]
    heads = chromium.find_elements("css selector", "#runs th button")
    names = [head.text for head in heads]
    heads[names.index("Both (%)")].click()
    assert order()[:3] == ["cot", "sweep", "<b>plain &amp;"]
    chromium.find_elements("css selector", "#runs th button")[names.index("Both (%)")].click()
    assert order()[:3] == ["<b>plain &amp;", "sweep", "cot"]
    # Each run has one head that the other lacks.
    words = text_of(chromium, "difference")
    assert re.fullmatch(
        r"two minus one: largest difference (0.*layer 2, head 5|-0.*layer 4, head 3)\.", words
    )
    choose(chromium, "measure", "y_o_test_accuracy")
    choose(chromium, "first", "1")
    choose(chromium, "second", "0")
    assert text_of(chromium, "difference").startswith("one minus two")
    assert complaints(chromium) == []
    # The steered model stands beside itself as it is, and its controls.
    said = chromium.find_element("id", "answers").get_attribute("aria-label").split("; ")
    assert [words.rpartition(": TB")[0] for words in said[:3]] == [
        "sweep", "sweep: as it is", "sweep: 2 random directions",
    ]  # fmt: skip
    table = pd.read_parquet(tmp_path / "sweep" / "sweep.parquet")
    both = table.loc[table["cell"].str.contains("draw") & (table["measure"] == "Both"), "value"]
    ends = [f"{100 * value:.1f}" for value in (np.mean(both), min(both), max(both))]
    assert f"Both {ends[0]} [{ends[1]}, {ends[2]}]" in said[2]
    chromium.find_element("link text", "<b>plain &amp;").click()
    assert chromium.title == "Answers of tiny-qwen2-vl, as it is"
