"""One step along a direction, for many problems at once, looking at the logits alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from probing.logistic import Losses

# A step is taken when the slope along it has fallen to this part.
FLATTENED = 0.5
LINE_STEPS = 12


@dataclass(frozen=True)
class Step:
    """Where a step ended.

    Attributes:
        far: ``[B, P]`` in units of the direction.
        logits: ``[B, P, K * N]``.
        probabilities: as the logits.
        residuals: as the logits.
        slope: ``[B, P]`` of the objective along the direction.
    """

    far: Tensor
    logits: Tensor
    probabilities: Tensor
    residuals: Tensor
    slope: Tensor


def search(
    losses: Losses,
    logits: Tensor,
    probabilities: Tensor,
    along: Tensor,
    fall: Tensor,
    tilt: Tensor,
    bend: Tensor,
    still: Tensor,
) -> Step:
    """Newton's method on the line, its steps kept between points with slopes of different sign.

    The objective along the line is convex, so it never ends higher than it began.

    Args:
        losses: of the P problems.
        logits: ``[B, P, K * N]`` at the start, and
        probabilities: theirs.
        along: how the logits change.
        fall: ``[B, P]`` slope of the objective at the start, negative.
        tilt: ``[B, P]`` slope of the penalty at the start, and
        bend: its second derivative.
        still: ``[B, P]`` problems that are not to move.
    """
    far = -fall / (losses.curvature(probabilities, along) + bend)
    far = torch.where(still, 0.0, far).nan_to_num_(0.0, 0.0, 0.0)
    steep_at = torch.where(still, torch.inf, FLATTENED * fall.abs())
    low, high = torch.zeros_like(far), torch.full_like(far, torch.inf)
    steep = still
    for attempt in range(LINE_STEPS + 1):
        if attempt == LINE_STEPS:
            # Where the slope is still downwards nothing was lost.
            far = torch.where(steep, low, far)
        there = torch.addcmul(logits, far[..., None], along)
        now = losses.probabilities(there)
        residuals = losses.residuals(now)
        slope = torch.linalg.vecdot(residuals, along) + tilt + far * bend
        steep = slope.abs() > steep_at
        if attempt == LINE_STEPS or not bool(steep.any()):
            break
        low = torch.where(slope < 0, far, low)
        high = torch.where(slope > 0, far, high)
        newton = far - slope / (losses.curvature(now, along) + bend)
        inside = (newton > low) & (newton < high)
        middle = torch.where(high.isinf(), 4 * far, 0.5 * (low + high))
        far = torch.where(steep, torch.where(inside, newton, middle), far)
    return Step(far, there, now, residuals, slope)
