"""Imports a user's files as a workload.

- `form` reads a request as a user writes it, and describes the result.
- `events` writes the workload. `files` finds the files and reads their rows, by `paths`, `records` and `parquet`.
- `fitting` converts the values.
"""
