"""Suites without a paper: goals of this project."""
