"""What heads carry, on models whose only carrier is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from sally_anne.data.pairs import ContrastPair, PairSet
from sally_anne.data.samples import Sample
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import SITES, final_norm, find_geometry, o_projs
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prefix import State, extend, prefill, split_common_prefix
from sally_anne.models.prompts import encode, reply_prompt
from sally_anne.models.tiny import FAMILIES, Family
from sally_anne.probing import interchange
from sally_anne.probing.config import ScanOptions
from sally_anne.probing.interchange import effects_of, read_pair
from sally_anne.probing.patching import scan
from tests.conftest import enlarge

pytestmark = pytest.mark.integration

CARRIER = (3, 5)
TEXT = "The {} agent is in the {} room. Question: which room is it in? Answer:"


def pair(number: int = 0, split: str = "test") -> ContrastPair:
    rooms = ("red", "blue") if number % 2 else ("green", "purple")
    agent = ("white", "yellow", "black")[number % 3]
    a, b = (
        Sample(f"{number}-{room}", TEXT.format(agent, room), group=f"g{number}", split=split)
        for room in rooms
    )
    return ContrastPair((a, b), rooms, f"g{number}")


def opened(folder: Path) -> LoadedModel:
    """A model whose weights are large enough that prompts differ."""
    loaded = load_model(str(folder))
    torch.manual_seed(1)
    enlarge(loaded.model)
    return loaded


@pytest.fixture(scope="module", params=FAMILIES)
def lively(request: pytest.FixtureRequest, folders: dict[Family, Path]) -> LoadedModel:
    return opened(folders[request.param])


@pytest.fixture
def planted(folders: dict[Family, Path]) -> LoadedModel:
    """One head alone can carry anything from earlier tokens to the last one."""
    loaded = opened(folders["qwen2-vl"])
    width = find_geometry(loaded.model).head_dim
    layer, head = CARRIER
    for number, module in enumerate(o_projs(loaded.model)):
        weight: Tensor = module.weight.data
        keep = 20 * weight[:, head * width : (head + 1) * width]
        weight.zero_()
        if number == layer:
            weight[:, head * width : (head + 1) * width] = keep
    return loaded


def no_sets(loaded: LoadedModel) -> Tensor:
    found = find_geometry(loaded.model)
    return torch.zeros(0, found.n_layers, found.n_heads, dtype=torch.bool)


def test_side_by_side_is_one_by_one(lively: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of one pass are runs of their own."""
    both_inputs = pair()
    a, b = read_pair(lively, both_inputs, True)
    shape, (first,), (second,) = a.heads.shape[1:3], *a.words
    chosen = torch.rand(5, *shape, generator=torch.Generator().manual_seed(0)) < 0.3
    monkeypatch.setattr(interchange, "COLUMNS", 3)
    (found,) = a.replaced(b.heads, chosen)
    prompt = reply_prompt(lively, both_inputs.samples[0].text, False)
    cut = split_common_prefix(lively, [prompt])
    expected = []
    with torch.no_grad():
        for heads in chosen:
            state = prefill(lively, encode(lively, [cut.beginning], None))
            edit = Edit(
                lively.model, b.heads[0], positions="last_prompt", how="replace", heads=heads
            )
            with edit:
                logits = extend(lively, state, [0], [cut.endings[0]]).logits[0]
            expected.append(float(logits[first] - logits[second]))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    with torch.no_grad():
        whole = lively.model(**encode(lively, [prompt], None)).logits[0, -1]
    assert a.logit_diff[0] == pytest.approx(float(whole[first] - whole[second]), abs=1e-5)


