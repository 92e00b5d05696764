"""BriskStream's applications as graphs: topologies of figures 2 and 18, selectivities of table 8 and appendix B.

The paper states few costs: the times of WC's Splitter and Counter on server A, and what one hop adds to them (table 3).
That gives their bytes. A Sink counts rows and fetches none of them (section 2.2, appendix A). All other times and bytes
are ours. They are chosen, not measured.
"""

from __future__ import annotations

import itertools
import random

from streaming_core.planner.compressed import Compressed
from streaming_core.planner.graph import DEFAULT, GROUPS, Graph, Input, Kind, Operator
from streaming_core.planner.machine import Machine

APPS = ("wc", "fd", "sd", "lr")
_Stream = tuple[str | None, str, dict[str, float]]  # producer, stream, selectivity
# Bytes, from lines of 64 bytes at 307.7 ns: (1991.1 - 1612.8) / 307.7 lines, and (665.2 - 612.3) / 307.7.
SENTENCE, WORD = 79.0, 11.0
_ONE = {DEFAULT: 1.0}
_NONE = {DEFAULT: 0.0}
_DISPATCHED = {"position": 0.99, "daily": 0.005, "balance": 0.005}


def application(name: str) -> Graph:
    """Return one of APPS. As in the paper, sources and sinks have any number of replicas."""
    size = SENTENCE if name == "wc" else 150.0
    source = _operator("source", "source", 400.0, 0.0, (None, DEFAULT, _ONE))
    parser = _operator("parser", "stateless", 350.0, size, ("source", DEFAULT, _ONE))
    operators = [source, parser, *{"wc": _wc, "fd": _fd, "sd": _sd, "lr": _lr}[name]()]
    taken = {port.producer for operator in operators for port in operator.inputs}
    last = [operator.name for operator in operators if operator.name not in taken]
    sink = _operator("sink", "sink", 100.0, 0.0, *((name, DEFAULT, _ONE) for name in last), most=GROUPS)
    return Graph(app=name, operators=[*operators, sink])


def _operator(name: str, kind: Kind, ns: float, size: float, *streams: _Stream, most: int | None = None) -> Operator:
    inputs = [Input(producer=p, stream=s, ns=ns, bytes=size, selectivity=out) for p, s, out in streams]
    return Operator(name=name, kind=kind, inputs=inputs, most=most)


def _wc() -> list[Operator]:
    return [
        _operator("splitter", "stateless", 1612.8, SENTENCE, ("parser", DEFAULT, {DEFAULT: 10.0})),
        _operator("counter", "partitioned", 612.3, WORD, ("splitter", DEFAULT, _ONE)),
    ]


def _fd() -> list[Operator]:
    return [_operator("predictor", "partitioned", 9000.0, 120.0, ("parser", DEFAULT, _ONE))]


def _sd() -> list[Operator]:
    return [
        _operator("moving_average", "partitioned", 3000.0, 80.0, ("parser", DEFAULT, _ONE)),
        _operator("spike_detector", "stateless", 700.0, 80.0, ("moving_average", DEFAULT, _ONE)),
    ]


def _lr() -> list[Operator]:
    def position(out: dict[str, float]) -> _Stream:
        return ("dispatcher", "position", out)

    accident = ("accident_detect", DEFAULT, _NONE)
    counts = (("count_vehicle", DEFAULT, _ONE), ("last_average_speed", DEFAULT, _ONE))
    return [
        _operator("dispatcher", "stateless", 500.0, 100.0, ("parser", DEFAULT, _DISPATCHED)),
        _operator("average_speed", "partitioned", 800.0, 100.0, position(_ONE)),
        _operator("last_average_speed", "partitioned", 700.0, 60.0, ("average_speed", DEFAULT, _ONE)),
        _operator("accident_detect", "partitioned", 900.0, 100.0, position(_NONE)),
        _operator("count_vehicle", "partitioned", 700.0, 100.0, position(_ONE)),
        _operator("accident_notify", "partitioned", 500.0, 100.0, accident, position(_NONE)),
        _operator("toll_notify", "partitioned", 1000.0, 100.0, accident, position(_ONE), *counts),
        _operator("daily_expense", "partitioned", 1500.0, 60.0, ("dispatcher", "daily", _NONE)),
        _operator("account_balance", "partitioned", 900.0, 60.0, ("dispatcher", "balance", _NONE)),
    ]


def random_outputs(graph: Graph, machine: Machine, number: int) -> list[float]:
    """Return R of random plans (section 6.4, figure 14), with one replica on each core.

    Operators get one more replica in turn, with probabilities of their own, until no core is left.
    """
    draw, most = random.Random(0), machine.threads
    places = [socket for socket, cores in enumerate(machine.cores) for _ in range(cores)]
    outputs = []
    for _ in range(number):
        replicas, weights = [1] * len(graph.operators), [draw.random() for _ in graph.operators]
        for index in draw.choices(range(len(replicas)), weights, k=most - len(replicas)):
            replicas[index] += 1
        problem = Compressed(graph, machine, tuple(replicas))
        draw.shuffle(places)
        plan, left = problem.nothing(), iter(places)
        for unit, total in enumerate(problem.totals.tolist()):
            for socket in itertools.islice(left, total):
                plan = problem.moved(plan, unit, socket)
        outputs.append(float(problem.overfed(plan[:, None, :]).throughput[0]))
    return outputs
