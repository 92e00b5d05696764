"""The generated files: the reference pages of the documentation, and parts of dbt. A module writes one page.

`make docs` writes the files (`files.py`).
"""
