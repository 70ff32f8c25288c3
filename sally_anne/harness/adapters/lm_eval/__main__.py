"""``sally-anne lm-eval``: lm-eval's own command line, with our model and tasks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from sally_anne.core.commands import plain_errors
from sally_anne.harness.adapters.lm_eval import TASKS


def main(arguments: Sequence[str] | None = None) -> None:
    if find_spec("lm_eval") is None:
        sys.exit("error: lm-eval is not installed: pip install 'sally-anne[lm-eval]'")
    from lm_eval.__main__ import cli_evaluate

    if arguments is not None:
        sys.argv = ["sally-anne lm-eval", *arguments]
    # A file of options may name a folder of its own.
    own = {"--include_path", "--config", "-C"} & {option.split("=")[0] for option in sys.argv}
    if len(sys.argv) > 2 and not own:
        sys.argv += ["--include_path", str(TASKS)]
    with plain_errors():
        cli_evaluate()


if __name__ == "__main__":
    main()
