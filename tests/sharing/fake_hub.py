"""A hub of the tests that keeps what is pushed; nothing leaves the machine."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from tests.harness.chat_server import served

# What goes by way of large-file storage; as the hub does, and small files, too.
LARGE = (".safetensors", ".parquet")


@dataclass
class Hub:
    """Repositories by their names: commits, the last of which is ``main``, with their files."""

    url: str = ""
    repositories: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def add(self, name: str, files: dict[str, bytes]) -> str:
        """Commit these files, in the place of all others; gives the commit."""
        commits = self.repositories.setdefault(name, {})
        told = json.dumps([len(commits), {n: digest(data) for n, data in files.items()}])
        commit = hashlib.sha1(told.encode()).hexdigest()
        commits[commit] = files
        return commit

    def files(self, name: str) -> dict[str, bytes]:
        """Those of ``main``."""
        return list(self.repositories[name].values())[-1]

    def commit_of(self, name: str, revision: str) -> str | None:
        commits = [*self.repositories[name]]
        return commits[-1] if revision == "main" else revision if revision in commits else None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            path = unquote(urlsplit(self.path).path)
            with lock:
                hub.asked.append(f"{self.command} {path}")
                self.route(path, body)

        do_GET = do_HEAD = do_POST = do_PUT = handle_any

        def route(self, path: str, body: bytes) -> None:
            if path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                there = name in hub.repositories
                if not there:
                    hub.add(name, {".gitattributes": b""})
                return self.say({"url": f"{hub.url}/{name}"}, 409 if there else 200)
            if path == "/api/validate-yaml":
                head = yaml.safe_load(json.loads(body)["content"].split("---\n")[1])
                wrong = [] if isinstance(head.get("license"), str) else [{"message": "license"}]
                return self.say({"errors": wrong, "warnings": []}, 400 if wrong else 200)
            if path.startswith("/blobs/"):
                oid = path.rpartition("/")[2]
                if self.command == "PUT":
                    assert digest(body) == oid
                    hub.blobs[oid] = body
                    return self.say({})
                return self.send(hub.blobs[oid])
            found = re.fullmatch(
                r"/(?:api/models/)?([\w.-]+/[\w.-]+?)(?:\.git)?"
                r"(?:/(revision|tree|preupload|commit|resolve|info/lfs/objects/batch)(?:/(.*))?)?",
                path,
            )
            name, what, rest = found.groups() if found else ("", None, None)
            if name not in hub.repositories:
                return self.say({"error": "no such repository"}, 404, code="RepoNotFound")
            if what == "info/lfs/objects/batch":
                return self.say({"objects": [self.upload(o) for o in json.loads(body)["objects"]]})
            if what == "preupload":
                paths = [file["path"] for file in json.loads(body)["files"]]
                modes = {path: "lfs" if path.endswith(LARGE) else "regular" for path in paths}
                told = [{"path": p, "uploadMode": modes[p], "shouldIgnore": False} for p in paths]
                return self.say({"files": told})
            if what == "commit":
                return self.commit(name, body)
            revision, _, file = (rest or "main").partition("/")
            commit = hub.commit_of(name, revision)
            if commit is None:
                return self.say({"error": "no such revision"}, 404, code="RevisionNotFound")
            files = hub.repositories[name][commit]
            if what == "tree":
                return self.say([entry(path, data) for path, data in files.items()])
            if what == "resolve":
                if file not in files:
                    return self.say({"error": "no such file"}, 404, code="EntryNotFound")
                return self.resolve(commit, file, files[file])
            names = [{"rfilename": path} for path in files]
            return self.say({"id": name, "sha": commit, "siblings": names, "private": False})

        def upload(self, wanted: dict[str, Any]) -> dict[str, Any]:
            if wanted["oid"] in hub.blobs:
                return wanted
            return wanted | {"actions": {"upload": {"href": f"{hub.url}/blobs/{wanted['oid']}"}}}

        def commit(self, name: str, body: bytes) -> None:
            files = dict(hub.files(name))
            for line in body.splitlines():
                key, value = (step := json.loads(line))["key"], step["value"]
                if key == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif key == "lfsFile":
                    files[value["path"]] = hub.blobs[value["oid"]]
                elif key == "deletedFile":
                    del files[value["path"]]
                else:
                    assert key == "header"
            oid = hub.add(name, files)
            self.say({"commitUrl": f"{hub.url}/{name}/commit/{oid}", "commitOid": oid})

        def resolve(self, commit: str, file: str, data: bytes) -> None:
            headers = {"X-Repo-Commit": commit, "ETag": f'"{git_oid(data)}"'}
            if not file.endswith(LARGE):
                return self.send(data, headers=headers)
            oid = digest(data)
            hub.blobs.setdefault(oid, data)
            headers |= {"X-Linked-Etag": f'"{oid}"', "X-Linked-Size": str(len(data))}
            # As the hub does it, on another host.
            elsewhere = hub.url.replace("127.0.0.1", "localhost")
            self.send(b"", 302, headers | {"Location": f"{elsewhere}/blobs/{oid}"})

        def say(self, found: Any, status: int = 200, code: str | None = None) -> None:
            headers = {"Content-Type": "application/json"} | (
                {"X-Error-Code": code} if code else {}
            )
            self.send(json.dumps(found).encode(), status, headers)

        def send(self, data: bytes, status: int = 200, headers: dict | None = None) -> None:
            self.send_response(status)
            for header, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
                self.send_header(header, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def entry(path: str, data: bytes) -> dict[str, Any]:
    size = {"size": len(data)}
    large = {"lfs": {"oid": digest(data), "pointerSize": 130, **size}}
    found = {"type": "file", "path": path, "oid": git_oid(data), **size}
    return found | (large if path.endswith(LARGE) else {})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A running hub, to which huggingface_hub is turned, with a cache of its own."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    state = Hub()
    with served(handler(state)) as state.url:
        turn_to(state.url, tmp_path / "cache", monkeypatch)
        yield state


def turn_to(url: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For processes that tests start, and for this one, which has read its environment."""
    import huggingface_hub.constants as constants

    files = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
