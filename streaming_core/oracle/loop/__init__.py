"""The compiled sequential loop: the same meaning on one thread, for large workloads and as the yardstick of speed.

The typed functions of an application are printed as code over addresses and compiled by numba: one loop per operator
over a few hundred events at a time, so that what operators hand on stays in the nearest cache; a transaction's plan,
state access and post-processing are one function. Timed: from decoded rows to encoded output rows and their digest.
State lies in plain arrays (tables) and in maps of the loop's own.
"""

from streaming_core.oracle.loop.loop import Loop

__all__ = ["Loop"]
