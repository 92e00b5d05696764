"""The page of a cell: the rows that differ, its measured passes, and the facts about its execution.

Read `CellView` first: it is what the page and the file of a run show. Facts are pairs of name and value; those without
a value are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from reports import reproduce, times
from reports.history.cell import Cell
from reports.history.run import Run
from reports.history.text import human_rate, lines, words
from reports.views.find import FindView
from reports.views.rows import marked
from reports.views.tasks import Tasks
from streaming_core.engines import registry
from streaming_core.errors import BadInput
from streaming_core.regression.verdict import COUNTS
from streaming_core.run.report import LOG, InjectedFault, Threads
from streaming_core.search.find import SHRUNK, Find, finds
from streaming_core.storage import left_json

LOG_LINES = 12  # of a failed cell's log
LOGS = ("The end of its log", "The end of the engine's log")


class Engine(NamedTuple):
    """Another engine: the system, and the versions of its software by name."""

    system: str
    versions: dict[str, str]

    @property
    def text(self) -> str:
        """`Polars 2.1 (polars 2.1.0, python 3.11.7)`."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"{self.system} ({versions})" if versions else self.system


@dataclass(frozen=True)
class Attempt:
    """An attempt at a cell: its folder, its report.json and its exit.json; {} for a file that is gone."""

    folder: Path
    report: dict[str, Any]
    exit_record: dict[str, Any]


@dataclass(frozen=True)
class DifferingRow:
    """A row that differs from the oracle, or that breaks an invariant."""

    kind: str
    seq: int | None
    sub: int | None
    expected: Markup | str
    actual: Markup | str
    event: Markup | str


@dataclass(frozen=True)
class Difference:
    """The rows that differ in one check: its name, the first rows, and how many there are, in words."""

    name: str
    rows: list[DifferingRow]
    total: str


@dataclass(frozen=True)
class MeasuredPass:
    """A pass: its row of the raw samples, and its processor time and energy per event; None if not measured."""

    row: dict[str, Any]
    cpu_ns: float | None
    energy_nj: float | None


@dataclass(frozen=True)
class CellView:
    """The evidence on a cell.

    Attributes:
        cell: the cell.
        headline: its outcome in a sentence.
        differences: the rows that differ, by check.
        passes: the measured passes.
        tasks: what its threads did; None for an executor without tasks.
        logs: title and last lines of the logs of a failed cell.
        commands: the shell commands that reproduce it (reproduce.py).
        facts: name and value of all that is known of its execution.
        engine: the other engine that ran it; None for an executor of Lockstep.
        small: the smallest case that differs in the same way; None if no search made one.
    """

    cell: Cell
    headline: str
    differences: list[Difference]
    passes: list[MeasuredPass]
    tasks: Tasks | None
    logs: list[tuple[str, list[str]]]
    commands: list[str]
    facts: list[tuple[str, object]]
    engine: Engine | None
    small: FindView | None

    @classmethod
    def of(cls, run: Run, cell: Cell) -> CellView:
        """The evidence on a cell of a run."""
        attempt = attempt_of(run, cell)
        report, exit_record = (attempt.report, attempt.exit_record) if attempt else ({}, {})
        is_unordered = cell.spec.order == "none" and cell.verdict in ("equal", "invariant_broken")
        return cls(
            cell=cell,
            headline=f"{cell.label} {cell.outcome.sentence}{', apart from the order' if is_unordered else ''}",
            differences=list(_differences(cell)),
            passes=list(_per_event(cell.samples)),
            tasks=Tasks.of(report),
            logs=_logs(attempt.folder) if attempt and cell.verdict == "failed" else [],
            commands=reproduce.commands(run, cell, report),
            facts=list(_facts(cell, report, exit_record)),
            engine=engine_of(cell, report) if cell.is_of_other_engine else None,
            small=FindView.of(small) if (small := smallest(run, cell)) else None,
        )


def smallest(run: Run, cell: Cell) -> Find | None:
    """The smallest case that differs as a cell did; None if no search made one."""
    return next(iter(finds(run.attempts(cell) / SHRUNK)), None)


def _logs(attempt: Path) -> list[tuple[str, list[str]]]:
    """Title and last lines of the logs of an attempt that have lines."""
    logs = zip(LOGS, (attempt.with_name(f"{attempt.name}.stderr.log"), attempt / LOG), strict=True)
    return [(title, tail) for title, log in logs if (tail := lines(log, LOG_LINES))]


def engine_of(cell: Cell, report: dict[str, Any]) -> Engine:
    """The engine of a cell, from the report, else from the manifest, else by its name only."""
    if facts := report.get("host", {}).get("engine"):
        return Engine(facts["system"], {name: version for name, version in facts.items() if name != "system"})
    try:
        return Engine(registry.load(cell.spec.executor).manifest.system, {})
    except BadInput:
        return Engine(cell.spec.executor, {})


