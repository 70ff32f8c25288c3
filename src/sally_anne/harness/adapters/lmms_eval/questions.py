"""A benchmark as a task of lmms-eval: ``class`` in a task's file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmms_eval.api.task import ConfigurableTask

from sally_anne.harness.adapters import questions
from sally_anne.harness.adapters.questions import from_environment


class Questions(questions.Questions, ConfigurableTask):
    """The questions of ``sally-anne evaluate --task``, asked of lmms-eval's models."""

    length = "max_new_tokens"
    systems = False
    shows = "doc_to_visual"

    def __init__(self, config: Mapping[str, Any]) -> None:
        # Text alone shows nothing; errors of lmms-eval are clustered by story, as our intervals.
        shown = {"doc_to_visual": questions.pictures, "cluster_key": "story"}
        super().__init__(shown | dict(config))

    def given(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return from_environment()
