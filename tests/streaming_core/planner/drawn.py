"""Random small graphs, machines and plans for the planner's tests.

Python's random number generator draws everything from a seed, so cases are reproducible.
"""

import random

from streaming_core.planner.graph import GROUPS, Graph, Input, Operator, Pattern
from streaming_core.planner.machine import Machine

TIMES = (0.0, 10.0, 100.0, 250.0, 700.0, 1600.0)
SIZES = (0.0, 8.0, 64.0, 65.0, 200.0, 640.0)
SELECTIVITIES = (0.0, 0.01, 0.5, 1.0, 2.0, 10.0)


def graph(seed: int, size: int = 4) -> Graph:
    """A source, `size` - 2 operators and a sink, with several streams and kinds and unequal keys."""
    draw = random.Random(seed)
    operators = [Operator(name="source", kind="source", inputs=[Input(producer=None, ns=draw.choice(TIMES[1:]))])]
    for number in range(1, size):
        last = number == size - 1
        kind = "sink" if last else draw.choice(("stateless", "partitioned", "stateful", "windowed"))
        untaken = [o for o in operators if not any(i.producer == o.name for p in operators for i in p.inputs)]
        producers = untaken if last else draw.sample(operators, min(len(operators), draw.choice((1, 1, 2))))
        if draw.random() < 0.2:  # takes a stream twice
            producers = [*producers, producers[0]]
        inputs = [
            Input(
                producer=producer.name,
                stream=draw.choice(producer.streams),
                ns=draw.choice(TIMES),
                bytes=draw.choice(SIZES),
                selectivity={s: draw.choice(SELECTIVITIES[1:]) for s in draw.choice((["default"], ["a", "b"]))},
                weights=[draw.random() ** 8 for _ in range(GROUPS)] if weighted else None,
                read_ns=draw.choice(TIMES[:3]) if kind == "windowed" else 0.0,
                read_bytes=draw.choice(SIZES) if kind == "windowed" else 0.0,
            )
            for producer in producers
            for weighted in [kind in ("partitioned", "windowed") and draw.random() < 0.3]
        ]
        memory = draw.choice((None, 10.0, 500.0))
        most = draw.choice((1, 2, 4096)) if last else None
        name = "sink" if last else f"operator{number}"
        others = draw.choice((0.0, 30.0))
        operators.append(
            Operator(name=name, kind=kind, inputs=inputs, others_ns=others, memory_bytes=memory, most=most)
        )
    return Graph(app=f"drawn {seed}", operators=operators)


def machine(seed: int, sockets: int = 3, room: int = 4) -> Machine:
    """A machine with `sockets` sockets: some differ only in their number, some lack a resource."""
    draw = random.Random(seed)
    cores = [draw.choice((max(1, room - 2), room)) for _ in range(sockets)]
    near, far = draw.choice(((100.0, 100.0), (100.0, 500.0), (0.0, 300.0), (0.0, 0.0)))
    latency = [[0.0 if i == j else draw.choice((near, far)) for j in range(sockets)] for i in range(sockets)]
    bandwidth = None
    if draw.random() < 0.5:
        bandwidth = [[draw.choice((None, 1e8, 1e9, 1e10)) for _ in range(sockets)] for _ in range(sockets)]
    return Machine(
        name=f"drawn {seed}",
        replicas_per_core=draw.choice((1, 1, 2, None)),
        cores=cores,
        capacity=draw.choice((None, [draw.choice((5e8, 4e9)) for _ in range(sockets)])),
        latency=latency,
        bandwidth=bandwidth,
    )


def streamed(seed: int, machine: Machine) -> Machine:
    """A machine that fetches rows in streams instead of line by line, and may get them back likewise."""
    draw = random.Random(seed)
    n = machine.sockets

    def rates() -> list[list[float | None]]:
        return [[None if i == j else draw.choice((1e8, 1e9, 1e10)) for j in range(n)] for i in range(n)]

    return machine.changed(streams=rates(), rewriting=rates() if seed % 4 else None)


def patterned(seed: int, graph: Graph) -> Graph:
    """A graph with two more patterns, in which operators have other costs."""
    draw = random.Random(seed)
    names = [operator.name for operator in graph.operators]

    def costs(operator: Operator) -> Operator:
        times = draw.choice((0.5, 1.0, 2.0))
        inputs = [port.model_copy(update={"ns": port.ns * times}) for port in operator.inputs]
        return operator.model_copy(
            update={"inputs": inputs, "others_ns": operator.others_ns + draw.choice((0.0, 20.0))}
        )

    several = ([], names[1:3], [name for name in names if graph.by_name[name].replicas > 1])
    patterns = [Pattern(several=some, operators=[costs(o) for o in graph.operators]) for some in several]
    return graph.changed(operators=patterns[0].operators, patterns=patterns)


def replicas(seed: int, graph: Graph, most: int) -> tuple[int, ...]:
    """The number of replicas of each operator, at most `most` in total."""
    draw = random.Random(seed)
    numbers = [1] * len(graph.operators)
    for _ in range(draw.randint(0, most - len(numbers))):
        index = draw.randrange(len(numbers))
        if numbers[index] < graph.operators[index].replicas:
            numbers[index] += 1
    return tuple(numbers)


def plan(seed: int, graph: Graph, machine: Machine, most: int) -> dict[str, list[int]]:
    """A plan that may exceed the room of the machine."""
    draw = random.Random(seed)
    numbers = replicas(seed, graph, most)
    counts = zip(graph.operators, numbers, strict=True)
    return {operator.name: [draw.randrange(machine.sockets) for _ in range(count)] for operator, count in counts}
