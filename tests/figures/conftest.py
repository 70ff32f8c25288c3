"""A made-up run folder."""

from tests.made_run import make_run, numbers_only, run  # noqa: F401
