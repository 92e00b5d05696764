"""Checks of text, types and docstrings that `make lint` runs, and the baseline of violations that may only shrink."""
