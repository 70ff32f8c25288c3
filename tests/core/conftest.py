"""Run folders that are made in a moment."""

from tests.made_run import make_run, run  # noqa: F401
