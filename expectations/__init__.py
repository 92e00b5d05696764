"""Great Expectations over a run's tables: suites as code, one file per data set, and the pages that show the results.

python -m expectations --run RUN_ID [--home DIR]      exit 0 all hold, 1 some do not, 2 bad input
"""
