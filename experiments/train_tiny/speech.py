"""The chat layout of a family, cut open so that documents can be put into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.train_tiny.families import END_OF_ANSWER, Family

_MARK = "@@"


@dataclass(frozen=True)
class Speech:
    """The family's chat layout around a user's content, cut open.

    Attributes:
        before: what stands before the content, video tokens included.
        before_text: the same without a video.
        after: what stands between the content and the answer.
        end: closes the answer.
        video_token: id of a video token.
    """

    before: str
    before_text: str
    after: str
    end: str
    video_token: int


def speech(family: Family, processor: Any, frames: int = 7) -> Speech:
    """Read the chat layout off the processor's own template."""
    blank = np.zeros((frames, 420, 294, 3), dtype=np.uint8)

    def render_chat(video: bool) -> str:
        content: list[dict[str, str]] = [{"type": "video"}] if video else []
        content.append({"type": "text", "text": _MARK})
        return processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )

    with_video, without = render_chat(True), render_chat(False)
    head, after = with_video.split(_MARK)
    counted = processor(text=[with_video], videos=[blank], return_tensors="pt")["input_ids"]
    video_token = processor.video_token_id
    tokens = int((counted == video_token).sum())
    return Speech(
        before=head.replace(processor.video_token, processor.video_token * tokens),
        before_text=without.split(_MARK)[0],
        after=after,
        end=END_OF_ANSWER[family],
        video_token=video_token,
    )
