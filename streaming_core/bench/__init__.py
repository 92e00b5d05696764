"""The benchmarks of the engine: all applications with their defaults, and the comparisons of papers as suites.

- `race`: how anything is measured.
- `applications`: every way of executing every application, `streaming-core bench [APP ...]`.
- `whole_runs`: from Parquet to Parquet, compared with pyarrow, `streaming-core bench --files`.
- `papers`: a folder for each paper, with its suites. The rest works without this folder.
- `suite`: what a suite is, and how it runs, `streaming-core bench --suite NAME`; `claims`: what a paper says.
- `evidence`: files from larger hosts.
- `report`: JSON, and tables for people; `benchmarks_page`: docs/benchmarks.md; `wording`: a result in words.
"""
