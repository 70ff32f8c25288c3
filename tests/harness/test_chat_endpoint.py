"""A model behind an endpoint: asked with patience, kept at once, never asked twice."""

from __future__ import annotations

import base64
import io
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
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
from sally_anne.harness.chat_endpoint import ChatEndpoint
from sally_anne.harness.config import EvalConfig, checked_address
from sally_anne.harness.distractors import write_lines
from sally_anne.harness.evaluate import evaluate, prompt_of
from sally_anne.harness.judge import Judge, JudgeRequest
from sally_anne.harness.model import Prompt
from sally_anne.harness.tasks import load_items
from tests.harness import made_benchmarks as made
from tests.harness.chat_server import Server, Step, completion, words
from tests.made_replies import printed

pytestmark = pytest.mark.integration
KEY = "gsk_secret0123"
QUESTION = Prompt("Where?")
FIGURES = (1000, 10)
ROOT = Path(__file__).parents[2]
QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client does not wait before it tries again."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.0)


def endpoint(server: Server, **named: Any) -> ChatEndpoint:
    return ChatEndpoint(server.url, "m", KEY, **named)


def question(number: int) -> Prompt:
    return Prompt(f"Question {number}?")


def test_a_request_is_what_it_says_and_no_more(server: Server) -> None:
    server.script = [(200, completion("A", usage=FIGURES))]
    reply = endpoint(server, fields={"seed": 3, "temperature": None}).replies([QUESTION])[0]
    assert (reply.text, reply.ended, reply.usage) == ("A", True, FIGURES)
    (path, headers, body) = server.seen[0]
    assert path == "/v1/chat/completions" and headers["Authorization"] == f"Bearer {KEY}"
    asked = [{"role": "user", "content": "Where?"}]
    assert body == {"model": "m", "messages": asked, "seed": 3, "max_tokens": 16}


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
    asked = endpoint(server)
    for _ in range(2):
        with asked.keeping(tmp_path):
            reply = asked.replies([QUESTION])[0]
            assert (reply.text, reply.finish) == ("", "content_filter")
    assert len(server.seen) == 1


def test_requests_begin_no_faster_than_the_rate(server: Server) -> None:
    server.answer = lambda body: (200, completion("A"))
    began = time.monotonic()
    endpoint(server, rate=300, at_once=4).replies([question(i) for i in range(5)])
    assert time.monotonic() - began >= 4 * 60 / 300


def test_the_limit_holds_over_runs_and_threads(server: Server, tmp_path: Path) -> None:
    """A reply takes 1,010 tokens."""
    server.answer = lambda body: (200, completion("A", usage=FIGURES))
    questions = [question(i) for i in range(30)]
    for at_once in (8, 1):
        asked = endpoint(server, limit=10_500, at_once=at_once)
        with asked.keeping(tmp_path), pytest.raises(HarnessError, match="10100 are taken"):
            asked.replies(questions)
        assert len(server.seen) == 10
    asked = endpoint(server, limit=40_000, at_once=8)
    with asked.keeping(tmp_path):
        assert len(asked.replies(questions)) == 30
    assert len(server.seen) == 30


