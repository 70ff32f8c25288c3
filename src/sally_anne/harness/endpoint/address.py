"""An endpoint's address and key: checked, and hidden wherever they are shown or saved."""

from __future__ import annotations

import json
import os
import urllib.parse

from sally_anne.core.errors import HarnessError

PATH = "/chat/completions"
# Stands for a secret where an address or an error is shown or saved.
HIDDEN = "[hidden]"
# Parts of an address that are no secrets; any other may be one.
_OPEN_FIELDS = frozenset({"api-version", "version", "model", "deployment"})


def key_from(variable: str | None, option: str) -> str:
    """The key in the environment variable that ``option`` names; empty without a name.

    HarnessError if it holds none. A variable that is not set is not repeated: it may be the key
    itself, given by mistake.
    """
    if variable is None:
        return ""
    if variable not in os.environ:
        raise HarnessError(
            f"{option} names no environment variable that is set; it takes the name of a variable, "
            "not the key itself"
        )
    key = os.environ[variable].strip()
    if not key:
        raise HarnessError(f"the environment variable {variable} of {option} holds no key")
    return key


def checked_key(key: str) -> str:
    """The key without spaces around it; HarnessError, which does not repeat it, if it is none."""
    key = key.strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise HarnessError("the endpoint's key holds characters that no key has")
    return key


def public(address: str) -> str:
    """An address as it is printed and saved: without name, password and secret fields."""
    rest, mark, query = address.partition("?")
    scheme, slashes, rest = rest.rpartition("://")
    host, slash, path = rest.partition("/")
    pairs = [pair.partition("=") for pair in query.partition("#")[0].split("&") if pair]
    kept = "&".join(
        f"{name}={value if name.lower() in _OPEN_FIELDS else HIDDEN}" if is_ else HIDDEN
        for name, is_, value in pairs
    )
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}{mark}{kept}"


def secrets(url: str, key: str) -> list[str]:
    """What must not be repeated, as it is, in an address and in JSON; the longest first."""
    fields = urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query, keep_blank_values=True)
    # A field without a value may be a secret itself.
    plain = {key} | {value or name for name, value in fields if name.lower() not in _OPEN_FIELDS}
    quoted = {urllib.parse.quote(one, safe="") for one in plain}
    escaped = {json.dumps(one)[1:-1] for one in plain}
    return sorted((plain | quoted | escaped) - {""}, key=len, reverse=True)


def checked(url: str, option: str = "--endpoint") -> str:
    """The whole address to post to; HarnessError, for ``option``, if it is none."""
    try:
        parts = urllib.parse.urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if HIDDEN in url:
        raise HarnessError(
            f"the address {url} lacks its secrets, which no run folder keeps: give {option} again"
        )
    if not usable or not url.strip().isascii() or any(c.isspace() for c in url.strip()):
        # Nobody knows where a name and password end in it.
        shown = HIDDEN if "@" in url else public(url)
        raise HarnessError(
            f"{shown!r} is no address of an endpoint; it should be like https://host/v1{PATH}"
        )
    if parts.username or parts.password:
        raise HarnessError("an endpoint's address must not hold a name or password; use the key")
    path = parts.path.rstrip("/").removesuffix(PATH) + PATH
    return urllib.parse.urlunsplit(parts._replace(path=path, fragment=""))