def attempt_of(run: Run, cell: Cell) -> Attempt | None:
    """The attempt that the warehouse holds, else the last one; None without any."""
    folder = run.attempts(cell)
    number = cell.facts.get("attempt")
    folders = (path for path in folder.glob("attempt-[0-9]*") if path.is_dir())
    attempts = sorted(folders, key=lambda path: int(path.name.removeprefix("attempt-")))
    attempt = folder / f"attempt-{number}" if number else attempts[-1] if attempts else None
    if attempt is None or not attempt.is_dir():
        return None
    return Attempt(attempt, left_json(attempt / "report.json"), left_json(attempt / "exit.json"))


def _differences(cell: Cell) -> Iterator[Difference]:
    checks = {row["check"]: row for row in cell.checks}
    for check, violations in itertools.groupby(cell.violations, key=lambda row: row["check"]):
        rows = [
            DifferingRow(
                row["kind"],
                row["seq"],
                row["sub"],
                *marked(row["expected"], row["actual"]),
                marked(row["event"], None)[0],
            )
            for row in violations
        ]
        total = sum(checks.get(check, {}).get(name) or 0 for name in COUNTS)
        noun = "rows that break it" if check.startswith("invariant:") else "differing rows"
        yield Difference(check, rows, f"{max(total, len(rows)):,} {noun}")


def _seed(facts: dict[str, Any]) -> object:
    return "imported" if facts.get("seed") is None else facts["seed"]


def _facts(cell: Cell, report: dict[str, Any], exit_record: dict[str, Any]) -> Iterator[tuple[str, object]]:
    parts = _way(cell, report), _input(cell, report), _provenance(cell, exit_record), _host(cell, report, exit_record)
    for name, value in itertools.chain.from_iterable(parts):
        if value not in (None, ""):
            yield name, value


def _way(cell: Cell, report: dict[str, Any]) -> list[tuple[str, object]]:
    spec = cell.spec
    words = [f"executor {spec.executor}"]
    words += [f"{axis} {value}" for axis, value in reproduce.strategies(spec).items() if axis != "order"]
    words += ["plan from the planner"] if spec.needs_plan else []
    words += [f"{len(schedule)} reconfigurations"] if (schedule := spec.option("schedule")) else []
    words += [f"{spec.threads} thread{'s' * (spec.threads > 1)}"]
    unordered = "none: the comparison uses what the application declares to agree without order"
    return [
        ("way", ", ".join(words)),
        ("threads", _threads(report)),
        ("order", unordered if spec.order == "none" else "total"),
        ("plan", _plan(report)),
        ("changes since the plan", _changes(report)),
        ("batch", f"{spec.batch} events"),
        ("punctuation interval", f"{spec.punctuation} events"),
        ("checkpoint interval", spec.checkpoint if spec.interval.seconds else f"{spec.checkpoint} events"),
        ("faults injected", _faults(report)),
        ("waiting threads", spec.idle),
        ("pinned to cores", "yes" if spec.pin else "no"),
    ]


def _faults(report: dict[str, Any]) -> str:
    """The faults that the run injected, such as `kill@100`; empty without any."""
    faults = [InjectedFault(**fault) for fault in report.get("faults", [])]
    return ", ".join(f"{fault.kind}@{fault.at}" for fault in faults)


def _threads(report: dict[str, Any]) -> str:
    """How many threads worked in the last pass; empty without a record."""
    samples = report.get("samples") or [{}]
    threads = samples[-1].get("threads")
    return Threads(**threads).text if threads else ""


def _input(cell: Cell, report: dict[str, Any]) -> list[tuple[str, object]]:
    facts = cell.facts
    params = report.get("workload", {}).get("params") or cell.spec.params
    return [
        ("parameters", ", ".join(f"{name}={value}" for name, value in params.items())),
        ("events, seed", f"{facts['events']:,}, {_seed(facts)}" if facts.get("events") else ""),
        ("workload", cell.workload),
        ("oracle", facts.get("oracle_address")),
    ]


def _provenance(cell: Cell, exit_record: dict[str, Any]) -> list[tuple[str, object]]:
    facts = cell.facts
    return [
        ("digest of outputs", facts.get("output_digest")),
        ("digest of final state", facts.get("state_digest")),
        ("digest of the specification", facts.get("spec_digest")),
        ("digest of the code", facts.get("code_digest")),
        ("build", facts.get("build")),
        ("attempt", facts.get("attempt")),
        ("started", _time(exit_record.get("started_at") or facts.get("started_at"))),
        ("exit code", exit_record.get("exit_code")),
    ]


def _time(value: datetime | str | None) -> Markup:
    return times.html(datetime.fromisoformat(value) if isinstance(value, str) else value)


