"""External engines: their manifests and tasks (`contract`), their folders (`registry`), their `environment`.

`run/external.py` runs a cell on one.
"""
