"""Which heads tell what an agent believes from what is so.

Holds: contrasts (what is labelled Y_p, Y_o), extraction of activations, probes for all heads,
ranking, the run.
Must not know: steering, answer scoring, other benchmarks' layouts.
"""
