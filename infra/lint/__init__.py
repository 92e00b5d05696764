"""The checks of text, types, names and docstrings that `make lint` runs."""
