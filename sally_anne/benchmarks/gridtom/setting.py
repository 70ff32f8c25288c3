"""What of a story a model is given (GridToM paper, section 3.2)."""

from __future__ import annotations

from typing import Literal

Setting = Literal["multimodal", "video", "text"]
