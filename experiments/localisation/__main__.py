"""``python -m experiments.localisation``."""

from experiments.localisation.config import main

main()
