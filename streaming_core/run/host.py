"""This host as the planner's machine, measured now.

With several memory nodes, a node is a socket of the planner's machine, and a thread fetches rows from the memory of
another node. With one node, a socket is a thread. A thread then fetches lines that another core has just written, and
that core gets them back when it writes there again.

A thread cycles through its tasks, so there is no limit to the replicas of a core. Threads fetch rows in a stream, line
after line, as they lie in jumbo tuples. The latencies of BriskStream's equation 2 would charge a whole line for a row
of 24 bytes.
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
        BadInput: There are more threads than cores. No plan supports that.
    """
    from streaming_core import _runtime

    host = topology()
    if threads is not None and not 1 <= threads <= len(host["cores"]):
        raise BadInput(f"threads must be between 1 and {len(host['cores'])}, the cores of this host, got {threads}")
    cores = host["cores"][:threads]
    measured = json.loads(_runtime.measure_fetching([core["id"] for core in cores]))
    several = measured["between_nodes"] is not None
    if several:
        # The nodes with threads, by their positions among all nodes.
        used = [place for place, node in enumerate(host["nodes"]) if any(core["node"] == node for core in cores)]
        numbers = [[t for t, core in enumerate(cores) if core["node"] == host["nodes"][place]] for place in used]
        between, local = measured["between_nodes"], measured["node_bytes_per_s"]
        # The traffic of all cores together is not measured.
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
        # A replica's measured time already includes fetching its own lines.
        latency=[[0.0 if i == j else between["nanoseconds"][j][i] for j in used] for i in used],
        bandwidth=bandwidth,
        streams=away("bytes_per_s"),
        rewriting=None if several else away("rewritten_bytes_per_s"),
        numbers=numbers,
        spare=len(host["cores"]) - len(cores),
    )
