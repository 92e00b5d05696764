"""Tests the tables of a run with Great Expectations. One file per data set has its suite as code."""
