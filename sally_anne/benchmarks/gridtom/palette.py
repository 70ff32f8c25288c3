"""The six colours of GridToM, and white's entry in minigrid's colour tables."""

from __future__ import annotations

import numpy as np
from minigrid.core import constants

COLOURS: tuple[str, ...] = ("red", "green", "blue", "yellow", "purple", "white")

# minigrid knows all of them but white; its renderer and object codes read these tables.
if "white" not in constants.COLORS:
    constants.COLORS["white"] = np.array([255, 255, 255])
    constants.COLOR_TO_IDX["white"] = len(constants.COLOR_TO_IDX)
    constants.IDX_TO_COLOR[constants.COLOR_TO_IDX["white"]] = "white"
    constants.COLOR_NAMES.append("white")
    constants.COLOR_NAMES.sort()
