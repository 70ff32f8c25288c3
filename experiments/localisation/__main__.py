"""``python -m sally_anne.experiments.localisation``."""

from sally_anne.experiments.localisation.config import main

main()
