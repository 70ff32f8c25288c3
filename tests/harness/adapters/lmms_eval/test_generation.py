"""What tasks ask for beside greedy decoding is refused or named."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lmms_eval")

from sally_anne.core.errors import HarnessError  # noqa: E402
from sally_anne.harness.adapters.common import Decoding  # noqa: E402
from sally_anne.harness.adapters.lmms_eval.model import decoding_of  # noqa: E402

pytestmark = pytest.mark.plugins


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Decoding(128, ())),
        ({"max_new_tokens": 3, "until": "."}, Decoding(3, (".",))),
        ({"until": None}, Decoding(128, ())),
        ({"until": ["", "\n\n", "Q:"]}, Decoding(128, ("\n\n", "Q:"))),
        # Tasks say so and mean greedy decoding; lmms-eval's own models read them so.
        ({"temperature": 0, "do_sample": True, "top_p": 0.9}, Decoding(128)),
        ({"temperature": None, "do_sample": False, "num_beams": 1}, Decoding(128)),
    ],
)
def test_greedy_options(options: dict[str, Any], expected: Decoding) -> None:
    assert decoding_of(options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.2}, "greedy, but temperature is 0.2 .*temperature=0"),
        ({"temperature": "warm"}, "temperature must be a finite number, is 'warm'"),
        ({"do_sample": True}, "do_sample True"),
        ({"do_sample": True, "temperature": None}, "do_sample True"),
        ({"num_beams": 4}, "num_beams is 4"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number from 1 on, is 0"),
        ({"max_new_tokens": "many"}, "is 'many'"),
        ({"max_new_tokens": True}, "is True"),
        ({"until": 5}, "until must be a string or a list of strings, is 5"),
        ({"until": ["a", None]}, "until"),
    ],
)
def test_what_is_not_done_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        decoding_of(options)


def test_unknown_options_are_named_once() -> None:
    from loguru import logger

    said: list[str] = []
    number = logger.add(said.append, level="WARNING", format="{message}")
    try:
        for _ in range(2):
            assert decoding_of({"image_aspect_ratio": "original"}) == Decoding(128)
    finally:
        logger.remove(number)
    assert said == [
        "generation option image_aspect_ratio='original' is passed over: sally_anne has none\n"
    ]
