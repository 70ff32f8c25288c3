"""From texts and frames to inputs: every frame kept, the last token where it should be."""

from __future__ import annotations

import pytest
from tokenizers.processors import TemplateProcessing

from sally_anne.core.errors import ModelError
from sally_anne.models.processor import Unknown, unknown_words
from sally_anne.models.prompts import encode, open_prompt, reply_prompt

pytestmark = pytest.mark.integration

LONG = "There are three rooms. The door is closed. Belief: The red agent is now in the blue room."
SHORT = "Belief: The red agent is now in the green room."


class Sampling:
    """A video processor that drops frames of some clips, whatever it is asked."""

    def __init__(self, wrapped, clips: tuple[int, ...]) -> None:
        self.wrapped, self.clips = wrapped, clips

    def __call__(self, videos, **options):
        kept = [v[::2] if i in self.clips else v for i, v in enumerate(videos)]
        return self.wrapped(videos=kept, **options)

    def __getattr__(self, name: str):
        return getattr(self.wrapped, name)


def frames_in(inputs) -> list[int]:
    if "video_grid_thw" in inputs:
        return [2 * int(t) for t in inputs["video_grid_thw"][:, 0]]
    return [inputs["pixel_values_videos"].shape[1]] * len(inputs["pixel_values_videos"])


def kept(family: str) -> int:
    """Qwen2-VL pads seven frames to four pairs."""
    return 8 if family == "qwen2-vl" else 7


def tokens(loaded, row) -> list[str]:
    return loaded.processor.tokenizer.convert_ids_to_tokens(row.tolist())


def test_settings_that_sample_frames_are_overruled(fresh, clips) -> None:
    fresh.processor.video_processor.do_sample_frames = True
    fresh.processor.video_processor.num_frames = 4
    inputs = encode(fresh, [open_prompt(fresh, SHORT, True)], clips[:1])
    assert frames_in(inputs) == [kept(fresh.family.name)]


def test_a_processor_that_drops_frames_is_refused(fresh, clips) -> None:
    fresh.processor.video_processor = Sampling(fresh.processor.video_processor, (0,))
    message = f"kept 4 frames of clip 0, {kept(fresh.family.name)} were expected"
    with pytest.raises(ModelError, match=message):
        encode(fresh, [open_prompt(fresh, SHORT, True)], clips[:1])


@pytest.mark.parametrize("video", [True, False])
def test_open_prompt_ends_with_the_statements_full_stop(loaded, clips, video: bool) -> None:
    prompts = [open_prompt(loaded, text, video) for text in (LONG, SHORT)]
    assert [p.endswith(t) for p, t in zip(prompts, (LONG, SHORT), strict=True)] == [True, True]
    inputs = encode(loaded, prompts, clips if video else None)
    for row, colour in zip(inputs["input_ids"], ("blue", "green"), strict=True):
        assert tokens(loaded, row)[-3:] == [colour, "room", "."]
    assert inputs["attention_mask"][:, -1].tolist() == [1, 1]


def test_reply_prompt_opens_the_assistants_turn(loaded) -> None:
    header = {"qwen2-vl": "<|im_end|>\n<|im_start|>assistant\n", "llava-next-video": " ASSISTANT:"}
    for video in (True, False):
        prompt = reply_prompt(loaded, SHORT, video)
        assert prompt.endswith(SHORT + header[loaded.family.name])
        assert prompt.count("video") == (1 if video else 0)


@pytest.mark.parametrize("in_template", [True, False])
def test_there_is_one_first_token(fresh, in_template: bool) -> None:
    tokenizer = fresh.processor.tokenizer
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    if in_template:
        fresh.processor.chat_template = "{{ bos_token }}" + fresh.processor.chat_template
    inputs = encode(fresh, [open_prompt(fresh, text, False) for text in (LONG, SHORT)], None)
    count = (inputs["input_ids"] == tokenizer.bos_token_id).sum(dim=1)
    assert count.tolist() == [1, 1]


def test_words_that_the_tokenizer_does_not_know_are_counted(loaded) -> None:
    known = "The red agent is in the blue room ."
    texts = [known, known, "The Giraffe is in the room .", "A zebra , a\x1b giraffe .", "zebra"]
    found = unknown_words(loaded, texts, most=2)
    assert found == Unknown(prompts=3, of=5, tokens=5, examples=("Giraffe", "zebra"))
    assert unknown_words(loaded, [known]) == Unknown(0, 1, 0, ())
