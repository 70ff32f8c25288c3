"""``report.html``: a finished run as one page to look at, click on and share, without a network."""

from typing import TYPE_CHECKING

from sally_anne.core import lazy

if TYPE_CHECKING:
    from sally_anne.figures.report.write import draw_run as draw_run
    from sally_anne.figures.report.write import write_report as write_report

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
