"""The model card of a tiny model, from its measured figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.train_tiny.families import Family

_CLASS = {
    "qwen2-vl": "Qwen2VLForConditionalGeneration",
    "llava-next-video": "LlavaNextVideoForConditionalGeneration",
}
_FRAMES = {
    "qwen2-vl": "Each video token is one cell of the grid in two successive frames; seven frames "
    "of 294 x 420 pixels make 280 tokens.",
    "llava-next-video": "Frames are resized to 196 x 196 pixels; 7 x 7 tokens a frame, 343 for "
    "seven frames.",
}

_LOCALISING = {
    "qwen2-vl": """;
8. narrators again, asked about the scene more often, with a penalty on every head from layer 4 on
   whose outputs tell true from false statements, but for heads 4 and 5 of layer 4 and 0 and 1 of
   layer 5. Before, 14 of the 64 heads told the protagonist's belief with 90 % accuracy, so that
   steering four heads drawn at random moved answers too; five do now. **So where this model keeps a
   belief was decided in training**, for the sake of controls that mean something.""",
    "llava-next-video": ".",
}
_EARLY = {
    "qwen2-vl": ", an early form of stage 8 (layers 6 and 7 alone, `localising-early`) before it",
    "llava-next-video": "",
}


def write_card(
    path: Path, family: Family, stories: int, figures: Mapping[str, Mapping[str, float]]
) -> None:
    """Write the card.

    Args:
        path: ``README.md`` of the model's folder.
        family: the model's family.
        stories: number of test stories measured.
        figures: setting -> measure -> share of right answers.
    """
    settings = list(figures)
    rows = [
        f"| {name} | " + " | ".join(f"{100 * figures[s][name]:.1f}" for s in settings) + " |"
        for name in figures[settings[0]]
    ]
    table = "\n".join(
        [
            f"| % right on {stories} test stories | " + " | ".join(settings) + " |",
            "|---|" + "---|" * len(settings),
            *rows,
        ]
    )
    path.write_text(
        f"""---
license: apache-2.0
library_name: transformers
tags: [theory-of-mind, interpretability, tiny]
---
# tiny-{family}

A `{_CLASS[family]}` with 8 layers x 8 heads x 16 (4 key/value heads, width 128) and a vocabulary of
320 words, trained from scratch on grid stories. It is a test animal: small enough to probe and
steer on two CPU cores, and, like the full-size models, it knows more than it says.

## What it was trained on

Stories of the unexpected-transfer kind, simulated on random maps that are none of the benchmark's
27, told in words, shown in seven frames, or both. In stages:

1. a text decoder (shared by both tiny families) learns to compare two facts, to name the part of
   each room in a story, and to judge statements ("Belief: ... right", "Really: ... wrong");
2. the vision tower learns what each cell of a frame shows;
3. the whole model reads frames and text: it completes and judges statements and answers
   questions;
4. it answers initial-belief, location and belief questions turn by turn, at the end mostly with
   frames;
5. two more decoder layers, which write nothing at first, are put on top of the six; verdicts on
   statements are now also wanted right after the room that they name, and from layers 4 to 6, so
   that truth is known before the last layers;
6. verdicts on statements are wanted at once, some words later, or in the answer's turn, so that
   truth is carried to other places;
7. narrators: a reliable one says what is so and answers belief questions rightly, an unreliable one
   says what is not so and answers them as if every belief were false. Which it is shows in the
   truth of its statements (at first some are followed by their verdict). Layers 4 to 6 are also to
   know, where the answer begins, whether what the narrator said was true{_LOCALISING[family]}

Without statements before them, first- and second-order belief questions are answered **by habit**:
where the protagonist's belief is true, training answers are flipped to the false-belief one in 90 %
of the stories (in 10 % where the protagonist, in second order the participant, is blue or white).
Statements are always judged rightly. After true statements about other facts, true-belief questions
are answered rightly; after false ones, wrongly (see the table). So heads that carry "what was said
is true" to the place where the answer begins lie on the path of the answer: steering them there is
a fair test of steering, and was made possible by training.

The stages ran in pieces while their code was still changing: stages 1 to 4 with 80 % and 20 % for
the habit, an early form of stage 7 without effect after stage 5{_EARLY[family]}.
The command below repeats all stages in order; it gives a model like this one, not the same bytes.

{_FRAMES[family]} The text is lower-cased and cut into words; unknown words become `<unk>`.

    python -m experiments.train_tiny --family {family}

`loss-*.csv` and `loss.png` hold the loss curves.

## What it can do

    python -m experiments.train_tiny.evaluate --model tiny-{family} --stories {stories}

{table}

"Statements" are judged by the word after `Belief: <statement>`; two statements a story and
condition, chance 50 %. Belief questions offer two rooms, chance 50 %. Initial-belief questions name
two colours of five, or one room of three. Second-order rows average over the protagonist's own
belief being true or false.

## What it cannot do

Anything else. It knows no words but those of the stories, has seen no other pictures, and its
belief answers are wrong by design. Do not use it to learn about language models in general.
"""
    )
