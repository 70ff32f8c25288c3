"""Old name of read."""

from sally_anne.data.read import *  # noqa: F403
from sally_anne.data.read import Field  # noqa: F401
