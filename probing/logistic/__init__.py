"""Logistic regressions of all heads and of many label vectors at once, to the optimum, certified.

The objective is scikit-learn's: ``0.5 ||w||^2 + C sum_i s_i loss_i``, the intercept free; one logit
for two classes, one a class for more. Heads are taken in blocks: enough of them that calls cost
little. A block is brought near the optimum in float32 and polished with gradients in float64, where
an error bound on the weights that needs no reference is computed for every problem.
"""

from sally_anne.probing.logistic.certificate import SKLEARN_TOLERANCE
from sally_anne.probing.logistic.problems import Fits, Problems, Settings
from sally_anne.probing.logistic.solver import solve, solve_blocks

__all__ = ["SKLEARN_TOLERANCE", "Fits", "Problems", "Settings", "solve", "solve_blocks"]
