"""GridToM: unexpected transfers in a small grid world (GridToM paper, section 3)."""
