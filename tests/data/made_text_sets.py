"""Records of the text sets in their official layouts, in words of our own."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

# ToMi: two stories of six questions; in the first Bo misses the move.
MOVED = [
    "Bo entered the attic.",
    "Al entered the attic.",
    "The kite is in the red_box.",
    "Bo exited the attic.",
    "Cy likes the plum",
    "Al moved the kite to the blue_chest.",
]
SEEN = [MOVED[1], MOVED[0], *MOVED[2:3], MOVED[5], MOVED[3]]
WAYS = [
    "enter_agent_1,enter_agent_0,agent_1_exits,agent_0_moves_obj",
    "enter_agent_0,enter_agent_1,agent_0_moves_obj,agent_1_exits",
]
TOMI_QUESTIONS = {
    "memory": ("Where was the kite at the beginning?", "red_box"),
    "first_order_1_tom": ("Where will Bo look for the kite?", "red_box"),
    "second_order_1_tom": ("Where does Bo think that Al searches for the kite?", "red_box"),
    "reality": ("Where is the kite really?", "blue_chest"),
    "first_order_0_no_tom": ("Where will Al look for the kite?", "blue_chest"),
    "second_order_0_tom": ("Where does Al think that Bo searches for the kite?", "red_box"),
}
# Where Bo saw the move, all beliefs are true.
TOMI_SEEN = {
    kind.replace("_1_tom", "_1_no_tom").replace("_0_tom", "_0_no_tom"): (
        question,
        right if kind == "memory" else "blue_chest",
    )
    for kind, (question, right) in TOMI_QUESTIONS.items()
}


def tomi_story(
    sentences: list[str], ways: str, kind: str, asked: dict[str, tuple[str, str]]
) -> tuple[str, str]:
    """The text and the trace of a story's questions."""
    text = "".join(
        f"{number} {line}\n"
        for question, right in asked.values()
        for number, line in enumerate([*sentences, f"{question}\t{right}\t1"], 1)
    )
    return text, "".join(f"{ways},{name},{kind}\n" for name in asked)


def tomi_texts() -> tuple[str, str]:
    """Both stories."""
    first = tomi_story(MOVED, WAYS[0], "false_belief", TOMI_QUESTIONS)
    second = tomi_story(SEEN, WAYS[1], "true_belief", TOMI_SEEN)
    return first[0] + second[0], first[1] + second[1]


def tomi(folder: Path, name: str = "test") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, text in zip((".txt", ".trace"), tomi_texts(), strict=True):
        (folder / f"{name}{suffix}").write_text(text)
    return folder


HI_TOM: dict[str, Any] = {
    "prompting_type": "VP",
    "deception": True,
    "story_length": 2,
    "question_order": 1,
    "sample_id": 17,
    "story": "1 Al, Bo and Cy entered the attic.\n2 The kite is in the red_box.\n\n",
    "question": "Where does Al really think the kite is?",
    "choices": "A. blue_chest, B. red_box, C. green_treasure_chest",
    "answer": "red_box",
}


def hi_tom_records() -> list[dict[str, Any]]:
    """Two stories of orders 0 to 4, order by order, and one question of the other prompting."""
    stories = ("1 One.\n2 The kite is in the red_box.\n\n", HI_TOM["story"])
    found = [
        HI_TOM | {"question_order": order, "sample_id": 2 * order + number, "story": story}
        for order in range(5)
        for number, story in enumerate(stories)
    ]
    return [*found, HI_TOM | {"prompting_type": "CoTP", "deception": False, "question_order": 0}]


def hi_tom(folder: Path) -> Path:
    return _json(folder / "Hi-ToM_data.json", {"data": hi_tom_records()})


def fantom_set(name: str = "3-1-0", access: str = "inaccessible") -> dict[str, Any]:
    """One set of questions; Di is in the whole conversation alone."""
    told = {"missed_info_accessibility": access}
    heard = "I am back" if access == "inaccessible" else "I know"
    told_in = f"Al: My dog is called Rex.\nCy: Nice.\nBo: {heard}."
    yes_no = [("Al", "yes"), ("Bo", "no" if access == "inaccessible" else "yes"), ("Di", "no:long")]
    return {
        "set_id": name,
        "short_context": told_in,
        "full_context": f"Di: Bye.\n{told_in}\nBo: Well.",
        "factQA": {
            "question": "What is Al's dog called?",
            "correct_answer": "Al's dog is called Rex.",
        },
        "beliefQAs": [
            {
                "question": "What does Bo believe Al's dog is called?",
                "tom_type": "first-order",
                "correct_answer": "Bo does not know.",
                "wrong_answer": "Bo believes that it is called Rex.",
                **told,
            },
            {
                "question": "What does Al believe that Bo believes Al's dog is called?",
                "tom_type": "second-order:cyclic",
                "correct_answer": "Al believes that Bo does not know.",
                "wrong_answer": "Al believes that Bo believes that it is called Rex.",
                **told,
            },
        ],
        **{
            f"{kind}QAs_binary": [
                {"question": f"Does {who} know {what}?", "correct_answer": answer, **told}
                for who, answer in yes_no
            ]
            for kind, what in (
                ("answerability", "the answer to this question"),
                ("infoAccessibility", "this information"),
            )
        },
    }


