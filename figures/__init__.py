"""Pictures of a finished run: functions from tables to a figure, and the report page.

Figures never load a model and never fit a probe; they read what ``sally-anne probe``, ``sweep`` and
``evaluate`` have saved. Each is saved with the very numbers that it shows, in bytes that repeat.
"""
