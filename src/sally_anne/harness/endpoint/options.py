"""The options that put a model behind an endpoint in a local one's place."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from sally_anne.core.errors import HarnessError
from sally_anne.core.options import Positive, spelled
from sally_anne.harness.endpoint.address import checked, key_from, public
from sally_anne.models.options import ModelOptions

# Options that reach into a model or open one here; an endpoint has no use for them.
_OF_THE_INSIDE = ("steer", "alpha", "options")
# What a local model takes that an endpoint does as well: frames are scaled before they are sent.
_SHARED = ("max_pixels",)


@dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    """A model behind an address that speaks the OpenAI chat-completions protocol.

    Attributes:
        endpoint: address of the model, such as https://host/v1, in place of --model. So many
            requests as --batch-size says are made at the same time.
        endpoint_model: its name there.
        endpoint_key: name of the environment variable that holds the key, if it wants one.
        endpoint_rate: requests a minute at most, of each endpoint.
        endpoint_prices: of a million tokens read and of a million written.
        endpoint_limit: what may be spent in this run folder, in the unit of the prices.
        endpoint_fields: further fields of each request, also of a judge's or perceiver's at an
            address, as a JSON object; null leaves one out, as in {"max_tokens": null,
            "max_completion_tokens": 500, "temperature": null}.
        endpoint_timeout: seconds of one try.
    """

    endpoint: str | None = None
    endpoint_model: str = ""
    endpoint_key: str | None = None
    endpoint_rate: Positive | None = None
    endpoint_prices: tuple[float, float] | None = None
    endpoint_limit: Positive | None = None
    endpoint_fields: str | None = None
    endpoint_timeout: Positive = 120.0


def named(config: Any) -> str:
    """The model that is asked, for titles and folders."""
    at_endpoint = getattr(config, "endpoint", None) is not None
    name: str = config.endpoint_model if at_endpoint else config.model
    return name


def saved(config: Any) -> dict[str, Any]:
    """The options as a run's folder keeps them: addresses without their secrets."""
    return {
        name: public(value) if isinstance(value, str) and "://" in value else value
        for name, value in asdict(config).items()
    }


def check_endpoint(config: Any) -> None:
    """HarnessError, which names the option, if an endpoint cannot be used as asked."""
    prices = config.endpoint_prices
    if prices is not None and not all(price >= 0 for price in prices):
        raise HarnessError(f"--endpoint-prices must not be negative, got {prices}")
    request_fields(config)
    if config.endpoint is None:
        for option in ("endpoint_model", "endpoint_key"):
            if getattr(config, option) != getattr(EndpointOptions, option):
                raise HarnessError(f"{spelled(option)} is for an endpoint: give --endpoint")
        return
    checked(config.endpoint)
    if not config.endpoint_model.strip():
        raise HarnessError("--endpoint needs --endpoint-model, the name of a model there")
    if config.endpoint_limit is not None and prices is None:
        raise HarnessError("--endpoint-limit needs --endpoint-prices")
    key_from(config.endpoint_key, "--endpoint-key")
    local = [field.name for field in fields(ModelOptions) if field.name not in _SHARED]
    for option in (*local, *_OF_THE_INSIDE):
        default = getattr(type(config), option, None)
        if getattr(config, option, default) != default:
            why = (
                "nobody can look into or change a model behind an endpoint"
                if option in _OF_THE_INSIDE
                else "it says how a model is opened here"
            )
            raise HarnessError(f"{spelled(option)} does not go with --endpoint: {why}")


def check_second(config: Any, role: str) -> None:
    """HarnessError if a run's second model, named by its role's own options, is ill described.

    ``--judge`` takes a model's name or an address; what goes with an address are
    ``--judge-model``, ``--judge-key`` and ``--judge-prices``.
    """
    given, option = getattr(config, role), spelled(role)
    own = [f"{role}_{name}" for name in ("model", "key", "prices")]
    if given and "://" in given:
        checked(given, option)
        if not getattr(config, own[0]).strip():
            raise HarnessError(f"{option} with an address needs {spelled(own[0])}")
        if config.endpoint_limit is not None and getattr(config, own[2]) is None:
            raise HarnessError(f"--endpoint-limit needs {spelled(own[2])}, what the {role} costs")
        key_from(getattr(config, own[1]), spelled(own[1]))
        return
    limits = ("endpoint_rate", "endpoint_prices", "endpoint_limit", "endpoint_fields")
    for name in limits if config.endpoint is None else ():
        if getattr(config, name) is not None:
            raise HarnessError(f"{spelled(name)} is for an endpoint: give --endpoint")
    why = f" at an address; {option} {given} is a model" if given else f": give one with {option}"
    for name in own:
        if getattr(config, name) != getattr(type(config), name):
            raise HarnessError(f"{spelled(name)} is for a {role}{why}")


def request_fields(config: Any) -> dict[str, Any]:
    """What ``--endpoint-fields`` holds; HarnessError if it is no JSON object."""
    if config.endpoint_fields is None:
        return {}
    try:
        found = json.loads(config.endpoint_fields)
    except ValueError as error:
        raise HarnessError(f"--endpoint-fields is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise HarnessError("--endpoint-fields must be a JSON object")
    if taken := {"model", "messages", "stream", "n"} & found.keys():
        raise HarnessError(f"--endpoint-fields must not hold {min(taken)!r}")
    return found