def _host(cell: Cell, report: dict[str, Any], exit_record: dict[str, Any]) -> list[tuple[str, object]]:
    facts, host = cell.facts, report.get("host", {})
    loads = [facts.get("load_before"), facts.get("load_after")]
    joules, seconds, peak = (facts.get(name) for name in ("energy_joules", "compile_seconds", "peak_memory_bytes"))
    return [
        ("host", facts.get("host") or exit_record.get("host")),
        ("load before, after", "" if None in loads else ", ".join(f"{load:.2f}" for load in loads)),
        ("disturbance", _disturbance(facts)),
        ("yardstick", facts.get("yardstick") or host.get("yardstick")),
        ("cores of the threads", ", ".join(map(str, report.get("binding") or []))),
        ("memory", words({name: value for name, value in (report.get("memory") or {}).items() if value})),
        ("remote memory", _remote(report)),
        ("topology", _topology(report.get("topology") or {})),
        ("compile time", f"{seconds:.2f} s" if seconds is not None else ""),
        ("peak memory", f"{peak / 2**20:,.0f} MiB" if peak else ""),
        ("energy", f"{joules:.1f} J" if joules is not None else host.get("energy", "")),
    ]


def _remote(report: dict[str, Any]) -> str:
    """The estimated time for memory of other nodes in the last pass, and the counted loads, or why there are none."""
    if not report.get("samples"):
        return ""
    sample = report["samples"][-1]
    estimate, loads = sample.get("breakdown", {}).get("remote"), sample.get("node_loads")
    text = f"estimated: {1e3 * (estimate or 0.0):.3g} ms of all threads in the last pass"
    if loads is None:
        return f"{text}; not counted: {report.get('host', {}).get('node_loads', 'no reason is known')}"
    return f"{text}; counted: {sample['node_load_misses']:,} of {loads:,} loads from memory went to another node"


def _topology(topology: dict[str, Any]) -> str:
    """`2 cores, 1 socket, 1 memory node; caches: L1 data 32 KiB, L2 unified 512 KiB`; empty without a record."""
    counts = [
        (len(topology.get("cores", [])), "core"),
        (topology.get("sockets", 0), "socket"),
        (len(topology.get("nodes", [])), "memory node"),
    ]
    texts = [", ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts if count)]
    caches = topology.get("caches", [])
    sizes = [f"L{cache['level']} {cache['kind'].lower()} {cache['bytes'] / 1024:,.0f} KiB" for cache in caches]
    return "; ".join(filter(None, [*texts, f"caches: {', '.join(sizes)}" if sizes else ""]))


def _disturbance(facts: dict[str, Any]) -> str:
    """The effects of other work on the cores during the measurement (run/disturbance.py); empty without a record."""
    if facts.get("others") is None:
        return ""
    mhz = [f"{facts[name]:,.0f}" for name in ("mhz_before", "mhz_after") if facts.get(name)]
    others = f"other processes used {facts['others']:.0%} of the cores"
    steal = f"the hypervisor took {facts.get('steal') or 0:.1%}"
    lost = f"the process lost a core {facts.get('preempted') or 0:,.0f} times a second"
    return ", ".join([others, steal, lost, *([f"{' to '.join(mhz)} MHz"] if mhz else [])])


def _plan(report: dict[str, Any]) -> str:
    """The planner's plan, and the error of its prediction; empty without one."""
    planned = report.get("planned")
    if not planned:
        return ""
    # Tasks are listed upstream first, thread by thread; only the sink comes last on any thread.
    names = dict.fromkeys(task["operator"] for task in report["samples"][0]["tasks"] if task["operator"] != "sink")
    threads = "; ".join(f"{name} {', '.join(map(str, planned['plan'][name]))}" for name in [*names, "sink"])
    off = "" if planned["error"] is None else f", {planned['error']:.0%} off"
    predicted = f"{human_rate(planned['events_per_s'])} events/s predicted{off}, limited by {planned['bottleneck']}"
    return f"on threads: {threads} ({planned['strategy']}: {predicted})"


def _changes(report: dict[str, Any]) -> str:
    """The changes of the load since the planner chose the plan, and the plan that fits it now."""
    planned = report.get("planned") or {}
    clauses = [
        f"{operator} has {times:.1f} times its part of the work"
        for operator, times in planned.get("changed", {}).items()
    ]
    if better := planned.get("better"):
        rates = f"{human_rate(better['events_per_s'])} events/s instead of {human_rate(better['instead_of'])}"
        clauses.append(f"better now: {words(better['plan'])}, {rates}")
    return "; ".join(clauses)


def _per_event(samples: list[dict[str, Any]]) -> Iterator[MeasuredPass]:
    """The passes with nanoseconds of processor time and nanojoules per event."""
    for row in samples:
        totals = (row.get("cpu_seconds"), row.get("energy_joules"))
        cpu, energy = (total * 1e9 / row["events"] if total is not None and row["events"] else None for total in totals)
        yield MeasuredPass(row, cpu, energy)
