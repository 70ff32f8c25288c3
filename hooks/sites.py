"""Where in a layer activations are read and edited, and how wide one head's slice is there."""

from __future__ import annotations

from hooks.geometry import Geometry
from sally_anne.core.errors import GeometryError

HEAD_OUT = "head_out"
ATTN_OUT = "attn_out"
RESID = "resid"
SITES = (HEAD_OUT, ATTN_OUT, RESID)


def slice_width(geometry: Geometry, site: str) -> int:
    """Width of one head's slice at a site: D at `head_out`, hidden / H elsewhere.

    Raises:
        GeometryError: H does not divide the hidden size at a site that is cut in slices.
    """
    if site == HEAD_OUT:
        return geometry.head_dim
    if geometry.hidden_size % geometry.n_heads:
        raise GeometryError(
            f"site {site!r} cuts the hidden size {geometry.hidden_size} in "
            f"{geometry.n_heads} equal slices, which it does not divide into. "
            f"Use site {HEAD_OUT!r}."
        )
    return geometry.hidden_size // geometry.n_heads
