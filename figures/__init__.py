"""Pictures of a finished run, each a command on its folder and functions from tables to a figure.

Figures never load a model and never fit a probe; they read what ``sally-anne probe``, ``sweep`` and
``evaluate`` have saved. Each is saved with the very numbers that it shows, in bytes that repeat.
"""

from typing import TYPE_CHECKING

from sally_anne.core import lazy

if TYPE_CHECKING:
    from sally_anne.figures.all import draw_all as draw_all

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
