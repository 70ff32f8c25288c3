"""Localisers on models whose heads are known: ``sally-anne plant`` and ``localisation``."""
