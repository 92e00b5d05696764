"""External engines: what one declares (`contract`), where they are (`registry`), where one runs (`environment`).

`run/external.py` runs a cell on one.
"""
