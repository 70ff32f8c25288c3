"""Find the attention heads that keep what others believe, and steer them."""
