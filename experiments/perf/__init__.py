"""Timings: each command measures its contenders side by side in one run and prints ratios."""
