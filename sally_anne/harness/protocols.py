"""The benchmarks as their authors run them: prompts, system messages and lengths, as data.

Templates have the fields of one's own (``--template``, see harness/views.py): the authors' prompts
in them are facts of their protocols, quoted to the character, with their source beside. What cannot
be known of a protocol, or is done otherwise here, stands in ``departs``, and is said above figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ProtocolName = Literal["sally-anne", "official"]
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
        departs: what is not known of the protocol, or is otherwise here; empty for nothing.
    """

    templates: Mapping[str, str]
    reply_tokens: int
    source: str
    systems: Mapping[str, str] = field(default_factory=dict)
    labels: str = ""
    departs: str = ""


_ASKED_OF_GRIDTOM = (
    "Question: {question} Choose from {option_1} or {option_2}.\n"
    "Requirement: Please answer only in the following JSON format without adding any "
    "additional text or instructions:"
    '```json{{"answer": "your option"}}'
)
_TOLD_OF_GRIDTOM = "Description: {world} {caption}\n" + _ASKED_OF_GRIDTOM

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
            "multimodal": _TOLD_OF_GRIDTOM,
            "video": _ASKED_OF_GRIDTOM,
            "text": _TOLD_OF_GRIDTOM,
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
}


def protocol_of(task: str, order: str) -> str:
    """The name of a task's protocol among :data:`PROTOCOLS`; ``order`` is GridToM's."""
    return INITIAL if task == "gridtom" and order == "initial" else task
