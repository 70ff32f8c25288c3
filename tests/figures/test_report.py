"""The page of a run: what it draws is what the run holds, and nothing in it acts or calls out."""

from __future__ import annotations

import base64
import html
import io
import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from sally_anne.cli import COMMANDS
from sally_anne.core.errors import FigureError
from sally_anne.core.files import write_json
from sally_anne.core.folder import RESULTS, claimed
from sally_anne.core.options import read_options
from sally_anne.data.gridtom.samples import sample_set
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.items import Question
from sally_anne.data.samples import Sample
from sally_anne.figures.report import write_index, write_report
from sally_anne.harness.report import save_items
from tests.figures.test_heatmap import scanned
from tests.figures.test_sweep import both, rows_of
from tests.made_run import CONFIG

pytestmark = pytest.mark.integration

HOSTILE = "</script><script>document.title='mine'</script><img src=x onerror=alert(1)>"


def words_of(text: str) -> str:
    """What a page shows in words."""
    return html.unescape(re.sub(r"<style.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL))


def with_prompts(run, text: str = "{}") -> None:
    table = pd.DataFrame({"item_id": run.items["item_id"]})
    table["text"] = [text.format(name) for name in table["item_id"]]
    table.to_parquet(run.folder / "prompts.parquet")


def pixels(source: str) -> Any:
    """An image of a page."""
    return Image.open(io.BytesIO(base64.b64decode(source))).convert("RGB")


def test_a_click_on_a_head_shows_where_it_looks(run) -> None:
    names = ["1 best", *(f"L{layer}H{head}" for layer in range(6) for head in range(8)), "random"]
    parts, sides = ["frames 1-2", "frame 3", "question"], ["TB", "FB", "FB - TB", "answer lost"]
    rows = pd.MultiIndex.from_product((sides, names, parts), names=("side", "heads", "part"))
    shares = np.linspace(0, 1, len(rows))
    (run.folder / "looks").mkdir()
    table = rows.to_frame(index=False).assign(share=shares)
    table.to_parquet(run.folder / "looks/question.parquet")
    text = write_report(run.folder).read_text(encoding="utf-8")
    linked = re.findall(r'href="#(L\dH\d)"', text)
    assert len(linked) % 48 == 0 and set(linked) == set(re.findall(r'id="(L\dH\d)"', text))
    block = text.partition('id="L2H3"')[2].partition("id=")[0]
    own = table[(table["heads"] == "L2H3") & table["side"].isin(["TB", "FB"])]
    wide = own.pivot(index="part", columns="side", values="share").loc[parts[:2], ["TB", "FB"]]
    tall = [float(one) for one in re.findall(r"height:(\d+)%", block)]
    np.testing.assert_allclose(tall, 100 * wide.to_numpy().ravel(), atol=0.51)
    assert re.findall(r"flex-grow:(\d)", block) == ["2", "1"]


def test_map_points_and_effects_are_those_of_the_run(run) -> None:
    heads = scanned(run.heads)
    heads.to_parquet(run.folder / "heads.parquet")
    sets = [{"by": "random", "k": 4, "effect": 0.125, "low": 0.0, "high": 0.25}]
    facts = {"conclusion": "Used, as measured.", "sets": sets, "pairs": 32, "pair_accuracy": 1.0}
    facts |= {"clusters": "maps", "clusters_drawn": 21}
    write_json(run.folder / "patching.json", {"config": {}, "question": facts})
    text = write_report(run.folder).read_text(encoding="utf-8")
    maps = text.split('class="map"')[1:]
    assert len(maps) == 7  # three splits of two labels, and the effects
    columns = {0: "y_p_validation_accuracy", 1: "y_o_validation_accuracy", -1: "question_effect"}
    for place, column in columns.items():
        cells = re.findall(r">([\d.-]+)<sup>(.?)</sup></td>", maps[place].partition("</table>")[0])
        np.testing.assert_allclose([float(value) for value, _ in cells], heads[column], atol=0.0051)
    marks = heads["question_used"].map({"used": "●", "used against": "○", "not used": ""})
    assert [mark for _, mark in cells] == marks.tolist()
    hovered = re.findall(r'title="(L\dH\d)\nY_p, validation: ([\d.]+)', maps[0])
    assert [float(value) for _, value in hovered] == heads[columns[0]].round(3).tolist()
    assert text.index('class="map"') < text.index('class="sentence"')
    # The densities of three heads of each label, and the effects against accuracy.
    assert len(re.findall('src="data:image/png', text)) == 7
    words = words_of(text)
    assert "L4H3 gives Y_p in 100.0 % of 60 test samples" in words
    assert "1 of 48 heads are above the null" in words
    assert "Used, as measured." in words and "0.12 [0.00, 0.25]" in words and "random sets" in words


def test_hostile_words_stay_words_and_no_script_may_run(make_run) -> None:
    run = make_run(layers=2, heads=2, config=CONFIG | {"model": HOSTILE})
    with_prompts(run, HOSTILE + "{}")
    text = write_report(run.folder).read_text(encoding="utf-8")
    assert HOSTILE not in text and HOSTILE in words_of(text)
    assert "<script" not in text and "default-src 'none'" in text and "script-src" not in text
    assert not re.search(r"<[^>]+(?:src|href)=[\"']?(?:https?:)?//", text)


def test_the_most_and_least_certain_samples_show_their_frames(run) -> None:
    with_prompts(run, "the prompt of {}")
    samples = []
    for number, item_id in enumerate(run.items["item_id"]):
        frames = np.zeros((2, 60, 30, 3), dtype=np.uint8)
        frames[:, :, :, 0] = number
        frames[1, :, :, 2] = 100
        samples.append(Sample(item_id=item_id, text="It is.", video=frames, labels={"y_p": True}))
    text = write_report(run.folder, reopen=lambda opened: samples).read_text(encoding="utf-8")
    shown = dict(
        re.findall(r'src="data:image/png;base64,([^"]+)" alt="what the model saw of ([^"]+)"', text)
    )
    for source, item_id in shown.items():
        number = list(run.items["item_id"]).index(item_id)
        strip = pixels(source)
        assert strip.size == (2 * 48, 96)
        assert strip.getpixel((20, 50)) == (number, 0, 0)
        assert strip.getpixel((70, 50)) == (number, 0, 100)
    # Of the best head of Y_p: held-out samples by the margin of its probe, worked out here.
    z = run.z[:, 4, 3].astype("float64")
    logits = z @ run.probes["y_p.coef"][4, 3] + run.probes["y_p.intercept"][4, 3]
    held = np.flatnonzero(run.items["split"] != "train")
    order = held[np.argsort(-np.abs(logits[held]))]
    ids = run.items["item_id"].to_numpy()
    assert {*ids[order[:3]], *ids[order[-3:]]} <= set(shown.values())
    assert not any(name.startswith("train") for name in shown.values())
    assert all(f"the prompt of {name}" in text for name in shown.values())


def test_a_story_is_shown_with_the_command_that_draws_it(make_run) -> None:
    run = make_run(layers=1, heads=1, groups={"train": 4, "validation": 2, "test": 2})
    samples = sample_set(generated(), 1, "matched", "multimodal", 60).samples[: len(run.items)]
    text = write_report(run.folder, reopen=lambda opened: samples).read_text(encoding="utf-8")
    assert re.search(r"sally-anne story --index \d+ --order 1 --first (TB|FB)<", text)


SHARE = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8}


def evaluation(folder: Path, **options: Any) -> Path:
    rows = [
        {"item_id": f"q{n}", "story": f"s{n}", "answer": "A", "reply": f"reply {n}"}
        | {"robust_correct": n < 4, "robust_invalid": n == 7, "official_correct": False}
        for n in range(8)
    ]
    with claimed(folder, "an evaluation"):
        pd.DataFrame(rows).to_parquet(folder / "answers.parquet")
        none = {"value": 0.0, "low": 0.0, "high": 0.0, "n": 8}
        results = [
            {"parser": parser, "kind": kind, "part": kind and f"{kind}: belief", "measure": measure}
            | numbers
            for parser, kind, measure, numbers in (
                ("robust", "", "overall", SHARE),
                ("robust", "", "invalid", none),
                ("robust", "type", "overall", SHARE),
                ("official", "", "invalid", none | {"value": 1.0}),
            )
        ]
        counts = {"asked": 8, "cut": 2}
        config = {"model": "m", "task": "bigtom"} | options
        saved = {"config": config, "results": results, "counts": counts}
        write_json(folder / RESULTS, saved)
        write_json(folder / "config.json", saved)
    return folder


def test_a_steered_evaluation_shows_its_items_with_the_replies_without_steering(tmp_path) -> None:
    plain, steered = evaluation(tmp_path / "plain"), evaluation(tmp_path / "steered", steer="v")
    before = pd.read_parquet(plain / "answers.parquet")
    before.loc[2, "reply"] = "before"
    before.to_parquet(plain / "answers.parquet")
    items = [Question(f"q{n}", "b", "test", f"s{n}", f"what {n}?", text=HOSTILE) for n in range(8)]
    frames = np.full((2, 12, 6, 3), 7, dtype="uint8")
    items[1] = replace(items[1], clip=lambda: frames)
    save_items(steered, items, pd.read_parquet(steered / "answers.parquet"))
    text = write_report(steered).read_text(encoding="utf-8")
    shown = re.findall(
        r'<div class="all ([a-z ]+)">(.*?)</div>(?=<div class="all|</div>)', text, re.S
    )
    assert Counter(kinds for kinds, _ in shown) == {
        "right": 3,
        "right changed": 1,
        "wrong": 3,
        "invalid": 1,
    }
    ((_, changed),) = [one for one in shown if "changed" in one[0]]
    assert all(words in words_of(changed) for words in ("what 2?", "reply 2", "before", HOSTILE))
    assert HOSTILE not in text and f"sally-anne compare {plain} {steered}" in words_of(text)
    (source,) = re.findall(r'src="data:image/png;base64,([^"]+)" alt="frames of q1"', text)
    assert pixels(source).getpixel((1, 1)) == (7, 7, 7)


def test_next_commands_are_read_and_repeat_the_options_of_the_run(make_run, tmp_path) -> None:
    own = {"model": "smollm2", "adapter": "a b", "dtype": "bfloat16", "device_map": "auto"}
    own |= {"quantization": "4bit", "prompt": "raw", "setting": "text", "order": 2}
    own |= {"data": str(tmp_path), "split_seed": 3}
    folders = [make_run(1, 1, config=CONFIG | own).folder, swept(tmp_path / "sweep", **own)]
    folders.append(evaluation(tmp_path / "steered", task="gridtom", steer="v", **own))
    read = []
    for folder in folders:
        text = write_report(folder).read_text(encoding="utf-8")
        for lines in re.findall(r"<code>(sally-anne [^<]+)</code>", text):
            for line in html.unescape(lines).split(" && "):
                _, command, *words = shlex.split(line)
                options = read_options(COMMANDS[command].options, command, words)
                read.append(command)
                if hasattr(options, "model"):
                    there = {name: str(getattr(options, name, own[name])) for name in own}
                    assert there == {name: str(value) for name, value in own.items()}, line
    assert {"patch", "audit", "figures", "sweep", "evaluate", "report"} <= {*read}


def test_an_evaluation_shows_its_shares_and_replies(tmp_path: Path) -> None:
    text = write_report(evaluation(tmp_path / "run")).read_text(encoding="utf-8")
    bars = re.findall(r'row">([^<]+)</th>.*?left:([\d.]+)%;right:([\d.]+)%.*?left:([\d.]+)%', text)
    assert bars[::2] == [(name, "25.0", "25.0", "50.0") for name in ("all", "type: belief")]
    words = words_of(text)
    assert "Right 50.0 [25.0, 75.0] %, over 8 questions, parsed by robust." in words
    assert "Replies cut: 2 of 8" in words and "official" not in words
    assert "4 right, 3 wrong, 1 invalid" in words


def swept(folder: Path, **options: Any) -> Path:
    chosen = {
        "direction": "logistic",
        "rank_by": "probe_accuracy",
        "k": 4,
        "alpha": 5.0,
        "name": "best",
    }
    none = {"k": 0, "alpha": 0.0}
    rows = rows_of("none", 0, 0.0, both(0.3), point="baseline")
    rows += rows_of("logistic", 4, 5.0, both(0.6), point="best")
    rows += rows_of("random", 4, 5.0, both(0.2), point="random/0")
    test = [row | {"split": "test", "value": row["value"] + 0.05} for row in rows]
    items = {"item_id": "q1", "story": "s1", "split": "validation", "answer": "red"}
    replies = [
        items | {"direction": "none", "rank_by": "probe_accuracy", "reply": "blue as ever"} | none,
        items
        | {name: chosen[name] for name in ("direction", "rank_by", "k", "alpha")}
        | {"reply": "red now"},
    ]
    with claimed(folder, "a sweep"):
        pd.DataFrame(rows + test).to_parquet(folder / "sweep.parquet")
        pd.DataFrame(replies).to_parquet(folder / "answers.parquet")
        saved = {"config": {"model": "m", "label": "y_p"} | options, "vector": "v"}
        write_json(folder / "config.json", saved)
        saved |= {"chosen": chosen, "test": {}, "initial": {"test": SHARE}}
        rank = {
            "rank": 3,
            "of": 5,
            "beats_controls": False,
            "stories": 60,
            "gain": 0.3,
            "kinds": {},
        }
        write_json(folder / RESULTS, saved | {"control_rank": rank})
    return folder


def test_a_sweep_shows_its_curves_its_choice_and_replies(tmp_path: Path) -> None:
    text = write_report(swept(tmp_path / "run")).read_text(encoding="utf-8")
    assert text.index("data:image/png") < text.index('class="sentence"')
    words = words_of(text)
    assert "Both goes from 35.0 [20.0, 40.0] to 65.0 [50.0, 70.0] % of 60 test stories" in words
    assert (
        "Cost (what is lost): initial belief -50.0 [-75.0, -25.0] points on test stories." in words
    )
    assert "rank 3 of 5 among its controls: not specific" in words
    assert "blue as ever" in words and "red now" in words


def test_other_runs_show_every_number_with_its_interval(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with claimed(folder, "a measurement of side effects"):
        tasks = {"gridtom": {"overall": {"plain": SHARE}}}
        rows = [
            {"kind": "causal", "recall": SHARE, "empty": ""},
            {"kind": HOSTILE, "recall": SHARE},
        ]
        saved = {"config": {"model": "m"}, "kl": SHARE, "tasks": tasks, "rows": rows}
        write_json(folder / RESULTS, saved)
    Image.new("RGB", (3, 2), (9, 8, 7)).save(folder / "picture.png")
    text = write_report(folder).read_text(encoding="utf-8")
    links = re.findall(r'download="(\w+)\.csv" href="data:text/csv;base64,([^"]+)"', text)
    tables = {name: base64.b64decode(data).decode().splitlines() for name, data in links}
    assert tables["estimates"] == [
        "of,value,low,high,n",
        "kl,0.5,0.25,0.75,8",
        '"tasks, gridtom, overall, plain",0.5,0.25,0.75,8',
    ]
    columns = "kind,recall.value,recall.low,recall.high,recall.n"
    assert tables["rows"][:2] == [columns, "causal,0.5,0.25,0.75,8"]
    assert HOSTILE not in text
    (source,) = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    assert pixels(source).getpixel((1, 1)) == (9, 8, 7)


def test_an_index_compares_runs_and_links_their_pages(make_run, tmp_path: Path) -> None:
    folders = [make_run(1, 2, name=name).folder for name in ("one", "two")]
    path = write_index([*folders, evaluation(tmp_path / "three")])
    assert path == tmp_path / "report.html"
    text = path.read_text(encoding="utf-8")
    for name in ("one", "two", "three"):
        assert f'href="{name}/report.html"' in text and (tmp_path / name / "report.html").exists()
    assert re.findall(r'alt="map of (\w+)"', text) == ["one", "two"]
    with pytest.raises(FigureError):
        write_index(folders, out=folders[0] / "report.html")
