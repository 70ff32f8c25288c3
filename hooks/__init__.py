"""The one room that touches a model's inside.

Holds: where the heads are (`geometry`), which tokens count (`positions`), reading activations
(`capture`) and keeping them on disk (`store`), with the errors they raise (`errors`).

Must not know: what an activation is used for. No labels, probes, prompts, benchmarks, scores or
steering directions; nothing here imports another room of this project except `models`.
"""
