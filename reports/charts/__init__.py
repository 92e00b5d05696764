"""The charts: Vega-Lite specifications in, static SVG out. No script and no font leaves this machine.

`runs` draws runs, `benchmark` draws suites of the benchmark, `series` holds the looks of lines, and `vega` renders.
`vega` imports a library that takes a second to load, so modules import `runs` and `benchmark` where they draw.
"""
