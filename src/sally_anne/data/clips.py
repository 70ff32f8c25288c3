"""Old name of media."""

from sally_anne.data.media import *  # noqa: F403
from sally_anne.data.media import FRAME_PIXELS as MOST_PIXELS  # noqa: F401
