"""Old name of text_sets."""

from sally_anne.data.text_sets import FANTOM  # noqa: F401
