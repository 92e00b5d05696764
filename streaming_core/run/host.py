"""This host, as plans are made for it: measured now.

With several memory nodes, a node is a socket of the planner's machine, and what is fetched from another one comes from
its memory. With one, a socket is a thread, and what is fetched is what another core has just written, which gets it
back when it writes there again. A thread goes round its tasks, so there is no limit to the replicas of a core; and rows
are fetched in a stream, line after line, as they lie in jumbo tuples: by their latencies (BriskStream, equation 2) a
row of 24 bytes would take a whole line.
"""

from __future__ import annotations

import json

from streaming_core.errors import BadInput
from streaming_core.planner.machine import Machine
from streaming_core.run.probe import topology

NAME = "this host"
ONE_NODE = "measured; each socket is a thread; bandwidth is null because all threads share the memory"
NODES = (
    "measured; each socket is a memory node; the bandwidth between nodes and the cost of getting lines back are unknown"
)


def machine(threads: int | None = None) -> Machine:
    """This host with so many threads, bound to cores as `pin` binds them; None: one on each core.

    Raises:
        BadInput: more threads than cores, which no plan is made for.
    """
    from streaming_core import _runtime

    found = topology()
    if threads is not None and not 1 <= threads <= len(found["cores"]):
        raise BadInput(f"threads must be between 1 and {len(found['cores'])}, the cores of this host, got {threads}")
    cores = found["cores"][:threads]
    measured = json.loads(_runtime.measure_fetching([core["id"] for core in cores]))
    several = measured["between_nodes"] is not None
    if several:
        # Those that threads are bound to, by their places among all.
        used = [place for place, node in enumerate(found["nodes"]) if any(core["node"] == node for core in cores)]
        numbers = [[t for t, core in enumerate(cores) if core["node"] == found["nodes"][place]] for place in used]
        between, local = measured["between_nodes"], measured["node_bytes_per_s"]
        # What all cores together send each other is not measured.
        bandwidth = [[local[i] if i == j else None for j in used] for i in used]
    else:
        used, numbers = list(range(len(cores))), [[thread] for thread in range(len(cores))]
        between, bandwidth = measured["between_cores"], None

    def away(figure: str) -> list[list[float | None]]:
        return [[None if i == j else between[figure][j][i] for j in used] for i in used]

    return Machine(
        name=NAME,
        source=NODES if several else ONE_NODE,
        replicas_per_core=None,
        cores=[len(threads) for threads in numbers],
        # Of lines of its own a replica's execution has been measured with what they take.
        latency=[[0.0 if i == j else between["nanoseconds"][j][i] for j in used] for i in used],
        bandwidth=bandwidth,
        streams=away("bytes_per_s"),
        rewriting=None if several else away("rewritten_bytes_per_s"),
        numbers=numbers,
        spare=len(found["cores"]) - len(cores),
    )
