"""The benchmarks of the engine: all applications with their defaults, and the comparisons of papers as suites.

How to measure is declared once, for all of them:

- `length`: how long a pass is, and how many events a workload has.
- `subject`: one workload and the passes over it.
- `race`: the compiled loop and ways of executing take turns on one workload; it checks every result.
- `rounds`: the rounds of a race, and its rows; `passes`: one pass; `open_loop`: latencies at equal rates.
- `confinement`: a way gets no more cores than threads.
- `statistics`: medians and intervals; `ratios`: comparisons of rows, and what a sentence may say about them.
- `results`: the results file; `evidence`: files from larger hosts.

What to measure:

- `applications`: every way of executing every application, `streaming-core bench [APP ...]`.
- `files`: from Parquet to Parquet, compared with pyarrow, `streaming-core bench --files`.
- `suite`: the comparisons of a paper as named experiments, `streaming-core bench --suite NAME`.
- `tstream`: the experiments of TStream; likewise `ordered`, `viper`, `briskstream`, `rlas` and `stretch`.
- `engines`: ours, other engines and hand-written loops.
- `switching`: reconfigurations, part of `stretch`; likewise `elasticity`: controllers, and `resident`: memory.
- `joins`: the comparisons of joins, computed from the workload.
- `requests`: a thread that requests reconfigurations during a pass.
- `reconfigurations`: how long reconfigurations take, and their effect on outputs.
- `report`: JSON, and tables for people; `page`: docs/benchmarks.md; `wording`: a result in words.
- `host`: facts about the machine; `components`: digests of the sources that a benchmark measures.
"""
