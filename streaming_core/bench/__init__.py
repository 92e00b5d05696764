"""The engine's own benchmark: applications with their defaults, and the comparisons of papers as suites.

race          the compiled loop and ways of executing take turns over one workload; every result is checked
applications  every way of executing every application: `streaming-core bench [APP ...]`
files         from Parquet to Parquet, beside what pyarrow takes: `streaming-core bench --files`
suite         a paper's comparisons as named experiments: `streaming-core bench --suite NAME`
tstream       the experiments of TStream; beside it ordered, viper, briskstream and stretch (and its `switching`)
requests      who asks for reconfigurations beside a pass
reconfigurations  what these took, and what whoever waits for outputs saw of them
report        JSON, and tables for people
host          what a benchmark says about where it was made
"""
