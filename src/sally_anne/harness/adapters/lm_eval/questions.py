"""A benchmark as a task of lm-eval: ``class`` in a task's file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval.api.task import ConfigurableTask

from sally_anne.harness.adapters import questions
from sally_anne.harness.adapters.questions import MARK, mean, said_by


class Questions(questions.Questions, ConfigurableTask):
    """The questions of ``sally-anne evaluate --task``, asked of lm-eval's models.

    What lm-eval's command line says with ``--metadata`` and ``--model_args`` are options as well;
    ``stories`` are only the first so many.
    """

    length = "max_gen_toks"
    mark = MARK
    shows = "doc_to_image"

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__({"description": "system", **config})

    def given(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return said_by(config.get("metadata") or {})

    def results(self) -> Callable[..., dict[str, Any]]:
        return _results

    def aggregation_of(self, metric: str, parser: str, beliefs: bool) -> Any:
        found = super().aggregation_of(metric, parser, beliefs)
        # lm-eval has a standard error for its own mean.
        return "mean" if found is mean else found


def _results(document: Mapping[str, Any], replies: Sequence[str]) -> dict[str, Any]:
    """Bare scores where a mean is taken, as lm-eval's takes them."""
    found = questions.results(document, replies)
    return {name: row.get("score", row) for name, row in found.items()}
