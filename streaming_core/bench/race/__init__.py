"""How a benchmark measures, declared once for all of them.

- `length`: how long a pass is, and how many events a workload has.
- `subject`: one workload and the passes over it; `turns`: one pass; `handwritten`: hand-written loops over it.
- `race`: the compiled loop and ways of executing take turns on one workload; it checks every result.
- `rounds`: the rounds of a race, and its rows; `open_loop`: latencies at equal rates.
- `confinement`: a way gets no more cores than threads.
- `requests`: a thread that requests reconfigurations during a pass; `reconfigurations`: how long they take.
- `statistics`: medians and intervals; `ratios`: comparisons of rows, and what a sentence may say about them.
- `results`: the results file; `facts`: the machine; `distance`: of its cores, before each pass.
"""
