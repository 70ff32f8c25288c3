"""Figures: pictures drawn from the saved results of a finished run.

This room holds the layer x head heatmap, the density plot of one head, and the four
(Y_p, Y_o) clusters with the probes' boundaries: figures 5, 19 and 20 of the GridToM paper.
It also holds the curves of a steering sweep (figures 15 to 18), and how categories of questions
correlate (MimeQA paper, appendix B.5). Each is its own command on a run
folder (``sally-anne heatmap RUN``) and a set of plain functions from tables and arrays to
a matplotlib figure.

What it must not know: how a model runs. Figures never load a model and never fit a probe; they
read what ``sally-anne probe``, ``sweep`` and ``evaluate`` have saved, and import
no room above ``hooks.saved_run`` but ``sally_anne.harness.correlations``.
Every figure is saved with the very numbers that it shows (NAME.png, NAME.pdf, NAME.parquet),
and two drawings of one run give equal bytes.
"""

from typing import TYPE_CHECKING

from sally_anne.core.lazy import lazy

if TYPE_CHECKING:
    from figures.all import draw_all as draw_all

__getattr__, __dir__, __all__ = lazy(__name__, {"figures.all": ["draw_all"]})
