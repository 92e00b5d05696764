"""The compiled sequential loop: the same meaning on one thread, for large workloads and as the yardstick of speed.

functions.py, windowed.py, source.py and driver.py print the typed functions of an application as code over addresses,
and numba compiles it. There is one loop per operator over a few hundred events at a time, so that rows between
operators stay in the nearest cache. A transaction's plan, state access and post-processing are one function. The timed
part begins with decoded rows, and ends with encoded output rows and their digest. State lies in plain arrays (tables)
and in maps of the loop's own.
"""

from streaming_core.oracle.loop.loop import Loop

__all__ = ["Loop"]
