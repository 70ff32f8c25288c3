"""Which heads tell what an agent believes from what is so: extraction, probes, nulls, patching."""
