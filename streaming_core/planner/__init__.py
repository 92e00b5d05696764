"""Execution plans: how many replicas each operator has and where they run (BriskStream's RLAS).

docs/explanation/plans.md explains the method.
"""
