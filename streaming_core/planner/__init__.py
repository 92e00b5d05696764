"""Execution plans: replicas of operators, and where each of them runs (BriskStream's RLAS; docs/plans.md)."""
