"""This host, as plans are made for it: measured now.

With several memory nodes, a node is a socket of the planner's machine, and what is fetched from another one comes from
its memory. With one, a socket is a thread, and what is fetched is what another core has just written. A thread goes
round its tasks, so there is no limit to the replicas of a core; and rows are fetched in a stream, line after line, as
they lie in jumbo tuples: by their latencies (BriskStream, equation 2) a row of 24 bytes would take a whole line.
"""

from __future__ import annotations

import json

from streaming_core.errors import BadInput
from streaming_core.planner.machine import Machine
from streaming_core.run.engine import topology

ONE_NODE = "measured; a socket is a thread: what local memory gives is shared by all, and so null"
NODES = "measured; a socket is a memory node"


def machine(threads: int | None = None) -> Machine:
    """This host with so many threads, bound to cores as `pin` binds them; None: one on each core.

    Raises:
        BadInput: more threads than cores, which no plan is made for.
    """
    from streaming_core import _runtime

    found = topology()
    cores = found["cores"][:threads]
    if threads is not None and threads > len(cores):
        raise BadInput(f"{threads} threads to plan for, and this host has {len(cores)} cores")
    measured = json.loads(_runtime.measure_fetching([core["id"] for core in cores]))
    several = measured["between_nodes"] is not None
    if several:
        # Those that threads are bound to, by their places among all.
        used = [place for place, node in enumerate(found["nodes"]) if any(core["node"] == node for core in cores)]
        sizes = [sum(core["node"] == found["nodes"][place] for core in cores) for place in used]
        between, local = measured["between_nodes"], measured["node_bytes_per_s"]
    else:
        used, sizes = list(range(len(cores))), [1] * len(cores)
        between, local = measured["between_cores"], [None] * len(cores)
    return Machine(
        name="this host",
        source=NODES if several else ONE_NODE,
        replicas_per_core=None,
        fetching="stream",
        cores=sizes,
        # Of lines of its own a replica's execution has been measured with what they take.
        latency=[[0.0 if i == j else between["nanoseconds"][j][i] for j in used] for i in used],
        bandwidth=[[local[i] if i == j else between["bytes_per_s"][j][i] for j in used] for i in used],
    )