def fantom(folder: Path) -> Path:
    sets = [fantom_set("3-1-0"), fantom_set("3-1-1"), fantom_set("4-0-0", "accessible")]
    return _json(folder / "fantom_v1.json", sets)


OPENTOM: dict[str, Any] = {
    "plot_info": {
        "mover": "Al",
        "eoi": "kite",
        "original_place": "red_box",
        "move_to_place": "a blue chest",
        "observer": "Bo",
    },
    "observed": False,
    "narrative": "Al and Bo saw a kite in a red box. Bo left. Al took it to a blue chest.",
    "question": {},
}
OPENTOM_QUESTIONS: list[tuple[str, str, str]] = [
    (
        "As Bo, what is your attitude towards Al's action of moving kite from red_box to a blue "
        "chest?",
        "neutral",
        "attitude",
    ),
    ("From Al's perspective, how does red_box's fullness change?", "less full", "multihop-fo"),
    (
        "From Bo's perspective, how would kite's accessibility change for Al?",
        "equally accessible",
        "multihop-so",
    ),
    *(
        (
            f"From {who}'s perspective, is the kite in its initial location by the end of the "
            "story?",
            answer,
            "location-fo",
        )
        for who, answer in (("Al", "No"), ("Bo", "Yes"))
    ),
    ("From narrator's perspective, where is kite located?", "blue chest", "location-fo"),
    *(
        (f"From {who}'s perspective, where is the kite located precisely?", answer, "location-fo")
        for who, answer in (("Al", "a blue chest"), ("Bo", "red_box"))
    ),
    (
        "From Bo's perspective, where precisely does Al think that the kite is located?",
        "red_box",
        "location-so",
    ),
]


def opentom_records(**changed: Any) -> list[dict[str, Any]]:
    return [
        copy.deepcopy(OPENTOM)
        | {"question": {"question": question, "answer": answer, "type": kind}}
        | changed
        for question, answer, kind in OPENTOM_QUESTIONS
    ]


def opentom(folder: Path) -> Path:
    """Two stories, of which the second is seen, question by question, and a long one."""
    seen = opentom_records(observed=True, narrative="Al and Bo saw it all.")
    both = [record for pair in zip(opentom_records(), seen, strict=True) for record in pair]
    _json(folder / "opentom_long.json", opentom_records(long_narrative="At great length.")[:2])
    return _json(folder / "opentom.json", both)


TOMBENCH: dict[str, Any] = {
    "能力\nABILITY": "Belief: Location false beliefs Belief: Second-order beliefs",
    "序号\nINDEX": 5,
    "故事": "小明把苹果放进盒子。",
    "问题": "苹果在哪里？",
    "选项A": "A. 盒子",
    "选项B": "B.抽屉",
    "选项C": "C: 箱子",
    "选项D": "桌子",
    "STORY": "Xiaoming puts the apple into the box.",
    "QUESTION": "Where is the apple?",
    "OPTION-A": "Box",
    "OPTION-B": "Drawer",
    "OPTION-C": "Chest",
    "OPTION-D": "Table",
    "答案\nANSWER": "A",
}
TWO_OPTIONS = TOMBENCH | {
    "能力\nABILITY": "Non-Literal Communication: Faux pas ",
    "选项C": float("nan"),
    "选项D": float("nan"),
    "OPTION-C": float("nan"),
    "OPTION-D": None,
    "答案\nANSWER": "B. ",
}


def tombench(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "False Belief Task": [TOMBENCH, TOMBENCH | {"QUESTION": "Where was it before?"}],
        "Faux-pas Recognition Test": [TWO_OPTIONS | {"故事": "另一个。", "STORY": "Another."}],
    }
    for name, records in files.items():
        lines = [json.dumps(record, ensure_ascii=False) for record in records]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=4))
    return path.parent
