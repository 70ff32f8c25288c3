"""Inverse planning: what a mind must be like for what it does and says to be likely.

Each option of a question is a hypothesis about a mind, a model judges how likely each step is under
it, and the option with the most, or the least, of that is the answer. LIMP (MuMA-ToM) and BIP-ALM
(MMToM-QA) gather and judge in ways of their own; what they have in common is here.
"""

from typing import Literal, get_args

# How the steps are weighed, see :class:`sally_anne.harness.inverse_planning.posterior.Posterior`.
Mode = Literal["log", "official"]
MODES: tuple[Mode, ...] = get_args(Mode)
