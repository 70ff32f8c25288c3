from __future__ import annotations

import pytest
import torch

from sally_anne.hooks.capture import Capture

pytestmark = pytest.mark.integration


def test_capture_on_meta(skeleton):
    """Shapes alone, as for a full-size model without its weights."""
    model, ids = skeleton(), torch.ones(1, 6, dtype=torch.long, device="meta")
    with Capture(model) as capture:
        model(input_ids=ids)
        taken = capture.take(items=["story"])
    assert taken.shape == (1, 1, 3, 4, 8) and taken.device.type == "meta"
    # sdpa looks into a mask for padding, which meta cannot answer; eager does not.
    model.set_attn_implementation("eager")
    with Capture(model, positions="last_prompt+generated") as capture:
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
        assert capture.take().shape == (1, 1, 3, 4, 8)
