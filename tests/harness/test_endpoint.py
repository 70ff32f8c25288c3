"""A model behind an endpoint: asked with patience, kept at once, never asked twice."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rich.console import Console

from sally_anne.core.errors import HarnessError
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.dry_run import dry_run
from sally_anne.harness.endpoint.client import Endpoint
from sally_anne.harness.endpoint.limits import Budget
from sally_anne.harness.endpoint.model import EndpointModel
from sally_anne.harness.endpoint.replies import retry_after
from sally_anne.harness.evaluate import prompt_of
from sally_anne.harness.model import Prompt
from sally_anne.harness.pipeline import check, run
from sally_anne.harness.work import prepare
from tests.harness import made_benchmarks as made
from tests.harness.chat_server import Server, Sleeping, Step, completion

pytestmark = pytest.mark.integration

KEY = "gsk_secret0123"
QUESTION = [{"role": "user", "content": "Where?"}]
FIGURES = (1000, 10)
ROOT = Path(__file__).parents[2]


def endpoint(server: Server, **named: Any) -> tuple[Endpoint, Sleeping]:
    time_ = Sleeping()
    return Endpoint(server.url, "m", KEY, sleep=time_.sleep, clock=time_.clock, **named), time_


def question(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Question {number}?"}]


def test_frames_are_sent_as_pictures(server: Server) -> None:
    server.script = [(200, completion("the kitchen", "length"))]
    clip = np.random.default_rng(0).integers(0, 255, (2, 6, 8, 3), dtype=np.uint8)
    reply = EndpointModel(endpoint(server)[0]).replies([Prompt("Where?", clip)], 7)[0]
    assert reply.text == "the kitchen" and not reply.ended
    body = server.seen[0][2]
    assert body["max_tokens"] == 7 and body["temperature"] == 0
    *pictures, text = body["messages"][0]["content"]
    assert text == {"type": "text", "text": "Where?"} and len(pictures) == 2
    for frame, picture in zip(clip, pictures, strict=True):
        kind, data = picture["image_url"]["url"].split(",")
        assert kind == "data:image/png;base64"
        sent = Image.open(io.BytesIO(base64.b64decode(data)))
        assert np.array_equal(np.asarray(sent), frame)


def test_waiting_as_asked_holds_for_all(server: Server) -> None:
    server.headers = {"Retry-After": "7"}
    server.script = [(429, b""), (200, completion("A"))]
    asked, time_ = endpoint(server)
    assert asked.ask([QUESTION])[0].text == "A" and time_.slept == [7.0]
    assert retry_after({"Retry-After": formatdate(1000.0, usegmt=True)}, now=990.0) == 10.0
    assert [retry_after({"Retry-After": s}) for s in ("soon", "-3", "nan", "")] == [0.0] * 4


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ((401, b'{"error": {"message": "bad key gsk_secret0123"}}'), r"401 .*: bad key \[hidden\]"),
        ((404, b'{"error": {"message": "no model m"}}'), "404 .*: no model m.*the model's name"),
        ((429, b'{"error": {"code": "insufficient_quota", "message": "pay"}}'), "429 .*: pay"),
        ((400, b'{"error": {"code": "context_length_exceeded"}}'), "400 .*context_length"),
    ],
)
def test_what_no_waiting_mends_is_refused_at_once(server: Server, answer: Step, match: str) -> None:
    server.script = [answer]
    asked, time_ = endpoint(server)
    with pytest.raises(HarnessError, match=match) as error:
        asked.ask([QUESTION])
    assert len(server.seen) == 1 and time_.slept == [] and KEY not in str(error.value)


@pytest.mark.parametrize(
    "answer",
    [
        (400, b'{"error": {"code": "content_filter", "message": "no"}}'),
        (200, completion(None, "content_filter")),
    ],
)
def test_a_filtered_question_is_an_empty_reply(
    server: Server, answer: Step, tmp_path: Path
) -> None:
    server.script = [answer]
    asked, _ = endpoint(server)
    for _ in range(2):
        with asked.keeping(tmp_path / "kept.jsonl"):
            said = asked.ask([QUESTION])[0]
            assert (said.text, said.finish) == ("", "content_filter")
    assert len(server.seen) == 1


def test_tries_wait_longer_and_longer_and_then_end(server: Server) -> None:
    server.script = [(500, b""), (503, b""), (200, b'{"choices": []}'), (200, b"{")] + [(502, b"")]
    asked, time_ = endpoint(server, tries=5)
    with pytest.raises(HarnessError, match="does not answer .HTTP 502; 5 tries"):
        asked.ask([QUESTION])
    assert time_.slept == [1.0, 2.0, 4.0, 8.0]


def test_requests_begin_no_faster_than_the_rate(server: Server) -> None:
    server.answer = lambda body: (200, completion("A"))
    asked, time_ = endpoint(server, rate=30)
    asked.ask([question(i) for i in range(4)])
    assert time_.slept == [2.0, 2.0, 2.0] and time_.now == 6.0


def test_the_limit_holds_over_runs_and_threads(server: Server, tmp_path: Path) -> None:
    """A reply costs 0.002; one that cannot be used costs as much."""
    broken = json.dumps({"choices": [], "usage": {"prompt_tokens": 1000}}).encode()
    server.script = [(200, broken)]
    server.answer = lambda body: (200, completion("A", usage=FIGURES))
    questions = [question(i) for i in range(30)]
    for at_once in (8, 1):
        asked, _ = endpoint(server, prices=(2.0, 0.0), budget=Budget(0.0201))
        with (
            asked.keeping(tmp_path / "kept.jsonl"),
            pytest.raises(HarnessError, match="0.0200 of 0.0201 are spent"),
        ):
            asked.ask(questions, at_once)
        assert len(server.seen) == 10 and asked.usage["cost"] == pytest.approx(0.02)
    asked, _ = endpoint(server, prices=(2.0, 0.0), budget=Budget(1.0))
    with asked.keeping(tmp_path / "kept.jsonl"):
        assert len(asked.ask(questions, 8)) == 30
    assert len(server.seen) == 31 and asked.usage["requests"] == 31


def test_a_limit_needs_what_replies_cost(server: Server) -> None:
    with pytest.raises(HarnessError, match="needs the prices of m"):
        endpoint(server, budget=Budget(1.0))
    server.script = [(200, completion("A"))]
    with pytest.raises(HarnessError, match="does not say how many tokens"):
        endpoint(server, prices=(1.0, 1.0), budget=Budget(1.0))[0].ask([QUESTION])


def test_one_that_fails_loses_no_other(server: Server, tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Step:
        bad = "Question 5?" in body["messages"][0]["content"]
        return (403, b"no") if bad and not mended else (200, completion("A"))

    mended = False
    server.answer = answer
    questions = [question(i) for i in range(12)]
    asked, _ = endpoint(server)
    with (
        asked.keeping(tmp_path / "k.jsonl"),
        pytest.raises(HarnessError, match="refuses: HTTP 403"),
    ):
        asked.ask(questions, 3)
    mended = True
    with asked.keeping(tmp_path / "k.jsonl"):
        assert len(asked.ask(questions, 3)) == 12
    assert len(server.seen) == 13  # all once, and the one that failed again


@pytest.fixture
def task(tmp_path: Path) -> Path:
    lines = [
        {"question": f"Question {i}?", "options": ["yes", "no"], "answer": "yes"} for i in range(12)
    ]
    path = tmp_path / "task.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def options(server: Server, task: Path, out: Path) -> dict[str, Any]:
    return {"task": str(task), "endpoint": server.url, "endpoint_model": "gpt-x", "out": out}


def faults() -> list[Step]:
    def hang_up(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.close()

    def cut(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "500")
        handler.end_headers()
        handler.wfile.write(b'{"choices"')
        handler.wfile.flush()
        handler.connection.close()

    return [
        *((status, b"") for status in (429, 500, 502, 503, 529)),
        *((200, body) for body in (b'{"choices": [{"mess', b'{"choices": []}', b"<html>", b"\xff")),
        hang_up,
        cut,
        lambda handler: time.sleep(1.0),
    ]


def test_an_evaluation_outlives_every_failure(
    server: Server, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sally_anne.harness.endpoint.limits.Pace.wait", lambda *a: None)
    monkeypatch.setenv("MY_KEY", KEY)
    server.script = faults()
    server.answer = lambda body: (200, completion(f"A. {KEY}", usage=FIGURES))
    out = tmp_path / "run"
    config = EvalConfig(
        **options(server, task, out),
        endpoint_key="MY_KEY",
        endpoint_prices=(1.0, 1.0),
        endpoint_timeout=0.6,
        batch_size=4,
    )
    printed = io.StringIO()
    table = run(config, console=Console(file=printed, width=160))
    assert table["robust_correct"].all() and len(table) == 12
    assert len(server.seen) == 12 + 12  # every failure once more
    saved = json.loads((out / "results.json").read_text())
    assert saved["endpoints"]["model"] == {
        "requests": 12,
        "read": 12_000,
        "written": 120,
        "cost": pytest.approx(0.01212),
    }
    assert "gpt-x" in printed.getvalue() and "0.0121 spent" in printed.getvalue()
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert KEY.encode() not in written + printed.getvalue().encode()
    assert not table["reply"].str.contains(KEY).any()
    again = run(config, console=Console(quiet=True))
    assert len(server.seen) == 24 and again.equals(pd.read_parquet(out / "answers.parquet"))


@pytest.mark.integration
def test_nothing_is_lost_or_asked_twice_after_a_kill(
    server: Server, task: Path, tmp_path: Path
) -> None:
    out, waiting, release = tmp_path / "run", threading.Event(), threading.Event()
    answered: list[str] = []

    def answer(body: dict[str, Any]) -> Step:
        if len(answered) == 5 and not release.is_set():
            waiting.set()
            release.wait(60)
            return lambda handler: handler.connection.close()
        answered.append(body["messages"][0]["content"])
        return (200, completion("A"))

    server.answer = answer
    words = ["--task", str(task), "--endpoint", server.url, "--endpoint-model", "gpt-x"]
    words += ["--batch-size", "1", "--out", str(out)]
    command = [sys.executable, "-m", "sally_anne", "evaluate", *words]
    began = subprocess.Popen(command, cwd=ROOT, env=os.environ)
    assert waiting.wait(120)
    os.kill(began.pid, signal.SIGKILL)
    began.wait()
    release.set()
    # What is in the client's journal alone is not asked again either.
    lines = (out / "answers.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 5
    (out / "answers.jsonl").write_text("".join(lines[:3]))
    run(EvalConfig(**options(server, task, out), batch_size=1), console=Console(quiet=True))
    assert len(answered) == len(set(answered)) == 12
    assert len(pd.read_parquet(out / "answers.parquet")) == 12


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"steer": Path("v")}, "--steer does not go with --endpoint: nobody can look into"),
        ({"options": True}, "--options does not go with --endpoint"),
        ({"quantization": "4bit"}, "--quantization does not go with --endpoint: it says how"),
        ({"model": "qwen2-vl"}, "--model does not go with --endpoint"),
        ({"device": "cuda"}, "--device does not go with --endpoint"),
        ({"endpoint_model": ""}, "--endpoint needs --endpoint-model"),
        ({"endpoint_limit": 1.0}, "--endpoint-limit needs --endpoint-prices"),
        ({"endpoint_key": KEY}, "--endpoint-key names no environment variable that is set"),
        ({"endpoint_fields": "{"}, "--endpoint-fields is no JSON"),
        ({"endpoint_fields": '{"model": 1}'}, "must not hold 'model'"),
        ({"endpoint": "host"}, "is no address"),
        ({"endpoint": None}, "--endpoint-model is for an endpoint"),
    ],
)
def test_what_does_not_go_with_an_endpoint(task: Path, wrong: dict[str, Any], match: str) -> None:
    known = {"task": str(task), "endpoint": "https://host/v1", "endpoint_model": "m"}
    with pytest.raises(HarnessError, match=match) as error:
        check(EvalConfig(**known | wrong))
    assert KEY not in str(error.value)


def pictures_in(body: dict[str, Any]) -> list[np.ndarray]:
    """The frames of a request, as whoever gets them decodes them."""
    content = body["messages"][-1]["content"]
    found = []
    for part in content if isinstance(content, list) else ():
        if part["type"] == "image_url":
            kind, data = part["image_url"]["url"].split(",")
            assert kind == "data:image/png;base64"
            picture = Image.open(io.BytesIO(base64.b64decode(data)))
            assert (picture.format, picture.mode) == ("PNG", "RGB")
            found.append(np.asarray(picture))
    return found


def words_in(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


@pytest.mark.parametrize(
    "asked",
    [
        {"task": "gridtom", "limit": 2},
        {"task": "gridtom", "limit": 1, "order": "initial", "setting": "video"},
        {"task": "gridtom", "limit": 1, "prompting": "simtom"},
        {"task": "muma_tom", "frames": 3, "max_pixels": 32 * 32},
        {"task": "mimeqa"},
        {"task": "mimeqa", "protocol": "official"},
    ],
    ids=lambda asked: "-".join(map(str, asked.values())),
)
def test_an_evaluation_sends_each_items_frames_and_a_dry_run_counts_them(
    server: Server, tmp_path: Path, asked: dict[str, Any]
) -> None:
    if asked["task"] != "gridtom":
        asked = asked | {"data": getattr(made, asked["task"])(tmp_path / "data")}
    config = EvalConfig(
        **asked, endpoint=server.url, endpoint_model="gpt-x", out=tmp_path / "run", batch_size=3
    )
    planned = dry_run(config, Console(quiet=True))
    assert not server.seen and not config.folder.exists()
    # Equal requests, as the second ones of simtom might be, are made once.
    server.answer = lambda body: (200, completion(sha256(repr(body).encode()).hexdigest()))
    run(config, console=Console(quiet=True))
    items = prepare(config).items
    bodies = [body for _, _, body in server.seen]
    first = {words_in(body): body for body in bodies if pictures_in(body)}
    for item in items:
        assert item.clip is not None
        prompt = prompt_of(item)
        body = first.pop(prompt.text)
        assert np.array_equal(np.stack(pictures_in(body)), item.clip())
        assert [m["content"] for m in body["messages"][:-1]] == [item.system][: bool(item.system)]
    assert not first
    assert planned["requests"].value == len(bodies)
    assert planned["frames sent"].value == sum(len(pictures_in(body)) for body in bodies)
    assert planned["tokens written"].value == sum(body["max_tokens"] for body in bodies)
    # What is retold in the first step of simtom, a hash here, is not known before.
    words = sum(len(words_in(body)) for body in bodies) - 64 * sum(bool(i.before) for i in items)
    words += sum(len(item.system) for item in items)
    assert planned["characters sent"].value == words


def test_further_fields_reach_the_judge(server: Server, tmp_path: Path) -> None:
    fields = {"max_tokens": None, "max_completion_tokens": 77, "seed": 3}
    config = EvalConfig(
        task="mimeqa",
        view="none",
        data=made.mimeqa(tmp_path / "data"),
        endpoint=server.url,
        endpoint_model="asked",
        endpoint_fields=json.dumps(fields),
        judge=server.url,
        judge_model="judge",
        out=tmp_path / "run",
    )
    server.answer = lambda body: (200, completion("TRUE"))
    table = run(config, console=Console(quiet=True))
    assert table["judge_correct"].all()
    assert {body["model"] for _, _, body in server.seen} == {"asked", "judge"}
    for _, _, body in server.seen:
        assert "max_tokens" not in body and body["max_completion_tokens"] == 77
        assert body["seed"] == 3 and body["temperature"] == 0
    # Verdicts depend on them.
    (journal,) = config.folder.glob("verdicts-*.jsonl")
    about = json.loads(journal.read_text().splitlines()[0])["about"]
    assert about["judge_settings"] == {"temperature": 0, "max_completion_tokens": 77, "seed": 3}
