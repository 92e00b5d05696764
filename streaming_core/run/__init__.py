"""One run: a way of executing an application, its execution, its report, and the comparison with the oracle.

Read way.py (what to run) first, then engine.py (how a run goes).
"""
