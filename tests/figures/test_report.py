"""The page of a run: what it holds is what the run says, and nothing in it acts or calls out."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.errors import MissingRunFileError
from sally_anne.data.gridtom.contrasts import Scene
from sally_anne.data.gridtom.stories import generated
from sally_anne.figures.plane import probe_plane
from sally_anne.figures.report import points, write_report
from sally_anne.figures.report.frames import story_of, strip
from sally_anne.figures.report.page import as_json
from sally_anne.hooks.saved_run import Run
from tests.made_run import CONFIG

pytestmark = pytest.mark.integration

HOSTILE = "</script><script>document.title='mine'</script><img src=x onerror=alert(1)>"


def page_of(folder: Path) -> tuple[str, dict]:
    """The page without its scripts, and what the scripts draw."""
    text = write_report(folder).read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data is not None
    return text[: data.start()] + text[text.rindex("</script>") :], json.loads(data[1])


def with_prompts(run, text: str = "{}") -> None:
    table = pd.DataFrame({"item_id": run.items["item_id"]})
    table["text"] = [text.format(name) for name in table["item_id"]]
    table.to_parquet(run.folder / "prompts.parquet")


def test_the_page_says_the_best_head_and_its_own_doubts(run) -> None:
    words, data = page_of(run.folder)
    words = html.unescape(words)
    assert "Layer 4, head 3 tells Y_p (protagonist) in 100.0 % of 60 test samples" in words
    assert "no null was drawn" in words and "used: not asked" in words
    assert f"sally-anne causal {run.folder}" in words
    assert [label["best"] for label in data["labels"]] == [[4, 3], [4, 3]]
    shown = pd.DataFrame(data["heads"])
    expected = run.heads.sort_values(["layer", "head"], ignore_index=True)
    for column in ("layer", "head", "y_p_validation_accuracy", "y_o_test_accuracy"):
        np.testing.assert_allclose(shown[column], expected[column], rtol=1e-4)


def test_points_and_confusion_are_those_of_the_probes(run) -> None:
    _, data = page_of(run.folder)
    opened, at = Run.open(run.folder), 4 * 8 + 3
    train = (run.items["split"] == "train").to_numpy()
    truth = run.items["y_p"].to_numpy(dtype=bool)
    z = opened.head_activations(4, 3)
    coef, intercept = opened.probe("y_p", 4, 3)
    found = data["points"]["y_p"]
    xy = np.frombuffer(base64.b64decode(found["points"][at]), "<i2").reshape(-1, 2)
    xy = xy * np.array(found["scale"][at])
    reach = np.abs(xy).max()
    exact = probe_plane(coef, z[train], truth[train]).project(z)
    np.testing.assert_allclose(xy, exact, atol=1e-4 * reach)
    slope, offset = found["line"][at]
    np.testing.assert_allclose(
        slope * xy[:, 0] + offset, z @ coef + intercept, atol=1e-3 * reach * slope
    )
    said = z @ coef + intercept > 0
    test = (run.items["split"] == "test").to_numpy()
    counts = [[(truth == t) & (said == s) & test for s in (True, False)] for t in (True, False)]
    assert found["confusion"]["test"][at] == [int(c.sum()) for row in counts for c in row]
    assert data["samples"]["labels"]["y_p"] == {
        "classes": ["true", "false"],
        "values": [int(not t) for t in truth],
    }


def test_hostile_words_stay_words(make_run) -> None:
    run = make_run(layers=2, heads=2, config=CONFIG | {"model": HOSTILE})
    with_prompts(run, HOSTILE + "{}")
    text = write_report(run.folder).read_text(encoding="utf-8")
    words, data = page_of(run.folder)
    assert "<img" not in words and words.count("<script") == 0
    assert HOSTILE in html.unescape(words)
    assert data["samples"]["texts"][0] == HOSTILE + run.items["item_id"][0]
    # Each script that may run is named by its hash, and there is no other.
    allowed = set(re.findall(r"'sha256-([^']+)'", words))
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    digests = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert len(scripts) == 2 and digests == allowed
    assert "default-src 'none'" in words
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", words)


def test_too_many_samples_are_thinned_evenly_and_tables_are_of_all(run, monkeypatch) -> None:
    monkeypatch.setattr(points, "ROOM", 48 * 2 * 16 / 3 * 100)
    _, data = page_of(run.folder)
    kept = pd.Series(data["samples"]["split"]).value_counts().to_dict()
    assert kept == {"train": 50, "test": 30, "validation": 20}
    assert data["samples"]["of"] == 200
    assert sum(data["points"]["y_p"]["confusion"]["train"][0]) == 100


def test_long_prompts_keep_their_ends(run, monkeypatch) -> None:
    monkeypatch.setattr(points, "WORDS", 200 * 300)
    with_prompts(run, "x" * 1000 + " end of {}")
    _, data = page_of(run.folder)
    assert len(data["samples"]["texts"][0]) == 302
    assert data["samples"]["texts"][0].endswith("end of " + run.items["item_id"][0])


def test_what_is_not_finite_is_null_and_marks_are_escaped() -> None:
    text = as_json({"a": np.array([1.0, np.nan, np.inf]), "b": "</script>\u2028", "c": True})
    assert json.loads(text) == {"a": [1.0, None, None], "b": "</script>\u2028", "c": True}
    assert "<" not in text and "\u2028" not in text


def test_the_same_run_gives_the_same_bytes(run) -> None:
    first = write_report(run.folder).read_bytes()
    assert write_report(run.folder, run.folder / "other" / "page.html").read_bytes() == first


def test_a_folder_of_no_known_run_names_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(MissingRunFileError, match="none of heads.parquet .`sally-anne probe`."):
        write_report(tmp_path)
    with pytest.raises(MissingRunFileError, match="no run folder at"):
        write_report(tmp_path / "none")


def with_films(make_run, tmp_path: Path):
    """A made run of a file of samples, each pair of which was shown two pictures of its own."""
    from PIL import Image

    from sally_anne.data import samples as own

    groups = {"train": 5, "validation": 2, "test": 4}
    path = tmp_path / "films.jsonl"
    config = {"model": "tiny-qwen2-vl", "samples": str(path), "site": "head_out"}
    run = make_run(layers=2, heads=2, groups=groups, config=config)
    lines = []
    for number, row in run.items.iterrows():
        for picture in range(2):
            drawn = Image.new("RGB", (30, 60), (5 * number, 0, 100 * picture))
            drawn.paste((112, 39, 195), (2, 2, 6, 6))
            drawn.save(tmp_path / f"{number}-{picture}.png")
        facts = {name: row[name] for name in ("item_id", "group", "split")}
        labels = {name: bool(row[name]) for name in ("y_p", "y_o")}
        images = [f"{number}-{picture}.png" for picture in range(2)]
        lines.append(facts | {"text": "It is.", "labels": labels, "images": images})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = own.sample_set(own.read_samples(path), path.name, 0, {"setting": "multimodal"})
    saved = json.loads((run.folder / "config.json").read_text())
    saved["data"] = {"source": data.source, "fingerprint": data.fingerprint}
    (run.folder / "config.json").write_text(json.dumps(saved))
    return run


def test_the_most_and_least_certain_samples_show_their_own_frames(make_run, tmp_path) -> None:
    import io

    from PIL import Image

    run = with_films(make_run, tmp_path)
    found = page_of(run.folder)[1]["frames"]
    ids = list(run.items["item_id"])
    for item_id, number in found["of"].items():
        with Image.open(io.BytesIO(base64.b64decode(found["images"][number]))) as strip:
            assert strip.size == (2 * 48 + 2, 96)
            red = 5 * ids.index(item_id)
            picture = strip.convert("RGB")
            assert picture.getpixel((20, 50)) == (red, 0, 0)
            assert picture.getpixel((70, 50)) == (red, 0, 100)
            # What is small keeps its colour.
            assert picture.getpixel((6, 6)) == picture.getpixel((56, 6)) == (112, 39, 195)
    # Of the best head of Y_p: held-out samples by the margin of its probe, worked out here.
    best = run.heads.loc[run.heads["y_p_rank"] == 1].iloc[0]
    layer, head = int(best["layer"]), int(best["head"])
    z = run.z[:, layer, head].astype("float64")
    logits = z @ run.probes["y_p.coef"][layer, head] + run.probes["y_p.intercept"][layer, head]
    held_out = np.flatnonzero(run.items["split"] != "train")
    order = held_out[np.argsort(-np.abs(logits[held_out]))]
    right = (logits > 0) == run.items["y_p"].to_numpy(dtype=bool)
    wanted = [*order[right[order]][:4], *order[~right[order]][:4], *order[::-1][:4]]
    assert {ids[n] for n in wanted} <= set(found["of"])
    assert not any(name.startswith("train") for name in found["of"])


def test_a_story_is_seen_by_others_too_and_believed_as_it_is_told() -> None:
    stories = generated(stories=[17])
    for condition, believed in (("TB", "last"), ("FB", "first")):
        case = stories.story(17).case(1, condition)  # type: ignore[arg-type]
        found = story_of(Scene(case, "protagonist"), stories)
        assert found["shown"] == "protagonist" and found["frames"] == list(case.nodes)
        others = {"omniscient", "participant"}
        assert dict(found["others"]) == {one: strip(case.frames(one)) for one in others}  # type: ignore[arg-type]
        whose, *places = found["beliefs"][1]
        first, last = case.cast.first_room, case.cast.last_room
        assert whose == "protagonist believes" and found["beliefs"][0][-1] == last
        assert places[-1] == {"last": last, "first": first}[believed]


def test_without_its_films_a_run_has_a_page_without_frames(make_run, tmp_path) -> None:
    run = with_films(make_run, tmp_path)
    for picture in tmp_path.glob("*.png"):
        picture.unlink()
    assert page_of(run.folder)[1]["frames"] == {}
    (tmp_path / "films.jsonl").unlink()
    assert page_of(run.folder)[1]["frames"] == {}
