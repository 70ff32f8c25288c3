"""``python -m steering.run`` is ``sally-anne steer``."""

from sally_anne.cli import run

if __name__ == "__main__":
    run("steer")
