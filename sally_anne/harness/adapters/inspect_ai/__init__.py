"""Plug-in for inspect-ai: the model provider ``sally-anne`` and the task ``sally_anne/gridtom``.

inspect-ai finds it by its entry point, see :mod:`sally_anne.harness.adapters.inspect_ai.registry`.
"""
