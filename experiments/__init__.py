"""Recipes that reproduce a paper's table or figure with one command; training of the tiny models.

Holds: runs put together from the rooms below it.
Must not know: anything that another room would need to import.
"""
