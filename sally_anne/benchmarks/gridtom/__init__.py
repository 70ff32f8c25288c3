"""GridToM: the unexpected-transfer task in a small grid world (GridToM paper, section 3).

Holds: the world and its agents, the plot, what each agent sees and believes, pictures, narration,
questions, splits, and the release layout on disk.
Must not know: models, probes or scores.
"""
