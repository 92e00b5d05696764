"""Profiles: the costs of an application's operators, measured on the executor that will run the plan.

A measurement is a pass of executor `pinned` on one thread. The thread cycles through all tasks, so none interferes with
another. For each task, the profile has its rows, the time to execute a row, and the other time to hand it on. These are
BriskStream's T_e and Others (sections 3.1 and 6.3). BriskStream profiles an operator alone. Here, it runs beside the
others, as it will in a plan, so the caches hold the same data.

The cost of a row depends on the number of replicas. With several producers, a gate merges. After a keyed operator, rows
carry their path, so that they meet in order again. Operators with one producer and one consumer need neither. So there
is a pass for each *pattern*: a choice of the operators that have several replicas. With few operators, a profile has
all patterns. With many, it has those in which one operator differs from the others.

`measure` makes a `Profile`; `kept` caches it beside its workload; `Profile.graph` is the input of the planner.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.rows import row_bytes, text_fields
from streaming_core.errors import BadInput, RunFailed
from streaming_core.kernels.program import compile_app
from streaming_core.language.application import App
from streaming_core.language.operator import Operator
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.planner import graph as planned
from streaming_core.planner.document import Amount, Document
from streaming_core.run import one_pass, probe, provenance
from streaming_core.run.blocks import BLOCK, Blocks
from streaming_core.run.one_pass import PassRequest, Progress
from streaming_core.run.report import TaskCost
from streaming_core.run.way import DEFAULT_BATCH, RunSpec
from streaming_core.storage import absolute, digest_of

CHANNEL = "gate"
EVENTS = 100_000  # measured events of the workload, so that a pass takes tens of milliseconds
READ = 200  # events whose texts are measured
SEVERAL = 2  # replicas of an operator that has several
WIDE = 64  # replicas whose numbers of rows show the shares of the keys
TOLERANCE = 0.05  # relative difference of the times of two measurements
FEW = 4  # operators; a profile of more does not have all patterns
MERGING = ("merge_sort",)  # channels that add a thread for each merge task
REPLICATED = ("stateless", "partitioned", "windowed", "sink")
# The names of the source and the sink in a plan, and of the producer of the source's rows.
SOURCE, SINK, EVENT = "source", "sink", "events"


class Cost(Document):
    """The costs of an operator's rows in a pattern, all its replicas together.

    Times are nanoseconds per row, as medians over passes. Every replica of a windowed operator reads all rows in front
    of it; `rows_in` counts each of them once.
    """

    rows_in: Annotated[int, Field(ge=0)]
    rows_out: Annotated[int, Field(ge=0)]
    execute: Amount = Field(
        description="Mean over all rows. For a windowed operator it includes finding the keys. 0: no rows."
    )
    others: Amount
    merge: Amount = Field(0.0, description="ns per row on the threads of merge tasks, which channel merge_sort adds.")
    quantiles: list[Amount] = Field(
        description="Quantiles over batches, from 0 to 100 percent, of executing a row. Excludes finding the keys."
    )

    @property
    def median(self) -> float:
        """The median over batches of executing a row: the paper's 50th percentile. The mean without batches."""
        return self.quantiles[len(self.quantiles) // 2] if self.quantiles else self.execute

    @property
    def row(self) -> float:
        """Nanoseconds that a row takes in all."""
        return self.execute + self.others

    @property
    def selectivity(self) -> float:
        """Rows that leave per row that enters."""
        return self.rows_out / self.rows_in if self.rows_in else 0.0


class Pattern(Document):
    """One replica, or several, of each operator, and the costs of all operators then, `source` and `sink` included."""

    replicas: dict[str, int]
    costs: dict[str, Cost]


class Profile(Document):
    """The costs of an application over a workload, on this machine.

    Attributes:
        row_bytes: By operator and producer, the mean bytes of a row with its texts. The source's producer is `events`.
        weights: By operator with keys, the rows of each equal part of its key groups.
    """

    version: Literal[1] = 1
    app: str
    params: dict[str, Any]
    code_digest: str
    content_digest: str
    channel: str
    batch: int
    row_bytes: dict[str, dict[str, float]]
    weights: dict[str, list[int]]
    patterns: list[Pattern] = Field(min_length=1)

    @property
    def alone(self) -> Mapping[str, Cost]:
        """The costs of rows if each operator has one replica."""
        return min(self.patterns, key=lambda pattern: sum(pattern.replicas.values())).costs

    def graph(self, app: App, most: int | None = None, median: bool = False) -> planned.Graph:
        """The input of a planner.

        Args:
            app: The application.
            most: Most replicas of an operator, where they share threads; None: as many as the machine has places.
            median: Whether T_e is the median over batches, as in the paper, and not the mean over rows. The median
                leaves out rare work, such as closing a window. Finding the keys of windows has no median.
        """
        patterns = [
            planned.Pattern(
                several=sorted(name for name, n in pattern.replicas.items() if n > 1),
                operators=[self._operator(operator, pattern, most, median) for operator in app.operators],
            )
            for pattern in self.patterns
        ]
        return planned.Graph(
            app=self.app,
            tolerance=TOLERANCE,
            operators=patterns[0].operators,
            patterns=patterns,
        )

    def changes(self, plan: Mapping[str, list[int]], tasks: list[TaskCost]) -> dict[str, tuple[float, float]]:
        """Compare a pass of a plan with the pattern that the plan was judged by.

        Times are relative to those of the other operators, so a machine that is slower as a whole shows no change.

        Args:
            plan: The plan.
            tasks: The costs of the tasks in the pass.

        Returns:
            By operator, the factor of the time of a row, and the factor of the rows that leave per row that enters.
        """
        several = frozenset(name for name, places in plan.items() if len(places) > 1)
        by = self.graph(registry.load(self.app)).most_similar(several)
        known = {name: self.patterns[pattern].costs[name] for name, pattern in by.items()}
        seen = {name: _cost(name, [tasks]) for name in known}
        both = {name: (known[name], seen[name]) for name in known if known[name].rows_in and seen[name].rows_in}
        took = sum(now.row * now.rows_in for _, now in both.values())
        was = sum(before.row * now.rows_in for before, now in both.values())
        overall = took / was if took and was else 1.0
        return {
            name: (
                now.row / before.row / overall if before.row and now.row else 1.0,
                now.selectivity / before.selectivity if before.selectivity and now.selectivity else 1.0,
            )
            for name, (before, now) in both.items()
        }

    def after(self, changes: Mapping[str, tuple[float, float]]) -> Profile:
        """The profile with times and rows multiplied by the factors of `changes`, in all patterns."""

        def cost_of(name: str, cost: Cost) -> Cost:
            times, rows = changes.get(name, (1.0, 1.0))
            scaled = {"execute": cost.execute * times, "others": cost.others * times}
            return cost.changed(**scaled, rows_out=round(cost.rows_out * rows))

        def pattern_of(pattern: Pattern) -> Pattern:
            return pattern.changed(costs={name: cost_of(name, cost) for name, cost in pattern.costs.items()})

        return self.changed(patterns=[pattern_of(pattern) for pattern in self.patterns])

    def _operator(self, operator: Operator, pattern: Pattern, most: int | None, median: bool) -> planned.Operator:
        name = name_of(operator)
        cost, sizes, weights = pattern.costs[name], self.row_bytes[name], self.weights.get(name)
        fields: dict[str, Any] = {"selectivity": cost.selectivity}
        if operator.kind == "windowed":
            reading = min(self._reading(name), cost.execute / pattern.replicas[name])
            fields |= {"read_ns": reading, "ns": cost.execute - pattern.replicas[name] * reading}
        else:
            fields["ns"] = cost.median if median else cost.execute
        if operator.kind == "partitioned" and weights and sum(weights):
            fields["weights"] = [part for part in weights for _ in range(planned.GROUPS // len(weights))]
        inputs: list[dict[str, Any]] = []
        producers: list[str | None] = [name_of(o) for o in operator.inputs]
        for producer in producers or [None]:
            size = sizes[producer or EVENT]
            read = "read_bytes" if operator.kind == "windowed" else "bytes"
            inputs.append(fields | {"producer": producer, read: size})
        able = operator.kind in REPLICATED
        about = {"name": name, "kind": operator.kind, "inputs": inputs, "others_ns": cost.others}
        if self.channel in MERGING and name != SOURCE:
            about["merge_ns"] = cost.merge
        return planned.Operator.model_validate(about | {"most": most if able else 1})

    def _reading(self, name: str) -> float:
        """Nanoseconds that each replica of a windowed operator takes to read a row.

        Two replicas read a row twice and handle it once. So the first two patterns that differ only in the replicas of
        this operator give the time.
        """
        for alone in self.patterns:
            replicas = {**alone.replicas, name: SEVERAL}
            several = next((pattern for pattern in self.patterns if pattern.replicas == replicas), None)
            if alone.replicas[name] == 1 and several is not None:
                return max(0.0, several.costs[name].execute - alone.costs[name].execute) / (SEVERAL - 1)
        return 0.0


def name_of(operator: Operator) -> str:
    """The name of an operator in a plan, where source and sink have no names of their own."""
    return operator.kind if operator.kind in (SOURCE, SINK) else operator.name


def names(app: App) -> list[str]:
    """The operators that a plan may name, in topological order."""
    return [name_of(operator) for operator in app.operators]


def measure(
    source: workload.Workload,
    channel: str = CHANNEL,
    batch: int = DEFAULT_BATCH,
    repetitions: int = 5,
    progress: Progress | None = None,
) -> Profile:
    """Measure an application over the first events of a workload.

    Args:
        source: The workload.
        channel: The channel of the runs to plan for.
        batch: The events in a batch of these runs.
        repetitions: Passes of each pattern; times are medians over them.
        progress: Receives the progress in patterns.

    Raises:
        BadInput: The application does not run with this channel, or the workload has no events.
        RunFailed: An operator failed, or two passes had different results.
    """
    app, params = source.app, source.manifest["params"]
    spec = RunSpec.parse({"app": app.name, "executor": "pinned", "channel": channel, "batch": batch})
    spec.check(app)
    if not source.rows:
        raise BadInput(f"workload {source.directory} has no events to measure; use one with at least 1 event")
    program = compile_app(app, params)
    blocks = Blocks(first_events(source), program, BLOCK)
    able = [name_of(o) for o in app.operators if o.kind in REPLICATED]
    chosen = list(_patterns(able))
    results: set[str] = set()

    def passes(replicas: Mapping[str, int], times: int) -> list[list[TaskCost]]:
        plan = {name: [0] * replicas.get(name, 1) for name in names(app)}
        way = spec.model_copy(update={"plan": plan})
        tasks = []
        for _ in range(times):
            sample, _, _ = one_pass.run(way, program, blocks, PassRequest(exports_state=False))
            results.add(sample.digest)
            if len(results) > 1:
                raise RunFailed(
                    f"profile of {app.name}: two passes have different digests: {', '.join(sorted(results))}"
                )
            tasks.append(sample.tasks)
        return tasks

    patterns: list[Pattern] = []
    for done, several in enumerate(chosen):
        replicas = {name: SEVERAL if name in several else 1 for name in names(app)}
        measured = passes(replicas, repetitions + (not patterns))[-repetitions:]
        costs = {name_of(o): _cost(name_of(o), measured) for o in app.operators}
        patterns.append(Pattern(replicas=replicas, costs=costs))
        if progress is not None:
            progress("profile", done + 1, len(chosen) + 1)
    keyed = [name_of(o) for o in app.operators if o.kind == "partitioned"]
    wide = passes(dict.fromkeys(keyed, WIDE), 1)[0] if keyed else []
    if progress is not None:
        progress("profile", len(chosen) + 1, len(chosen) + 1)
    return Profile(
        app=app.name,
        params=params,
        code_digest=registry.code_digest(app),
        content_digest=source.manifest["content_digest"],
        channel=channel,
        batch=batch,
        row_bytes=_row_bytes(source),
        weights={name: [t.rows_in for t in wide if (t.operator, t.role) == (name, "operator")] for name in keyed},
        patterns=patterns,
    )


def first_events(source: workload.Workload) -> workload.Workload:
    """The first events of a workload, which a profile measures."""
    return _First(source.directory, source.manifest, source.app)


def kept(
    source: workload.Workload,
    channel: str = CHANNEL,
    batch: int = DEFAULT_BATCH,
    progress: Progress | None = None,
) -> tuple[Profile, Path | None]:
    """The profile beside a workload; if there is none for this code and machine, measure it and keep it there.

    Args:
        source: The workload.
        channel: As for `measure`.
        batch: As for `measure`.
        progress: As for `measure`.

    Returns:
        The profile, and its file; None if the folder is not writable.
    """
    about = {
        "code": registry.code_digest(source.app),
        "params": source.manifest["params"],
        "workload": source.manifest["content_digest"],
        "channel": channel,
        "batch": batch,
        "build": provenance.build(),
        "machine": probe.topology(),
    }
    directory = absolute(source.directory)
    path = directory.with_name(f"{directory.name}.profiles") / f"{digest_of(about)[:16]}.json"
    if path.exists():
        return Profile.read(path), path
    profile = measure(source, channel, batch, progress=progress)
    try:
        profile.save(path)
    except BadInput:
        return profile, None
    return profile, path


def _patterns(able: list[str]) -> Iterator[frozenset[str]]:
    """The choices of operators with several replicas. Many operators have none, all, one, and all but one."""
    every = frozenset(able)
    if len(able) <= FEW:
        for number in range(len(able) + 1):
            yield from (frozenset(chosen) for chosen in itertools.combinations(able, number))
        return
    yield from (frozenset(), every)
    for name in able:
        yield from (frozenset({name}), every - {name})


def _cost(name: str, passes: list[list[TaskCost]]) -> Cost:
    """The cost of an operator: that of all its tasks."""

    def of(tasks: list[TaskCost], *roles: str) -> list[TaskCost]:
        return [task for task in tasks if task.operator == name and task.role in roles]

    main = of(passes[0], "operator", SOURCE, SINK)
    key_tasks = of(passes[0], "keys")
    # These tasks read each row once, and are part of handling it.
    rows_in = sum(task.rows_in for task in key_tasks or main)
    if not rows_in:
        return Cost(rows_in=0, rows_out=sum(task.rows_out for task in main), execute=0.0, others=0.0, quantiles=[])
    execute = [sum(t.execute_ns for t in of(tasks, "operator", "keys", SOURCE, SINK)) / rows_in for tasks in passes]
    # Merge tasks have their own threads.
    others = [sum(t.others_ns for t in tasks if t.operator == name and t.role != "merge") / rows_in for tasks in passes]
    merge = [sum(t.others_ns + t.execute_ns for t in of(tasks, "merge")) / rows_in for tasks in passes]
    quantiles = [task.execute_quantiles for tasks in passes for task in of(tasks, "operator", SOURCE, SINK)]
    quantiles = [steps for steps in quantiles if steps]
    return Cost(
        rows_in=rows_in,
        rows_out=sum(task.rows_out for task in main),
        execute=statistics.median(execute),
        others=statistics.median(others),
        merge=statistics.median(merge),
        quantiles=[statistics.median(at) for at in zip(*quantiles, strict=True)],
    )


def _row_bytes(source: workload.Workload) -> dict[str, dict[str, float]]:
    """The mean bytes of a row, by operator and producer.

    Where rows have texts, the interpreter makes the first ones.
    """
    app, params = source.app, source.manifest["params"]
    first = next(iter(source.blocks(READ)))
    sizes = {}
    for operator in app.operators[:-1]:
        record = operator.emitted.resolve(params)
        sizes[name_of(operator)] = float(record.event[1])
        if text_fields(record):
            rows = first if operator.kind == SOURCE else _first_rows(app.through(operator.name), params, first)
            sizes[name_of(operator)] = row_bytes(record, [rows], rows.num_rows) or float(record.event[1])
    by_operator = {name_of(o): {name_of(i): sizes[name_of(i)] for i in o.inputs} for o in app.operators[1:]}
    return {SOURCE: {EVENT: sizes[SOURCE]}, **by_operator}


def _first_rows(app: App, params: dict[str, Any], events: pa.Table) -> pa.Table:
    interpreter = Interpreter(app, params)
    return pa.concat_tables([interpreter.process(events), interpreter.finish(events.num_rows)])


class _First(workload.Workload):
    """The first events of a workload."""

    @property
    def rows(self) -> int:
        """Number of events."""
        return min(EVENTS, super().rows)

    @property
    def end(self) -> int:
        """Sequence number behind the last event."""
        return self.rows

    def read_on(
        self,
        read: tuple[int, int],
        rows_per_block: int,
        decode: Callable[[pa.Table], tuple[workload.T, int]],
        room: workload.Room = lambda _: None,
        reading: Callable[[Iterable[pa.Table]], Iterable[pa.Table]] = iter,
    ) -> Iterator[tuple[workload.T, tuple[int, int]]]:
        left = self.rows - read[0]

        def first(table: pa.Table) -> tuple[workload.T, int]:
            return decode(table.slice(0, left))

        for block, total in super().read_on(read, rows_per_block, first, room, reading):
            yield block, total
            left = self.rows - total[0]
            if left <= 0:
                return
