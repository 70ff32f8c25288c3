"""``python -m sally_anne`` is the command ``sally-anne``."""

from sally_anne.cli import main

if __name__ == "__main__":
    main()
