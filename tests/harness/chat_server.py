"""A server of the tests that speaks the chat protocol; nothing leaves the machine."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Step = tuple[int, bytes] | Callable[[BaseHTTPRequestHandler], None]


def completion(content: Any, finish: str = "stop", usage: tuple[int, int] | None = None) -> bytes:
    """The body of a reply."""
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": finish}
    body: dict[str, Any] = {"choices": [choice]}
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return json.dumps(body).encode()


def judgement(body: dict[str, Any], likely: float) -> Step:
    """A reply whose first token is A or B with these probabilities, to one who asks for them."""
    assert body["max_tokens"] == 1 and body["logprobs"] and body["top_logprobs"] == 5
    answers = (("A", likely), ("B", 1 - likely))
    top = [{"token": token, "logprob": math.log(p)} for token, p in answers]
    choice = {
        "message": {"content": max(answers, key=lambda one: one[1])[0]},
        "finish_reason": "stop",
        "logprobs": {"content": [{**top[0], "top_logprobs": top}]},
    }
    usage = {"prompt_tokens": 100, "completion_tokens": 1}
    return 200, json.dumps({"choices": [choice], "usage": usage}).encode()


def words(body: dict[str, Any]) -> str:
    """What a request asks."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


@dataclass
class Server:
    """Answers the script's steps one after the other, then by ``answer`` from the request."""

    url: str
    script: list[Step] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    answer: Callable[[dict[str, Any]], Step] | None = None


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address at which requests are handled so."""
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    httpd.server_close()
    thread.join()


@contextmanager
def serving() -> Iterator[Server]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                headers = {name.title(): value for name, value in self.headers.items()}
                state.seen.append((self.path, headers, body))
                step = state.script.pop(0) if state.script or not state.answer else None
            if step is None:
                assert state.answer is not None
                step = state.answer(body)
            if callable(step):
                step(self)
                return
            self.send_response(step[0])
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(step[1])))
            self.end_headers()
            self.wfile.write(step[1])

        def log_message(self, *arguments: object) -> None:
            pass

    with served(Handler) as address:
        state = Server(f"{address}/v1")
        yield state


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as state:
        yield state
