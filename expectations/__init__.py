"""Tests the tables of a run with Great Expectations: suites as code, one file per data set, and pages with the results.

python -m expectations --run RUN_ID [--home DIR]      exit code 0: all hold, 1: some fail, 2: bad input
"""
