"""The one room that touches a model's inside.

It must not know what an activation is used for: no prompts, benchmarks or scores.
"""
