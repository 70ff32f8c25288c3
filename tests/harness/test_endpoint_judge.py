"""A judge behind an address: a server of this test answers, and nothing leaves the machine."""

from __future__ import annotations

import json
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from sally_anne.core.errors import HarnessError
from sally_anne.harness.endpoint.address import key_from, public
from sally_anne.harness.endpoint_judge import EndpointJudge
from sally_anne.harness.judge import Asked
from tests.harness.chat_server import Server, Sleeping, completion

pytestmark = pytest.mark.integration

ASKED = Asked("What does he hold?", "An umbrella.", "He holds an umbrella.")
KEY = "sk-secret-0123"


def judge(server: Server, **named: Any) -> tuple[EndpointJudge, list[float]]:
    """A judge that waits for nothing, and what it would have waited."""
    slept = Sleeping()
    named |= {"sleep": slept.sleep, "clock": slept.clock}
    return EndpointJudge(server.url, "gpt-x", KEY, **named), slept.slept


def test_a_good_answer(server: Server) -> None:
    server.script = [(200, completion("TRUE. Both hold one.")), (200, completion("False, he ..."))]
    found, slept = judge(server)
    verdicts = found.judge([ASKED, Asked("Who?", " ", "He."), replace(ASKED, reply="A dog.")])
    assert [v.right for v in verdicts] == [True, False, False]
    assert [v.invalid for v in verdicts] == [False] * 3
    assert verdicts[0].text == "TRUE. Both hold one." and verdicts[0].probability is None
    assert slept == [] and len(server.seen) == 2  # not asked about the empty reply
    path, headers, body = server.seen[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert headers["Content-Type"] == "application/json"
    assert body["model"] == "gpt-x" and body["temperature"] == 0
    assert "He holds an umbrella." in body["messages"][0]["content"]


def test_the_whole_address_no_key_and_own_settings(server: Server) -> None:
    server.script = [(200, completion("TRUE"))]
    named = EndpointJudge(
        f"{server.url}/chat/completions/",
        "m",
        settings={"temperature": None, "max_completion_tokens": 9},
    )
    assert named.judge([ASKED])[0].right
    path, headers, body = server.seen[0]
    assert path == "/v1/chat/completions" and "Authorization" not in headers
    assert "temperature" not in body and body["max_completion_tokens"] == 9


@pytest.mark.parametrize("content", ["Perhaps.", "TRUE or FALSE", "", None])
def test_unreadable_verdicts_are_invalid(server: Server, content: str | None) -> None:
    server.script = [(200, completion(content))]
    verdict = judge(server)[0].judge([ASKED])[0]
    assert verdict.invalid and not verdict.right and verdict.text == (content or "")


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()


def stop_midway(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "500")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')
    handler.wfile.flush()
    handler.connection.close()


@pytest.mark.parametrize(
    "failure",
    [
        (500, b"oops"),
        (429, b"slow down"),
        (503, b""),
        (200, b"<html>"),
        (200, b'{"choices": []}'),
        (200, b'{"error": {"message": "busy"}}'),
        (200, b"[" * 100_000),
        (200, b"\xff"),
        (200, completion([3])),
        hang_up,
        stop_midway,
    ],
    ids=lambda f: getattr(f, "__name__", None) or f"{f[0]} {f[1][:12]!r}",
)
def test_a_failure_that_may_pass_is_tried_again(server: Server, failure: Any) -> None:
    server.script = [failure, failure, (200, completion("TRUE"))]
    found, slept = judge(server, pause=0.5)
    assert found.judge([ASKED])[0].right
    assert slept == [0.5, 1.0] and len(server.seen) == 3


def test_the_endpoint_says_how_long_to_wait(server: Server) -> None:
    server.headers = {"Retry-After": "7"}
    server.script = [(429, b""), (200, completion("TRUE"))]
    found, slept = judge(server)
    assert found.judge([ASKED])[0].right and slept == [7.0]
    server.headers = {"Retry-After": "99999"}
    server.script = [(429, b"")]
    with pytest.raises(HarnessError, match="429; 1 try; it asks to wait 99999 s"):
        found.judge([ASKED])
    assert slept == [7.0]


def test_malformed_json_throughout_is_an_error(server: Server) -> None:
    server.script = [(200, b"{]")] * 3
    found, slept = judge(server, tries=3)
    with pytest.raises(HarnessError, match=r"does not answer \(no chat completion but '\{\]'; 3"):
        found.judge([ASKED])
    assert len(slept) == 2 and len(server.seen) == 3


def test_a_timeout_is_an_error_in_time(server: Server) -> None:
    server.script = [lambda handler: time.sleep(6.0)] * 2
    found, slept = judge(server, tries=2, timeout=0.1)
    began = time.perf_counter()
    with pytest.raises(HarnessError, match="does not answer .*timed out; 2 tries"):
        found.judge([ASKED])
    assert time.perf_counter() - began < 5 and slept == [1.0]


def dripping(handler: BaseHTTPRequestHandler, head: bool) -> None:
    """A byte now and then, for as long as somebody listens; at most 20 s."""
    with suppress(OSError):
        start = b"HTTP/1.0 200 OK\r\n" + (b"X: " if head else b"\r\n")
        handler.wfile.write(start)
        for _ in range(400):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)


@pytest.mark.parametrize("head", [True, False])
def test_a_reply_that_drips_is_cut(server: Server, head: bool) -> None:
    server.script = [lambda handler: dripping(handler, head)] * 2
    found, slept = judge(server, tries=2, timeout=0.4)
    began = time.perf_counter()
    with pytest.raises(HarnessError, match="does not answer .*timed out; 2 tries"):
        found.judge([ASKED])
    assert 0.8 <= time.perf_counter() - began < 15 and slept == [1.0]


