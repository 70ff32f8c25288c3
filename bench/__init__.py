"""Timings: each command measures its contenders side by side in one run and prints ratios.

``python -m bench`` runs ``extraction``, ``probes`` and ``sweep`` and leaves one folder
with raw seconds, tables and a figure; ``scaling`` measures how costs grow, ``plan`` reckons from
measured costs what a large run needs. Nothing here is imported by another room.
"""
