"""What is said before a statement or a question, in each setting (GridToM paper, section 3.2)."""

from __future__ import annotations

from sally_anne.benchmarks.gridtom.records_types import BeliefCase, StoryRecord
from sally_anne.benchmarks.gridtom.render import Perspective
from sally_anne.benchmarks.gridtom.setting import Setting


def context_text(
    record: StoryRecord,
    case: BeliefCase,
    perspective: Perspective = "omniscient",
    setting: Setting = "multimodal",
    initial: bool = False,
) -> str:
    """The world, and the story in words unless the setting is video alone.

    Args:
        record: the story.
        case: which version.
        perspective: whose knowledge the words tell.
        setting: what the model is given.
        initial: for the initial-belief questions, which ask for what the world's description
            would give away: then it names no colours.
    """
    world = record.initial_environment if initial else record.environment
    return world if setting == "video" else f"{world} {case.captions[perspective]}"
