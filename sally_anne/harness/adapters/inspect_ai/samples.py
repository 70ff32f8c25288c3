"""Items of the harness as inspect-ai's samples, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, Content, ContentImage, ContentText, ContentVideo

from sally_anne.benchmarks.items import Option
from sally_anne.harness.items import Item

Media = Literal["video", "images"]
_FACTS = ("item_id", "story", "split", "condition", "first", "names")


def sample_of(item: Item, media: Media) -> Sample:
    """An item with its frames, which keep every bit.

    Args:
        item: what is asked.
        media: ``video`` gives the frames as one film, ``images`` as pictures, one a frame.
    """
    # Torch is imported here: inspect-ai loads its plug-ins in every command.
    from sally_anne.harness.adapters.inspect_ai.media import film_uri, picture_uris
    from sally_anne.harness.evaluate import prompt_of

    prompt = prompt_of(item)
    parts: list[Content] = []
    if prompt.clip is not None and media == "video":
        parts.append(ContentVideo(video=film_uri(prompt.clip), format="mov"))
    elif prompt.clip is not None:
        parts += [ContentImage(image=uri) for uri in picture_uris(prompt.clip)]
    parts.append(ContentText(text=prompt.text))
    return Sample(
        id=item.item_id,
        input=[ChatMessageUser(content=parts)],
        target=list(item.answer),
        metadata={
            **{name: getattr(item, name) for name in _FACTS},
            "options": {option.label: option.text for option in item.options},
            "answer": list(item.answer),
        },
    )


def item_of(metadata: Mapping[str, Any]) -> Item:
    """What a reader has to know of an item, from the metadata of its sample.

    Raises:
        KeyError: they are of another task.
    """
    return Item(
        **{name: metadata[name] for name in _FACTS},
        text="",
        options=tuple(Option(label, text) for label, text in metadata["options"].items()),
        answer=tuple(metadata["answer"]),
    )
