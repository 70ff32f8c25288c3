"""Old name of media."""

from sally_anne.data.media import *  # noqa: F403