SECRETS = (KEY, "q:ry/s3cret")
ADDRESS = "?api-version=1&sig=q%3Ary%2Fs3cret"


@pytest.mark.parametrize(
    "answer",
    [
        (400, "no {} {}"),
        (400, "x" * 1995 + "{} {}"),
        (500, "no {} {}"),
        (200, "no JSON {} {}"),
        (200, "x" * 195 + "{} {}"),
        (200, '{{"choices": [{{"message": {{"content": {{"a": ["{}", "{}"]}}}}}}]}}'),
        (200, '{{"choices": [{{"message": {{"content": "TRUE {} {}"}}}}]}}'),
    ],
)
def test_no_secret_is_repeated(server: Server, answer: tuple[int, str]) -> None:
    """Not one of the key's or the address's, as it is or as it stands in an address."""
    status, text = answer
    server.headers = {"Retry-After": KEY}
    for secrets in (SECRETS, (KEY, "q%3Ary%2Fs3cret")):
        server.script = [(status, text.format(*secrets).encode())]
        server.url, plain = f"{server.url}{ADDRESS}", server.url
        found, _ = judge(server, tries=1)
        server.url = plain
        assert found.endpoint.url == f"{plain}/chat/completions?api-version=1&sig=[hidden]"
        try:
            verdict = found.judge([ASKED])[0]
            said = verdict.text
            assert verdict.right and said == "TRUE [hidden] [hidden]"
        except HarnessError as error:
            said = "".join(traceback.format_exception(error))
            assert found.endpoint.url in said
        assert not any(secret[:6] in said for secret in (*SECRETS, *secrets))
        assert not any(secret[:6] in repr(found.about) for secret in (*SECRETS, *secrets))
    assert "sig=q%3Ary%2Fs3cret" in server.seen[-1][0]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:pw@host:1/v1?key=k#f", "https://host:1/v1?key=[hidden]"),
        ("https://host/v1?a&api-version=2", "https://host/v1?[hidden]&api-version=2"),
        ("https://host/a@b", "https://host/a@b"),
        ("me:pw@host/v1?k=v", "host/v1?k=[hidden]"),
    ],
)
def test_an_address_is_shown_without_secrets(address: str, shown: str) -> None:
    assert public(address) == shown


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_an_error_at_once_and_never_shows_the_key(server: Server, status: int) -> None:
    server.script = [(status, f"bad key\n {KEY}".encode())]
    found, slept = judge(server)
    with pytest.raises(
        HarnessError, match=rf"refuses: HTTP {status} .*: bad key \[hidden\]"
    ) as error:
        found.judge([ASKED])
    assert slept == [] and KEY not in str(error.value)
    assert KEY not in repr(found) and KEY not in repr(found.about)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(server: Server, status: int) -> None:
    server.headers = {"Location": f"{server.url}/elsewhere"}
    server.script = [(status, b"")]
    with pytest.raises(HarnessError, match=f"refuses: HTTP {status}"):
        judge(server)[0].judge([ASKED])
    assert len(server.seen) == 1


def test_nobody_there() -> None:
    found = EndpointJudge("http://127.0.0.1:9/v1", "m", tries=2, sleep=lambda s: None)
    with pytest.raises(HarnessError, match=r"at http://127.0.0.1:9/v1/chat/completions does not"):
        found.judge([ASKED])
    with pytest.raises(HarnessError, match="is no address"):
        EndpointJudge("http://a..b/v1", "m", tries=1).judge([ASKED])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host/v1",
        "file:///etc/passwd",
        "ftp://h/v1",
        "http://",
        "http://h:port/v1",
        "http://[/v1",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(HarnessError, match="is no address of an endpoint"):
        EndpointJudge(url, "m")


def test_other_bad_options() -> None:
    with pytest.raises(HarnessError, match="must not hold a name or password"):
        EndpointJudge("https://me:pw@host/v1", "m")
    with pytest.raises(HarnessError, match="name of a model"):
        EndpointJudge("https://host/v1", " ")
    with pytest.raises(HarnessError, match="characters that no key has") as error:
        EndpointJudge("https://host/v1", "m", "sk-\nsecret")
    assert "secret" not in str(error.value)
    for numbers in ({"tries": 0}, {"timeout": 0}, {"pause": -1}, {"timeout": float("nan")}):
        with pytest.raises(HarnessError, match="at least one try and positive times"):
            EndpointJudge("https://host/v1", "m", **numbers)  # type: ignore[arg-type]


def test_the_key_of_a_variable(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_JUDGE", f" {KEY}\n")
    server.script = [(200, completion("TRUE"))]
    key = key_from("MY_JUDGE", "--judge-key")
    assert EndpointJudge(server.url, "m", key).judge([ASKED])[0].right
    assert server.seen[0][1]["Authorization"] == f"Bearer {KEY}"
    monkeypatch.setenv("MY_JUDGE", "")
    with pytest.raises(HarnessError, match="variable MY_JUDGE of --judge-key holds no key"):
        key_from("MY_JUDGE", "--judge-key")
    with pytest.raises(HarnessError, match="--judge-key names no environment variable") as error:
        key_from(KEY, "--judge-key")
    assert KEY not in str(error.value)


def test_what_verdicts_depend_on() -> None:
    one, two = (EndpointJudge("https://host/v1", model, KEY).about for model in ("a", "b"))
    assert one != two and json.dumps(one)
    assert one["judge"] == "https://host/v1/chat/completions"
