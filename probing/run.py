"""``python -m probing.run`` is ``sally-anne probe``."""

from sally_anne.cli import run

if __name__ == "__main__":
    run("probe")
