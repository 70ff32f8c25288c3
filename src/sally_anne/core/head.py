"""One attention head: the type and the spelling that all rooms use."""

from __future__ import annotations

import re
from typing import NamedTuple


class Head(NamedTuple):
    """One attention head; printed and read as ``L4H0``."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """The head of a text such as ``L4H0``; ValueError for any other text."""
        match = re.fullmatch(r"L(\d+)H(\d+)", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no head; write one as L4H0")
        return cls(int(match[1]), int(match[2]))
