"""``import sally_anne as sa``: light, whole, and the same as what lies behind it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import sally_anne as sa
from sally_anne.core.run import USED, labels_of
from sally_anne.data.samples import RESERVED
from sally_anne.figures import style
from sally_anne.hooks.vector import SteeringVector
from sally_anne.probing.activations import Activations
from sally_anne.probing.patching import MEASURES, PatchingResult
from tests.made_run import three_kinds

USUAL = ("y", "x", "condition", "index", "test", "rank", "p", "validation_accuracy", "a_rank")


@pytest.fixture
def activations() -> sa.Activations:
    return three_kinds()


@pytest.fixture(scope="module")
def model() -> sa.LoadedModel:
    return sa.load_model("tiny-qwen2-vl")


@pytest.mark.integration
def test_it_is_imported_at_once_and_without_torch() -> None:
    code = (
        "import sys, time\nbefore = time.process_time()\nimport sally_anne\n"
        "spent = time.process_time() - before\n"
        "heavy = {'torch', 'numpy', 'pandas', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'{spent:.2f} s, {heavy}' if heavy or spent > 0.2 else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_name_is_there() -> None:
    assert sa.SteeringVector is SteeringVector and set(dir(sa)) == set(sa.__all__)
    assert dir(sa.plot) == ["clusters", "heatmap", "kde", "patching", "sweep"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sa.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("label", ["warm", "kind"])
def test_labels_of_any_name_go_from_probes_to_figures_and_vector(
    label: str, activations: sa.Activations, tmp_path: Path
) -> None:
    probes = clone(sa.HeadProbes(c=1.0)).fit(activations.train, label=label)
    heads = probes.rank(activations.validation)
    assert heads.loc[heads[f"{label}_rank"] == 1, "head"].item() == 1
    figure = sa.plot.heatmap(heads)
    title = figure.axes[0].get_title()
    assert title.startswith(label) and "L0H1 (1.00)" in title
    density = sa.plot.kde(activations.test, probes)
    texts = [text.get_text() for text in density.legends[0].get_texts()]
    count = {"warm": "true (n = 4)", "kind": "owl (n = 4)"}[label]
    assert f"{label} {count}" in texts
    vector = probes.to_vector(k=1, alpha=2.0, towards="dog" if label == "kind" else None)
    assert vector.heads == ((0, 1),) and int(vector.theta[0].abs().argmax()) == 1
    kept = sa.SteeringVector.load(vector.save(tmp_path / "vector"))
    assert kept.alpha == 2.0 and kept.fitted["label"] == label


@settings(max_examples=200, deadline=None)
@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{,7}", fullmatch=True) | st.sampled_from(USUAL))
def test_numbers_do_not_hang_on_a_labels_name(name: str) -> None:
    assume(name not in (*RESERVED, "kind", "warm"))
    x = three_kinds()
    named = Activations(x.x, x.items.rename(columns={"warm": name}), ("kind", name))
    plain, other = (
        sa.HeadProbes(c=1.0).fit(one.train, label=label).rank(one)
        for one, label in ((x, "warm"), (named, name))
    )
    assert labels_of(other) == (name,)
    pd.testing.assert_frame_equal(other, plain.rename(columns=lambda c: c.replace("warm", name)))


def test_colours_part_at_the_chance_of_the_label(activations: sa.Activations) -> None:
    def said() -> list[str]:
        bar = sa.plot.heatmap(heads, label="kind", split="test").axes[-1]
        return [text.get_text() for text in bar.get_yticklabels() if "chance" in text.get_text()]

    heads = sa.HeadProbes(c=1.0).fit(activations.train, label="kind").rank(activations)
    assert (heads["kind_test_chance"] == 1 / 3).all()
    assert said() == ["0.33 chance"]
    heads = heads.drop(columns="kind_test_chance")  # as earlier versions wrote them
    assert said() == ["0.5 chance"]


def test_a_figure_looks_the_same_however_it_is_saved(
    activations: sa.Activations, tmp_path: Path
) -> None:
    probes = sa.HeadProbes(c=1.0).fit(activations.train, label="warm")
    figure = sa.plot.heatmap(probes.rank(activations.validation), label="warm")
    figure.savefig(tmp_path / "plain.png", metadata={"Software": None})
    ours, _, _ = style.save(figure, tmp_path, "ours", pd.DataFrame({"a": [1]}))
    assert (tmp_path / "plain.png").read_bytes() == ours.read_bytes()


def refused(*cases) -> None:
    for call, named in cases:
        with pytest.raises(sa.SallyAnneError, match=named):
            call()


def test_what_is_no_table_head_or_label_is_named(activations: sa.Activations) -> None:
    probes, test = sa.HeadProbes(c=1.0).fit(activations.train, label="warm"), activations.test
    refused((lambda: sa.plot.kde(activations.validation, probes), "rank the heads"))
    heads = probes.rank(activations.validation)
    others, wrong = dataclasses.replace(test, labels=("kind",)), "give activations|no label 'warm'"
    refused(
        (lambda: sa.plot.heatmap(activations), "table of heads"),
        (lambda: sa.plot.heatmap(heads, label="cold"), "it has .*warm_validation_accuracy"),
        (lambda: sa.plot.heatmap(heads[["layer", "head"]]), "table of heads"),
        (lambda: sa.plot.heatmap(heads, ax=3), "ax must be"),
        (lambda: sa.plot.patching(heads), "sa.patching"),
        (lambda: sa.plot.kde(activations.validation, probes, layer=99, head=0), "L99H0"),
        (lambda: sa.plot.kde(activations.x, probes), wrong),
        (lambda: sa.plot.kde(activations.part("dev"), probes), wrong),
        (lambda: sa.plot.kde(others, probes), wrong),
        (lambda: sa.plot.kde(activations, probes, layer="0", head=0), "there is no L"),
        (lambda: sa.plot.kde(activations, probes, layer=-1, head=0), "there is no L"),
        (lambda: probes.score(test.x), r"y \["),
        (lambda: probes.score(test.x, [True]), r"y \["),
    )
    assert (probes.predict(test) == probes.predict(test.x)).all()
    assert (probes.score(test) == probes.score(test.x, test.values("warm"))).all()
    with pytest.raises(NotFittedError):
        sa.HeadProbes().predict(test)


def test_what_is_no_model_sample_or_prompt_is_named(model) -> None:
    few = sa.samples(["a", "b", "c"], {"fits": [1, 0, 1]})
    wide = np.zeros((2, 4, 1000, 3), np.uint8)
    of = {"labels": {"fits": [1, 0, 1]}, "splits": ["train", "validation", "test"]}
    shown = sa.samples(list("abc"), **of, videos=[None, None, wide])
    refused(
        (lambda: sa.extract("tiny-qwen2-vl", few), "load_model"),
        (lambda: sa.extract(model, "abc"), "give samples"),
        (lambda: sa.extract(model, few[0]), "give samples"),
        (lambda: sa.extract(model, few, batch_size=0), "batch_size"),
        (lambda: sa.extract(model, sa.samples(["a", "red " * 9000, "b"], **of)), "sample-00001"),
        (lambda: sa.extract(model, shown), "sample-00002: frames of 1000 x 4"),
        (lambda: model.generate("a", video=wide), "frames of 1000 x 4"),
        (lambda: model.generate(["a", "b"]), "a text"),
        (lambda: model.generate(None), "a text"),
        (lambda: model.generate("a", max_new_tokens=0), "max_new_tokens"),
        (lambda: model.generate("a", temperature=0.7), "temperature.*it takes text"),
        (lambda: sa.load_model("tiny-qwen2-vl", torch_dtype="auto"), "torch_dtype.*dtype"),
        (lambda: sa.load_model(Path("/none/here")), "/none/here"),
        (lambda: sa.evaluate(model, nonsense=1), "nonsense.*it takes"),
        (lambda: sa.evaluate("tiny-qwen2-vl"), "load_model"),
        (lambda: sa.sweep(model, alpha=0.0, setting="text"), "--alpha is empty or 0"),
        (lambda: sa.probe(model, few, c=-1.0), "--c must be positive"),
    )
    assert len(sa.extract(model, (sample for sample in few))) == 3


def test_what_a_notebook_holds_says_in_one_line_what_it_is(activations, model) -> None:
    probes = sa.HeadProbes(c=1.0).fit(activations.train, label="warm")
    probes.rank(activations)
    for held, facts in (
        (activations, "60 x 2 layers x 2 heads x 4; train 36, validation 12, test 12; cat 20"),
        (probes, "label warm; 2 layers x 2 heads x 4; best heads L0H1"),
        (probes.to_vector(k=1, alpha=2.0), "L0H1 of 2 layers x 2 heads x 4; alpha 2.0; label warm"),
        (model, "8 layers x 8 heads x 16; dtype float32; device cpu"),
        (sa.gridtom(stories=20, setting="text")[:4], "4 of 1 group; film 0; y_p False 2, True 2"),
    ):
        line, table = repr(held), held._repr_html_()
        assert "\n" not in line and len(line) < 500
        assert all(f in line and f.split()[-1] in table for f in facts.split("; ")), line


def test_activations_are_cut_saved_and_read_again(activations, tmp_path: Path) -> None:
    x, warm = activations, activations.values("warm")
    assert (len(x), x.shape) == (60, (60, 2, 2, 4))
    for rows in (slice(3, 9), warm, pd.Series(warm), [5, 2], np.array([7]), [], -1):
        part, places = x[rows], np.atleast_1d(np.arange(60)[rows])
        assert (part.x == x.x[places]).all() and (part.values("warm") == warm[places]).all()
    again = sa.Activations.load(x.save(tmp_path / "x"))
    assert (again.x == x.x).all() and again.x.dtype == x.x.dtype
    pd.testing.assert_frame_equal(again.items, x.items)
    assert (again.labels, again.site, again.model) == (x.labels, x.site, x.model)


@pytest.mark.integration
def test_one_call_gives_what_its_steps_give(model, tmp_path: Path) -> None:
    samples = sa.gridtom(stories=20, setting="text")
    found, x = sa.probe(model, samples, permutations=20), sa.extract(model, samples)
    assert (found.x.x == x.x).all() and {"y_p_p_fwer", "y_o_threshold"} <= set(found.heads)
    for label in found.probes:
        heads = sa.HeadProbes().fit(x.train, label=label).rank(x)
        pd.testing.assert_frame_equal(found.heads[list(heads)], heads)
    probes = found.probes["y_p"]
    figure = Figure((12, 12), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    sa.plot.heatmap(found.heads, label="y_p", ax=axes[0])
    sa.plot.kde(x, probes, ax=axes[1])
    sa.plot.clusters(x, found.probes, ax=axes[2])
    patched = found.heads[["layer", "head"]].assign(**dict.fromkeys(MEASURES, 0.0) | {"used": USED})
    sa.plot.patching(found.heads, PatchingResult(patched, patched, {"asks": "answer"}), ax=axes[3])
    figure.savefig(tmp_path / "four.png")
    assert len(figure.subfigs) == 4
    how = {"setting": "text", "limit": 2}
    with probes.to_vector(k=2).apply(model), pytest.raises(sa.SallyAnneError, match="open"):
        sa.evaluate(model, **how)
    with probes.to_vector(k=2).apply(model), pytest.raises(sa.SallyAnneError, match="open"):
        sa.extract(model, samples, tmp_path / "kept")
    with pytest.raises(sa.SallyAnneError, match="layer and head"):
        sa.plot.kde(x, probes, layer=0)
    kept = sa.evaluate(model, vector=probes.to_vector(k=2), folder=tmp_path / "run", **how)
    assert kept.answers.equals(pd.read_parquet(tmp_path / "run" / "answers.parquet"))
    assert sa.evaluate(model, **how).results["config"]["limit"] == 2
