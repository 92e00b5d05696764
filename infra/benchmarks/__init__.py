"""The page of benchmarks: the results of suites, drawn beside the figures of the papers.

`page` writes it, `measurements` reads the results and chooses what to show, and `views` holds what the page shows.
`streaming_core/bench/benchmarks_page.py` writes the committed ones as docs/benchmarks.md; `papers` draws its charts.
"""
