"""How questions are put: in the words of each benchmark's authors, or in ours.

Templates have the fields of ``--template`` (harness/prompts.py and, for GridToM,
harness/gridtom.py): the authors' prompts in them are facts of their protocols, quoted to the
character, with their source. What cannot be known of a protocol, or is done otherwise here, stands
in ``departs`` and is printed above figures.

``--prompting`` is the same for all benchmarks. ``direct`` asks for the answer alone. ``cot`` asks
for thoughts first (zero-shot chain of thought, Kojima et al. 2022); the answer is parsed from the
end of the reply. ``few-shot`` shows other questions with their answers first. ``simtom`` asks in
two steps (Wilf et al. 2023): the model retells what the person asked about knows, and then has the
question with that alone, without the story and its frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sally_anne.data.items import View

Baseline = Literal["cot", "simtom", "few-shot"]
Prompting = Literal["direct", Baseline]
ProtocolName = Literal["sally-anne", "official"]
# Views that show frames, and those that play the film's sound.
WITH_FRAMES: tuple[View, ...] = ("multimodal", "video", "audiovisual")
WITH_SOUND: tuple[View, ...] = ("audio", "audiovisual")
# Tokens of a reply that thinks before it answers, and of one that retells what a person knows.
THOUGHTS, RETOLD = 512, 256
# Where the second step has what was retold in the first.
KNOWN_MARK = "<what is known>"
# Where the text speaks of the frames, once they are known; see `Question.notes`.
FRAMES_MARK = "<frames>"
LENGTH_MARK, COUNT_MARK, TIMES_MARK = "<film length>", "<frame count>", "<frame times>"

# {form} is what an answer is, such as "A or B".
THINK = (
    "Think step by step first: what happens, and what of it can each person see or hear? Then "
    'write a last line: "Answer:" and {form}.'
)
# Before these stands the story, and the question where it is not known whose perspective it takes.
_RETELL = (
    "Tell in order what {person} sees, hears, does or is told, and nothing else. Leave out all "
    "that happens where {person} cannot notice it."
)
_RETELL_ASKED = (
    "Do not answer this question yet. Whose mind is it about? Tell in order what that person sees, "
    "hears, does or is told, and nothing else. Leave out all that happens where that person cannot "
    "notice it."
)


def retell(person: str, question: str) -> str:
    """What the first step of SimToM asks for, after the story.

    ``question`` stands before it where no ``person`` is known, as then the question must tell.
    """
    asked = f"Question: {question}\n{_RETELL_ASKED}"
    return _RETELL.format(person=person) if person else asked


def known(person: str) -> str:
    """How the second step begins; the reply of the first stands for :data:`KNOWN_MARK`."""
    who = person or "the person asked about"
    return f"This is all that {who} knows:\n{KNOWN_MARK}"


# The template of authors who publish no prompt: our own words (harness/prompts.py).
OURS = ""
# GridToM's initial-belief questions, which have a prompt of their own.
INITIAL = "gridtom initial"


@dataclass(frozen=True)
class Protocol:
    """How the authors of a benchmark put its questions.

    Attributes:
        templates: the user's turn, by view (GridToM: by setting); other views are not theirs.
        reply_tokens: the most tokens that a reply may have.
        source: where their code or paper says so.
        systems: the system message, by view; none where there is none.
        labels: what options are called in the templates, where the benchmark's records differ.
        minutes: whether times are written as ``01 min:2.50 sec``.
        departs: what is not known of the protocol, or is otherwise here; empty for nothing.
    """

    templates: Mapping[str, str]
    reply_tokens: int
    source: str
    systems: Mapping[str, str] = field(default_factory=dict)
    labels: str = ""
    minutes: bool = False
    departs: str = ""


_GRIDTOM_QUESTION = (
    "Question: {question} Choose from {option_1} or {option_2}.\n"
    "Requirement: Please answer only in the following JSON format without adding any "
    "additional text or instructions:"
    '```json{{"answer": "your option"}}'
)
_GRIDTOM_WITH_STORY = "Description: {world} {caption}\n" + _GRIDTOM_QUESTION

_OF_MIMEQA = (
    "You are an expert in mime performance understanding and question answering. \n"
    "    Typically, the mime would use exaggerated gestures or pretend objects to convey a "
    "message.\n    The video lasts for {length}, and {count} frames are uniformly sampled from "
    "it.\n    These frames are located at {times}. Answer the question in one sentence using the "
    "video, with brief explanations. \n    Do not describe the frames just answer the question. \n"
    "    If the mime is using imaginary objects, describe the objects as if they were real.\n    "
)

PROTOCOLS: Mapping[str, Protocol] = {
    "bigtom": Protocol(
        templates={
            "text": (
                "Story: {scene}\nQuestion: {question}\nChoose one of the following:\n"
                "a){option_1}\nb){option_2}"
            )
        },
        systems={
            "text": (
                "Answer the questions based on the context. Keep your answer concise, few words "
                "are enough, maximum one sentence. Answer as 'Answer:<option>)<answer>'."
            )
        },
        labels="ab",
        reply_tokens=100,
        source=(
            "cicl-stanford/procedural-evals-tom: code/src/evaluate_llm.py (chat-0shot), "
            "evaluate_conditions.py (--mcq), code/prompt_instructions/evaluate.txt"
        ),
        departs="replies with neither key go to a grader there, and are invalid here",
    ),
    "mmtom_qa": Protocol(
        templates={
            "multimodal": "{asked}\nAnswer: ",
            "text": "{asked}\nAnswer: ",
            "video": "\nQuestion:{asked_alone}\nAnswer: ",
        },
        systems={"text": "You are a helpful assistant."},
        reply_tokens=5,
        source="chuanyangjin/MMToM-QA: BIP-ALM/testing_gpt.py (gpt-4v with frames, gpt-4 without)",
        departs="frames follow the words there, and stand before them here",
    ),
    "gridtom": Protocol(
        templates={
            "multimodal": _GRIDTOM_WITH_STORY,
            "video": _GRIDTOM_QUESTION,
            "text": _GRIDTOM_WITH_STORY,
        },
        reply_tokens=20,
        source="Annaisavailable/GridToM: evaluate.py (both forms of its text), evaluate.sh",
        departs=(
            "their code has no second order and no text alone: those have the prompt of the first "
            "order, and that with frames; --split published are the stories of their test"
        ),
    ),
    INITIAL: Protocol(
        templates={"multimodal": "Description: {world}\nQuestion: {question}"},
        reply_tokens=400,
        source="Annaisavailable/GridToM: init_belief.py, init_belief.sh",
        departs="theirs are the questions of all stories, here of those of --split",
    ),
    "mimeqa": Protocol(
        templates={
            "video": _OF_MIMEQA + "\nQuestion: {asked}",
            "multimodal": _OF_MIMEQA + "The title of the video is {title}\nQuestion: {asked}",
        },
        minutes=True,
        reply_tokens=128,
        source=(
            "MIT-MI/MimeQA: model_evaluation/llava_video_eval.py, eval_utils.py; the paper's "
            "appendix B.4"
        ),
        departs=(
            "a judge is asked in this project's words; frames are a second apart by their times, "
            "there by their numbers; Qwen2.5-VL and Gemini, which sample frames themselves, are "
            "given no words on frames there"
        ),
    ),
    "moments": Protocol(
        templates={"multimodal": OURS, "text": OURS, "none": OURS},
        reply_tokens=32,
        source="the paper's section 5.1 and table 3; villacu/MoMentS has no evaluation code",
        departs=(
            "their prompt and length of replies are not published, and this project's are used; "
            "theirs are the 64 frames, the two windows and the options as published"
        ),
    ),
    "muma_tom": Protocol(
        templates={"multimodal": OURS, "text": OURS},
        reply_tokens=32,
        source="the paper's appendix; SCAI-JHU/MuMA-ToM has the code of LIMP alone",
        departs=(
            "their baselines' prompt and length of replies are not published, and this project's "
            "are used; theirs are every 20th frame and the options as published"
        ),
    ),
}