def test_one_that_fails_loses_no_other(server: Server, tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Step:
        bad = "Question 5?" in body["messages"][0]["content"]
        return (403, b"no") if bad and not mended else (200, completion("A"))

    mended = False
    server.answer = answer
    questions = [question(i) for i in range(12)]
    asked = endpoint(server, at_once=3)
    with asked.keeping(tmp_path), pytest.raises(HarnessError, match="403"):
        asked.replies(questions)
    mended = True
    with asked.keeping(tmp_path):
        assert len(asked.replies(questions)) == 12
    assert len(server.seen) == 13  # all once, and the one that failed again


@pytest.fixture
def task(tmp_path: Path) -> Path:
    lines = [
        {"question": f"Question {i}?", "options": ["yes", "no"], "answer": "yes"} for i in range(12)
    ]
    write_lines(tmp_path / "task.jsonl", lines)
    return tmp_path / "task.jsonl"


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
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setattr("sally_anne.harness.chat_endpoint.TIMEOUT", 0.6)
    server.script = faults()
    server.answer = lambda body: (200, completion(f"A. {KEY}", usage=FIGURES))
    out = tmp_path / "run"
    config = EvalConfig(
        **options(server, task, out),
        endpoint_key="MY_KEY",
        batch_size=4,
    )
    table, said = printed(evaluate, config)
    assert table["robust_correct"].all() and len(table) == 12
    assert len(server.seen) >= 12 + 12  # every failure once more
    asked = len(server.seen)
    assert "gpt-x" in said
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert KEY.encode() not in written + said.encode()
    assert not table["reply"].str.contains(KEY).any()
    again = evaluate(config, console=Console(quiet=True))
    assert len(server.seen) == asked and again.equals(pd.read_parquet(out / "answers.parquet"))


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
    given = ["--task", str(task), "--endpoint", server.url, "--endpoint-model", "gpt-x"]
    given += ["--batch-size", "1", "--out", str(out)]
    command = [sys.executable, "-m", "sally_anne", "evaluate", *given]
    began = subprocess.Popen(command, cwd=ROOT, env=os.environ)
    assert waiting.wait(120)
    os.kill(began.pid, signal.SIGKILL)
    began.wait()
    release.set()
    # What is in the client's journal alone is not asked again either.
    lines = (out / "answers.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 5
    (out / "answers.jsonl").write_text("".join(lines[:3]))
    evaluate(EvalConfig(**options(server, task, out), batch_size=1), console=Console(quiet=True))
    assert len(answered) == len(set(answered)) == 12
    assert len(pd.read_parquet(out / "answers.parquet")) == 12


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


@pytest.mark.parametrize(
    "asked",
    [
        {"task": "gridtom", "limit": 1, "order": "initial", "setting": "video"},
        {"task": "gridtom", "limit": 1, "prompting": "simtom"},
        {"task": "muma_tom", "frames": 3, "max_pixels": 32 * 32},
        {"task": "mimeqa", "protocol": "official"},
    ],
    ids=lambda asked: "-".join(map(str, asked.values())),
)
def test_an_evaluation_sends_each_items_frames(
    server: Server, tmp_path: Path, asked: dict[str, Any]
) -> None:
    if asked["task"] != "gridtom":
        asked = asked | {"data": getattr(made, asked["task"])(tmp_path / "data")}
    config = EvalConfig(
        **asked, endpoint=server.url, endpoint_model="gpt-x", out=tmp_path / "run", batch_size=3
    )
    # Equal requests, as the second ones of simtom might be, are made once.
    server.answer = lambda body: (200, completion(sha256(repr(body).encode()).hexdigest()))
    evaluate(config, console=QUIET)
    items = load_items(config).items
    bodies = [body for _, _, body in server.seen]
    first = {words(body): body for body in bodies if pictures_in(body)}
    for item in items:
        assert item.clip is not None
        prompt = prompt_of(item)
        body = first.pop(prompt.text)
        assert np.array_equal(np.stack(pictures_in(body)), item.clip())
        assert [m["content"] for m in body["messages"][:-1]] == [item.system][: bool(item.system)]
    assert not first
    if config.max_pixels:
        with pytest.raises(HarnessError, match="max_pixels"):
            evaluate(replace(config, max_pixels=config.max_pixels * 4), console=QUIET)


def test_verdicts_of_an_endpoint(server: Server) -> None:
    texts = ["TRUE. The same.", "FALSE", "well", None]
    server.script = [(200, completion(text)) for text in texts]
    judge = Judge(endpoint(server))
    requests = [JudgeRequest("What?", f"reply {n}", "so") for n in range(len(texts))]
    results = judge.judge(requests)
    assert [r.right for r in results] == [True, False, False, False]
    assert [r.invalid for r in results] == [False, False, True, True]
    assert all(r.probability is None for r in results)
    assert server.seen[0][2]["max_tokens"] == 256 and server.seen[0][2]["temperature"] == 0
    other = Judge(endpoint(server, fields={"seed": 1}))
    assert other.about != judge.about


@pytest.mark.parametrize("answer", [(200, completion(f"I repeat {KEY}")), (403, KEY.encode())])
def test_no_secret_is_repeated(server: Server, answer: Step, tmp_path: Path) -> None:
    server.script = [answer]
    asked = endpoint(server)
    with asked.keeping(tmp_path):
        try:
            words = asked.replies([QUESTION])[0].text
        except HarnessError as error:
            words = str(error)
    assert KEY not in words and "[hidden]" in words
    assert KEY not in (tmp_path / "endpoint.jsonl").read_text()
    for wrong in ("https://me:pw@host/v1", "https://host/v1?key=pw", "host/v1"):
        with pytest.raises(HarnessError, match="--endpoint-key") as refused:
            checked_address(wrong)
        assert "pw" not in str(refused.value)
    assert checked_address("https://host/v1/?api-version=2").endswith("completions?api-version=2")
