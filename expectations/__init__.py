"""Tests the tables of a run with Great Expectations: suites as code, one file per data set, and pages with the results.

The suites are declared in `suites`. `gx` is the file context with the same suites, their validation definitions and
Checkpoint, as Great Expectations stores them (`files`). A run executes the Checkpoint (`validate`, `context`), and
keeps its results (`history`). `anomaly` is the rule for imports that differ from their last nights.
"""
