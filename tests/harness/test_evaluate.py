"""What goes through a model together, and which answer belongs to which item."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.errors import SallyAnneError
from sally_anne.core.folder import Journal
from sally_anne.data import samples
from sally_anne.data.items import Option, Question
from sally_anne.data.media import read_clip
from sally_anne.harness import questions
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import ask
from sally_anne.harness.model import Completion, Prompt, SteeredModel
from sally_anne.models.tiny import Family
from sally_anne.probing import extraction, pipeline
from sally_anne.probing.config import ProbeConfig
from tests.harness.made_benchmarks import film
from tests.made_replies import (
    Scribe,
    evaluated,
    figures_of,
    printed,
    replied,
    scripted_replies,
    stopped_after,
)
from tests.made_stories import KEY_FRAMES, NUMBERS, asked_of, made_stories, replies
from tests.shared_data import official_data

pytestmark = pytest.mark.integration
# Frames, height and width of the items' clips; None is shown in words.
SHAPES = [(2, 4, 4), (2, 4, 4), (3, 4, 4), (2, 4, 4), (2, 8, 4), None, None, (2, 4, 4)]


class Scripted:
    """Replies with the number that a prompt's text ends with; its frames must say the same."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def replies(self, prompts: Sequence[Prompt], max_new_tokens: int) -> list[Completion]:
        shapes = {None if p.clip is None else p.clip.shape for p in prompts}
        assert len(shapes) == 1, "one batch of clips of several shapes"
        assert all(p.clip is None or (p.clip == int(p.text[-1])).all() for p in prompts)
        self.batches.append([prompt.text[-1] for prompt in prompts])
        return replied(f"option {'AB'[int(prompt.text[-1]) % 2]}" for prompt in prompts)

    def option_log_probs(
        self, prompts: Sequence[Prompt], options: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        assert [prompt.text[-1] for prompt in prompts] == self.batches[-1]
        assert all(list(labels) == ["A", "B", "C"] for labels in options)
        # The likeliest is option n mod 3, the least likely the one after it.
        return [np.roll([-0.5, -4.0, -2.0], int(p.text[-1]) % 3).tolist() for p in prompts]


def item(number: int) -> Question:
    shape, options = SHAPES[number], tuple(Option(label, f"thing {label}") for label in "ABC")
    clip = None if shape is None else partial(np.full, (*shape, 3), number, np.uint8)
    about = {"text": f"What is {number}", "answer": "ABC"[number % 3], "clip": clip}
    return Question(f"i{number}", "made", "test", f"s{number}", "", options, **about)


@pytest.mark.parametrize(
    ("size", "batches"), [(8, ["0137", "2", "4", "56"]), (3, ["01", "2", "3", "4", "5", "6", "7"])]
)
def test_clips_of_one_batch_have_one_shape(tmp_path: Path, size: int, batches: list[str]) -> None:
    model, items = Scripted(), [item(number) for number in range(8)]
    with Journal(tmp_path / "answers.jsonl", {}) as journal:
        config = EvalConfig(batch_size=size, max_new_tokens=16, options=True)
        table = ask(model, items, journal, config, lambda done, total: None)  # type: ignore[arg-type]
    assert ["".join(batch) for batch in model.batches] == batches
    assert table["item_id"].tolist() == [f"i{n}" for n in range(8)]
    assert table["reply"].tolist() == [f"option {'AB'[n % 2]}" for n in range(8)]
    assert table["robust_label"].tolist() == ["AB"[n % 2] for n in range(8)]
    assert table["robust_correct"].tolist() == [n % 2 == n % 3 for n in range(8)]
    assert table["options_label"].tolist() == ["ABC"[n % 3] for n in range(8)]
    assert table["options_correct"].all() and not table["options_invalid"].any()


@pytest.fixture
def config(folders: dict[Family, Path], tmp_path: Path) -> EvalConfig:
    return EvalConfig(
        model=str(folders["qwen2-vl"]), setting="text", limit=3, out=tmp_path / "run", batch_size=4
    )


def test_goes_on_where_it_was_stopped(config: EvalConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_after(monkeypatch, "replies", 1)
    with pytest.raises(KeyboardInterrupt):
        run(config)
    kept = (config.folder / "answers.jsonl").read_text()
    assert len(kept.splitlines()) == 1 + 4
    monkeypatch.undo()
    run(config)
    whole = (config.folder / "answers.jsonl").read_text()
    assert whole.startswith(kept) and len(whole.splitlines()) == 1 + 6
    stopped_after(monkeypatch, "replies", 0)
    run(config)
    # More questions into the same folder: it has each that was answered.
    monkeypatch.undo()
    for limit in (3, 4):
        run(replace(config, limit=limit))
        table, asked = (
            pd.read_parquet(config.folder / f"{n}.parquet") for n in ("answers", "items")
        )
        assert asked["item_id"].tolist() == table["item_id"].tolist()
        assert len(asked) == 2 * limit


def test_auto_tries_before_the_first_answer_and_never_after_the_last(
    config: EvalConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = SteeredModel.replies
    sizes: list[int] = []

    def watched(self: SteeredModel, prompts, max_new_tokens=16):
        sizes.append(len(prompts))
        return replies(self, prompts, max_new_tokens)

    def four_fit(model, trial, on_cpu, processes):
        assert on_cpu == 16
        trial(64)
        return 4

    monkeypatch.setattr(SteeredModel, "replies", watched)
    monkeypatch.setattr("sally_anne.harness.evaluate.fitting", four_fit)
    run(replace(config, batch_size="auto"))
    assert sizes == [6, 4, 2]
    monkeypatch.setattr(
        "sally_anne.harness.evaluate.fitting", lambda *_: pytest.fail("tried again")
    )
    run(replace(config, batch_size="auto"))


@pytest.fixture
def reported(folders: dict[Family, Path], tmp_path: Path) -> EvalConfig:
    # Batches of three cut stories.
    return EvalConfig(model=str(folders["qwen2-vl"]), out=tmp_path / "run", batch_size=3)


def run(reported: EvalConfig) -> tuple[pd.DataFrame, dict[str, Any], list[list[str]], str]:
    """The saved answers and results, the cells of the printed table, and all that is printed."""
    table, saved, text = evaluated(reported)
    rows = text.split("──\n", 1)[1].split("\n\n", 1)[0].splitlines()
    cells = [re.split(r"\s{2,}", row.strip()) for row in rows]
    return table, saved, cells, text


def _in_json(text: str) -> str:
    """A plain question of made stories, asked for a JSON object."""
    ask = 'Reply with a JSON object and nothing else; its field "answer" holds the room.'
    return text.replace(" Question:", "\n\nQuestion:").replace(" Answer:", f"\n{ask}")


# With four stories the ends of a bootstrap interval are those of a binomial distribution.
SHOWN = {
    "robust": "50.0 [0.0, 100.0]|75.0 [25.0, 100.0]|25.0 [0.0, 75.0]|12.5 [0.0, 37.5]",
    "official": "25.0 [0.0, 75.0]|25.0 [0.0, 75.0]|0.0 [0.0, 0.0]|75.0 [50.0, 100.0]",
    "options": "50.0 [0.0, 100.0]|100.0 [100.0, 100.0]|50.0 [0.0, 100.0]|0.0 [0.0, 0.0]",
}
# Which of the eight options of highest probability are right: 2 of TB, all of FB.
CHOSEN = ["right", "right", "right", "right", "wrong", "right", "wrong", "right"]


def test_gridtom_from_planted_answers_to_the_table(reported, monkeypatch) -> None:
    monkeypatch.setattr(
        "sally_anne.harness.gridtom.open_stories", lambda folder, seed: made_stories()
    )
    asked = [a for story in made_stories() for a in asked_of(story.index, "1")]
    by_text = {_in_json(a.text): a for a in asked}
    place: dict[str, int] = {}

    def reply(prompt: Prompt) -> str:
        number = place.setdefault(prompt.text, len(place))
        own = by_text[prompt.text]
        return replies("1", [own] * 8)[number]

    def scores(
        self: SteeredModel, prompts: Sequence[Prompt], options: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        found = []
        for prompt, labels in zip(prompts, options, strict=True):
            own = by_text[prompt.text]
            assert list(labels) == list(own.options)
            wanted = CHOSEN[place[prompt.text]] == "right"
            found.append([-0.5 if (o in own.answer) == wanted else -1.75 for o in labels])
        return found

    seen = scripted_replies(monkeypatch, reply)
    monkeypatch.setattr(SteeredModel, "option_log_probs", scores)
    reported = replace(reported, options=True, limit=4, style="json")
    table, saved, cells, _ = run(reported)

    own = [by_text[prompt.text] for prompt in seen]
    for prompt, question in zip(seen, own, strict=True):
        version = 1 if question.condition == "FB" else 0
        first = 40 * (int(question.story.removeprefix("story-")) % 4) + 20 * version
        assert prompt.clip is not None
        assert prompt.clip[:, 0, 0, 0].tolist() == [first + tick for tick in KEY_FRAMES]

    wrong = [next(o for o in q.options if o not in q.answer) for q in own]
    said = replies("1", own)
    robust = [q.answer[0] for q in own]
    robust[3], robust[4], robust[6] = wrong[3], wrong[4], None  # type: ignore[call-overload]
    official = [q.answer[0] if "{" in reply else None for q, reply in zip(own, said, strict=True)]
    best = [
        w if kind == "wrong" else q.answer[0] for q, w, kind in zip(own, wrong, CHOSEN, strict=True)
    ]
    labels = {"official_label": official, "robust_label": robust, "options_label": best}
    for column, chosen in labels.items():
        assert table[column].astype(object).where(table[column].notna(), None).tolist() == chosen
        right = [label in q.answer for label, q in zip(chosen, own, strict=True)]
        assert table[column.replace("label", "correct")].tolist() == right
    for fact in ("item_id", "story", "condition", "first"):
        assert table[fact].tolist() == [getattr(q, fact) for q in own]
    assert table["reply"].tolist() == said and not table["cut"].any()
    lines = [json.loads(line) for line in (reported.folder / "answers.jsonl").open()][1:]
    assert [line["reply"] for line in lines] == said
    assert {tuple(sorted(line["option_log_probs"])) for line in lines} == {(-1.75, -0.5)}

    by_options = {"TB": 2 / 4, "FB": 4 / 4, "Both": 2 / 4, "invalid": 0.0}
    numbers = NUMBERS["1"] | {"options": by_options}
    for reader, found in numbers.items():
        wanted = {name: (value, 8 if name == "invalid" else 4) for name, value in found.items()}
        assert figures_of(saved["results"], reader) == wanted
    columns = [row.split("|") for row in SHOWN.values()]
    rows = zip(("TB", "FB", "Both", "invalid"), "4448", *columns, strict=True)
    assert cells == [[*row] for row in rows]
    # What is kept is not asked again, and says the same.
    scripted_replies(monkeypatch, lambda prompt: pytest.fail("asked again"))
    again, same, shown, _ = run(reported)
    pd.testing.assert_frame_equal(again, table)
    assert (same["results"], shown) == (saved["results"], cells)


def test_bigtom_controls_are_neither_true_nor_false_beliefs(
    reported, tmp_path, monkeypatch
) -> None:
    """Four stories in four conditions; what changes nothing is a condition of its own."""
    # Whether each story is answered rightly, by condition.
    planted = {
        "true_belief": "1111",
        "false_belief": "1100",
        "true_control": "1110",
        "false_control": "0001",
    }
    asked: dict[str, str] = {}
    for name, right in planted.items():
        path = official_data("made", "bigtom", f"0_forward_belief_{name}", "stories.csv")
        with path.open(newline="") as file:
            for row, ok in zip(csv.reader(file, delimiter=";"), right, strict=True):
                asked[row[0]] = row[2] if ok == "1" else row[3]

    def reply(prompt: Prompt) -> str:
        (wanted,) = [text for story, text in asked.items() if story in prompt.text]
        return next(line[0] for line in prompt.text.splitlines() if line.endswith(wanted))

    scripted_replies(monkeypatch, reply)
    data = official_data("made", "bigtom")
    table, saved, cells, _ = run(replace(reported, task="bigtom", data=data))
    assert dict(table.groupby("tag_condition")["robust_correct"].sum()) == {
        "TB": 4,
        "FB": 2,
        "TB control": 3,
        "FB control": 1,
    }
    assert set(table.loc[table["tag_condition"].str.contains("control"), "condition"]) == {""}
    both = {"TB": (1.0, 4), "FB": (0.5, 4), "Both": (0.5, 4)}
    shares = {"TB": 1.0, "FB": 0.5, "TB control": 0.75, "FB control": 0.25}
    assert figures_of(saved["results"]) == {
        **{"all": (10 / 16, 16), "invalid": (0.0, 16)},
        **{"variable: forward_belief": (10 / 16, 16), "initial_belief: hidden": (10 / 16, 16)},
        **{f"condition: {condition}": (share, 4) for condition, share in shares.items()},
        **both,
        **{f"hidden, forward_belief: {name}": one for name, one in both.items()},
    }
    shown = {row[0]: row[1:] for row in cells}
    assert len(shown) == 14 and cells[0][:2] == ["all", "16"]
    assert shown["condition: TB control"] == ["4", "75.0 [25.0, 100.0]"]
    assert shown["Both"] == shown["hidden, forward_belief: Both"] == ["4", "50.0 [0.0, 100.0]"]
    assert shown["invalid"] == ["16", "0.0 [0.0, 0.0]"]


def test_open_replies_from_planted_verdicts_to_the_agreement(
    reported, tmp_path, monkeypatch
) -> None:
    def write(*references: str) -> None:
        kinds = ["Affect Recognition", "Grounding the Imagined"] * 2
        with (tmp_path / "data" / "annotation_final.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file", "question", "question type", "timestamp", "reference_answer"])
            for n, (kind, reference) in enumerate(zip(kinds, references, strict=True)):
                writer.writerow([f"film{n // 2}.mp4", f"What is {n}?", kind, "", reference])

    for n in range(2):
        film(tmp_path / "data" / "videos" / f"film{n}.mp4")
    write("A rope.", "A wall.", "A dog.", "A door.")
    judge = Scribe()
    opened: dict[str, Any] = {}
    monkeypatch.setattr(
        "sally_anne.harness.chat_endpoint.load_model", lambda **options: opened.update(options)
    )
    monkeypatch.setattr("sally_anne.harness.judge.Judge", lambda *_: judge)
    said = {"0": "A rope.", "1": "A bird.", "2": "perhaps", "3": "A door."}
    scripted_replies(
        monkeypatch,
        lambda prompt: next(r for n, r in said.items() if f"What is {n}?" in prompt.text),
    )
    reported = replace(
        reported, task="mimeqa", view="none", data=tmp_path / "data", judge="somebody"
    )
    reported = replace(reported, attn_implementation="eager")
    table, saved, cells, _ = run(reported)
    assert sum(judge.batches, []) == [*said.values()]
    assert (opened["name"], opened["attn_implementation"]) == ("somebody", "eager")
    assert table["judge_correct"].tolist() == [True, False, False, True]
    assert table["judge_invalid"].tolist() == [False, False, True, False]
    found = figures_of(saved["results"], "judge")
    for category in ("Affect recognition", "Grounding the imagined"):
        assert found[f"category: {category}"] == (0.5, 2)
    assert cells[0] == ["all", "4", "50.0 [50.0, 50.0]"]
    assert ["invalid", "4", "25.0 [0.0, 50.0]"] in cells

    # People find the last reply wrong: three of four alike, where chance alone gives a half.
    labels = zip(table["item_id"], ("true", "false", "false", "false"), strict=True)
    pd.DataFrame(labels, columns=["item_id", "label"]).to_csv(tmp_path / "human.csv", index=False)
    judge.batches.clear()
    _, saved, _, text = run(replace(reported, human=tmp_path / "human.csv"))
    assert judge.batches == []
    assert (saved["agreement"]["agreement"], saved["agreement"]["kappa"]) == (0.75, 0.5)
    assert "judge and people agree on 75.0 % of 4 replies (kappa 0.50)" in text

    # The second reference is another one now: the reply is kept, its verdict is not.
    scripted_replies(monkeypatch, lambda prompt: pytest.fail("asked again"))
    write("A rope.", "A bird.", "A dog.", "A door.")
    table, saved, cells, _ = run(reported)
    assert judge.batches == [["A bird."]]
    assert table["judge_correct"].tolist() == [True, True, False, True]
    assert figures_of(saved["results"], "judge")["all"][0] == 0.75
    assert cells[0][:2] == ["all", "4"] and cells[0][2].startswith("75.0 [")


def test_films_are_shown_and_read_as_often_a_second_as_is_asked(
    folders: dict[Family, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, seen = read_clip, []
    for module in (questions, samples):
        monkeypatch.setattr(module, "read_clip", lambda *a: seen.append(own(*a)) or seen[-1])
    in_this_process = lambda work, pieces, *_: (work(piece) for piece in pieces)  # noqa: E731
    monkeypatch.setattr(extraction, "prefetch", in_this_process)
    films = [film(tmp_path / f"{n}.mp4").name for n in range(3)]
    asked = [{"video": films[0], "question": "Who?", "options": ["Ann", "Bob"], "answer": 0}]
    read = [{"video": f, "text": t, "labels": {"y": t == "Lit."}, "group": f}
            for f in films for t in ("Lit.", "Dark.")]  # fmt: skip
    for name, lines in (("asked", asked), ("read", read)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    quick = {"permutations": 0, "patching": False, "figures": False}
    evaluating = EvalConfig(task=str(tmp_path / "asked.jsonl"))
    probing = ProbeConfig(samples=tmp_path / "read.jsonl", **quick)
    for config, work in ((evaluating, evaluated), (probing, partial(printed, pipeline.run))):
        config = replace(
            config, model=str(folders["qwen2-vl"]), out=tmp_path / f"{work is evaluated}"
        )
        for most, times in ((None, [0, 0.5, 1, 1.5, 2, 2.5, 3]), (4, [0, 1, 2, 3])):
            seen.clear()
            config = replace(
                config, fps=2, most_frames=most, out=config.out.with_suffix(f".{most}")
            )
            work(config)
            assert seen and all(clip.times == pytest.approx(times, abs=0.11) for clip in seen)
        with pytest.raises(SallyAnneError):
            work(replace(config, most_frames=3))


def test_replies_of_people_are_scored_without_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sally_anne.harness.evaluate.load_model", None)
    lines = [{"id": n, "question": "Who?", "options": ["Ann", "Bob"], "answer": 1} for n in "abc"]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "eve.csv").write_text("item_id,reply,by\na,Bob,Eve\nb,A,Eve\nc,,Eve\n")
    own = {"task": str(tmp_path / "own.jsonl"), "replies": tmp_path / "eve.csv"}
    table, saved, text = evaluated(EvalConfig(**own, out=tmp_path / "run"))
    assert table["item_id"].tolist() == ["a", "b"]
    assert figures_of(saved["results"])["all"][0] == 0.5
    assert saved["config"]["model"] == "eve" and "eve, own" in text
    (tmp_path / "eve.csv").write_text("item_id,reply\na,Ann\nb,A\n")
    for other in ({"out": tmp_path / "run"}, {"out": tmp_path / "x", "prompting": "cot"}):
        with pytest.raises(SallyAnneError):
            evaluated(EvalConfig(**own, **other))
