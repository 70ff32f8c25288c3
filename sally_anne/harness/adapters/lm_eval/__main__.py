"""``sally-anne lm-eval``: lm-eval's own command line, with our model and tasks."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from sally_anne.core.commands import plain_errors
from sally_anne.harness.adapters.lm_eval import TASKS

# What lm-eval says of our tasks at each run, and is as it should be: their number of stories may be
# set by --metadata, and a question is of TB or of FB.
_MEANT = {
    "lm_eval.api.task": "Custom kwargs can be passed",
    "lm_eval.evaluator_utils": "not scored on the same number of documents",
}


def main(arguments: Sequence[str] | None = None) -> None:
    if find_spec("lm_eval") is None:
        sys.exit("error: lm-eval is not installed: pip install 'sally-anne[lm-eval]'")
    from lm_eval.__main__ import cli_evaluate

    if arguments is not None:
        sys.argv = ["sally-anne lm-eval", *arguments]
    _with_our_tasks()
    for name in _MEANT:
        logging.getLogger(name).addFilter(_unexpected)
    with plain_errors():
        cli_evaluate()


def _unexpected(record: logging.LogRecord) -> bool:
    said = record.getMessage()
    return not (_MEANT[record.name] in said and "gridtom" in said)


def _with_our_tasks() -> None:
    """Every search for tasks finds ours, too; a user's own of the same name go before."""
    import lm_eval.tasks

    manager: Any = lm_eval.tasks.TaskManager

    def with_ours(*args: Any, include_path: Any = None, **kwargs: Any) -> Any:
        several = isinstance(include_path, (list, tuple))
        own = list(include_path) if several else [include_path] if include_path else []
        return manager(*args, include_path=[TASKS, *own], **kwargs)

    lm_eval.tasks.TaskManager = with_ours  # type: ignore[assignment,misc]


if __name__ == "__main__":
    main()
