"""Fixtures of sharing: a hub on this machine, and a run to push."""

from tests.made_run import make_run as make_run
from tests.sharing.fake_hub import hub as hub