def test_pairs_read_together_are_pairs_one_by_one(lively: LoadedModel) -> None:
    sets = torch.ones(1, *no_sets(lively).shape[1:], dtype=torch.bool)
    longer = replace(pair(3), answers=("red room", "blue room"))
    pairs, mean = (
        [pair(1), longer, pair(2)],
        torch.zeros(read_pair(lively, longer, True)[0].heads.shape[1:]),
    )
    together = effects_of(lively, pairs, True, sets, mean)
    for one, some in zip(pairs, together.apart(), strict=True):
        for name, value in effects_of(lively, [one], True, sets, mean)._asdict().items():
            np.testing.assert_allclose(getattr(some, name), value, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("site", SITES)
def test_all_heads_carry_all(lively: LoadedModel, site: str) -> None:
    found = find_geometry(lively.model)
    everything = torch.ones(1, found.n_layers, found.n_heads, dtype=torch.bool)
    effects = effects_of(lively, [pair(1)], True, everything, site=site)
    assert np.isnan(effects.ablate).all()
    assert np.isnan(effects.dla).all() == (site != "head_out")
    assert abs(effects.logit_diff[0]) > 1e-2
    assert effects.sets[0, 0] / effects.logit_diff[0] == pytest.approx(1, abs=1e-4)


def test_the_planted_carrier_is_found_and_nothing_else(planted: LoadedModel) -> None:
    mean = torch.from_numpy(effects_of(planted, [pair()], True, no_sets(planted)).mean[0])
    effects = effects_of(planted, [pair(2)], True, no_sets(planted), mean)
    (gap,) = effects.logit_diff
    shares = effects.effect[0] / gap
    assert shares[CARRIER] == pytest.approx(1, abs=1e-4)
    # Ablated alike in both, pairs are told apart no more.
    assert effects.ablate[0][CARRIER] / gap == pytest.approx(1, abs=1e-4)
    others = np.ones(shares.shape, dtype=bool)
    others[CARRIER] = False
    for name in ("effect", "ablate", "dla", "attribution"):
        assert np.abs(getattr(effects, name)[0][others] / gap).max() < 1e-4, name


def test_direct_attribution_adds_up_where_nothing_else_writes(planted: LoadedModel) -> None:
    """With no MLP the stream is embedding and heads, and so is the logit."""
    for layer in planted.model.get_decoder().layers:
        mlp: nn.Module = layer.mlp  # type: ignore[assignment]
        mlp.down_proj.weight.data.zero_()  # type: ignore[union-attr]
    side, _ = read_pair(planted, pair(), True)
    model = planted.model
    embedded = model.get_input_embeddings().weight[side.tokens[0]]
    out = model.get_output_embeddings().weight
    read = (out[side.words[0]] - out[side.words[1]])[0]
    norm = final_norm(model)
    found = find_geometry(model)
    layer, head = CARRIER
    part = slice(head * found.head_dim, (head + 1) * found.head_dim)
    stream = embedded + o_projs(model)[layer].weight[:, part] @ side.heads[0, layer, head]
    scale = norm(stream) / stream
    with torch.no_grad():
        beside = float((embedded * scale) @ read)
    assert float(side.dla().sum()) + beside == pytest.approx(side.logit_diff[0], abs=1e-4)


def test_the_gradient_is_that_of_small_steps(lively: LoadedModel) -> None:
    side, _ = read_pair(lively, pair(), True)
    direction = torch.randn(side.heads.shape, generator=torch.Generator().manual_seed(2))
    # Of one layer: what later heads make of it is part of its effect.
    one = torch.zeros(1, *side.heads.shape[1:3], dtype=torch.bool)
    one[:, 2] = True
    step = 1e-2
    up, down = (side.replaced(side.heads + s * direction, one)[0, 0] for s in (step, -step))
    slope = float((side.gradient() * direction)[0, 2].sum())
    assert (up - down) / (2 * step) == pytest.approx(slope, rel=2e-2, abs=1e-3)


def sets_of(loaded: LoadedModel) -> dict[str, pd.DataFrame]:
    found = find_geometry(loaded.model)
    layer, head = np.indices((found.n_layers, found.n_heads))
    table = pd.DataFrame({"layer": layer.ravel(), "head": head.ravel()})
    table["y_p_validation_accuracy"] = np.linspace(0.5, 1, len(table))
    return {"y_p": table.sort_values("y_p_validation_accuracy", ascending=False)}


def pairs_of(test: int = 6) -> PairSet:
    pairs = [pair(i, "validation") for i in range(4)] + [pair(10 + i) for i in range(test)]
    return PairSet("question", pairs, True, "answer")


def test_scan_reports_the_planted_set(planted: LoadedModel, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    how = ScanOptions(sizes=(1, 4), random_sets=30)
    ranked = sets_of(planted)
    cause = scan(planted, pairs_of(), ranked, how, tmp_path / "kept", lambda *at: told.append(at))
    assert told[0] == (0, 10) and told[-1] == (10, 10)
    count = len(cause.heads)
    best = cause.heads.loc[cause.heads["effect_validation"].idxmax()]
    assert (best["layer"], best["head"]) == CARRIER
    assert best["effect_low"] == pytest.approx(1, abs=1e-3)
    # Every other head does nothing, so a random one reaches nothing.
    assert cause.heads["used"].value_counts().to_dict() == {"used": 1, "not used": count - 1}
    assert set(cause.heads["used_above"]) == {0.05} and set(cause.heads["against_below"]) == {-0.05}
    sets = cause.sets.set_index(["by", "k"])
    assert sets.loc[("patching", 1), "effect"] == pytest.approx(1, abs=1e-4)
    # The last heads are the best by this ranking of probes, and the carrier is not among them.
    assert sets.loc[("y_p", 4), "effect"] == pytest.approx(0, abs=1e-4)
    # A random set carries all or nothing, so the mean is how often the carrier was drawn.
    draws = np.random.default_rng(0)
    number = CARRIER[0] * 8 + CARRIER[1]
    hit = [number in draws.choice(count, 1, replace=False) for _ in range(30)]
    assert sets.loc[("random", 1), "effect"] == pytest.approx(np.mean(hit), abs=1e-4)
    assert cause.facts["pairs"] == 6 and cause.facts["clusters_drawn"] == 6
    assert len(list((tmp_path / "kept").iterdir())) == 10
    again = ScanOptions(sizes=(1, 4), random_sets=30, exact=False)
    found = scan(planted, pairs_of(), ranked, again, None)
    assert found.heads["effect"].isna().all() and found.heads["attribution"].notna().all()
    # Of one cluster there is a share, and no interval.
    alone = PairSet("question", [replace(t, cluster="m") for t in pairs_of().pairs], True, "")
    one = scan(planted, alone, ranked, how, tmp_path / "kept")
    assert one.sets["low"].isna().tolist() == [True, True, False, True, True, False]
    assert one.heads[["effect_low", "effect_high"]].isna().all(axis=None)
    pd.testing.assert_series_equal(one.heads["effect"], cause.heads["effect"])


def test_a_scan_that_was_stopped_goes_on(planted: LoadedModel, tmp_path: Path) -> None:
    how, ranked = ScanOptions(sizes=(1, 1), random_sets=3), sets_of(planted)

    def stop(done: int, total: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan(planted, pairs_of(), ranked, how, tmp_path, stop)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(kept) == 7
    found = scan(planted, pairs_of(), ranked, how, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert list(found.sets["by"]) == ["patching", "y_p", "random"]
    whole = scan(planted, pairs_of(), ranked, how)
    pd.testing.assert_frame_equal(found.heads, whole.heads)
    pd.testing.assert_frame_equal(found.sets, whole.sets)


def test_statements_on_one_context_are_read_once(
    lively: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers as each by itself, and as with films of unlike shape."""
    a, b = pair().samples
    shared = ContrastPair((replace(a, context="c"), replace(b, context="c")), ("red", "blue"), "g")
    rows: list[int] = []
    begin = interchange.prefix.prefill

    def counted(loaded: LoadedModel, inputs: dict[str, Tensor], **how: bool) -> State:
        rows.append(len(inputs["input_ids"]))
        return begin(loaded, inputs, **how)

    monkeypatch.setattr(interchange.prefix, "prefill", counted)
    once = read_pair(lively, shared, False)
    both = read_pair(lively, replace(shared, samples=(a, b)), False)
    assert rows == [1, 2]
    monkeypatch.setattr(Sample, "shape", lambda sample: (len(sample.item_id),))
    apart = read_pair(lively, replace(shared, samples=(a, replace(b, item_id="longer"))), False)
    assert rows == [1, 2, 1, 1]
    for sides in (both, apart):
        for side, other in zip(once, sides, strict=True):
            assert side.logit_diff == pytest.approx(other.logit_diff, abs=1e-5)
            torch.testing.assert_close(side.heads, other.heads, atol=1e-5, rtol=1e-4)
