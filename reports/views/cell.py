"""The evidence on one cell: rows that differ, commands that reproduce it, and facts about the execution."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterator
from datetime import datetime
from html import escape
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from reports import times
from reports.history.cell import Cell
from reports.history.run import Run
from reports.history.text import NOTHING, human_rate, lines, short_json
from reports.views.tasks import Tasks
from streaming_core.engines import registry
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.regression.verdict import COUNTS
from streaming_core.run.report import LOG
from streaming_core.run.way import AXES, EXECUTORS, NAMED_PLANS, WINDOW_OPTIONS, RunSpec
from streaming_core.storage import canonical_json, left_json

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


def evidence(home: Home, run: Run, cell: Cell) -> dict:
    """What templates show of a cell."""
    attempt, report, exit_record = attempt_of(home, run, cell)
    is_unordered = cell.spec.order == "none" and cell.verdict in ("equal", "invariant_broken")
    logs = [attempt.with_name(f"{attempt.name}.stderr.log"), attempt / LOG] if attempt else []
    logs = logs if cell.verdict == "failed" else []
    return {
        "cell": cell,
        "headline": f"{cell.label} {cell.outcome.sentence}{', apart from the order' if is_unordered else ''}",
        "evidence": list(_differences(cell)),
        "passes": list(_per_event(cell.samples)),
        "tasks": Tasks.of(report),
        "logs": [(title, shown) for title, log in zip(LOGS, logs, strict=False) if (shown := lines(log, LOG_LINES))],
        "commands": _commands(run, cell, report, home),
        "facts": list(_facts(cell, report, exit_record)),
        "engine": engine_of(cell, report) if is_other(cell) else None,
    }


def is_other(cell: Cell) -> bool:
    """Whether another engine runs the cell."""
    return cell.spec.executor not in EXECUTORS


def engine_of(cell: Cell, report: dict) -> Engine:
    """What is known of the engine of a cell: from the report, else from the manifest, else its name only."""
    if facts := report.get("host", {}).get("engine"):
        return Engine(facts["system"], {name: version for name, version in facts.items() if name != "system"})
    try:
        return Engine(registry.load(cell.spec.executor).manifest.system, {})
    except BadInput:
        return Engine(cell.spec.executor, {})


def attempt_of(home: Home, run: Run, cell: Cell) -> tuple[Path | None, dict, dict]:
    """Folder, report.json and exit.json of the attempt in the warehouse, else of the last one."""
    folder = home.cell(run.run_id, cell.name)
    number = cell.facts.get("attempt")
    folders = (path for path in folder.glob("attempt-[0-9]*") if path.is_dir())
    attempts = sorted(folders, key=lambda path: int(path.name.removeprefix("attempt-")))
    attempt = folder / f"attempt-{number}" if number else attempts[-1] if attempts else None
    if attempt is None or not attempt.is_dir():
        return None, {}, {}
    return attempt, left_json(attempt / "report.json"), left_json(attempt / "exit.json")


def _differences(cell: Cell) -> Iterator[dict]:
    totals = {row["check"]: row for row in cell.checks}
    for check, rows in itertools.groupby(cell.violations, key=lambda row: row["check"]):
        known = totals.get(check, {})
        shown = [
            {**row, **dict(zip(("expected", "actual"), _marked(row["expected"], row["actual"]), strict=True))}
            for row in rows
        ]
        total = sum(known.get(name) or 0 for name in COUNTS)
        noun = "rows that break it" if check.startswith("invariant:") else "differing rows"
        yield {"name": check, "rows": shown, "total": f"{max(total, len(shown)):,} {noun}"}


def _marked(expected: str | None, actual: str | None) -> tuple[Markup | str, Markup | str]:
    """Two rows as `name: value` lines, the values that differ marked."""
    left, right = _fields(expected), _fields(actual)
    if left is None or right is None:
        shown = [_plain(row) if row is not None else text for row, text in ((left, expected), (right, actual))]
        return shown[0] or NOTHING, shown[1] or NOTHING
    return _plain(left, right), _plain(right, left)


def _fields(text: str | None) -> dict | None:
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _plain(row: dict, other: dict | None = None) -> Markup:
    out = []
    for name, value in row.items():
        shown = escape(json.dumps(value, ensure_ascii=False))
        if other is not None and (name not in other or other[name] != value):
            shown = f"<mark>{shown}</mark>"
        out.append(f"{escape(name)}: {shown}")
    return Markup("\n".join(out))


class _Expanded(str):
    """A path that the shell expands. All other words of a command are quoted."""


def _commands(run: Run, cell: Cell, report: dict, home: Home) -> list[str]:
    """Shell lines that repeat the comparison, as often as they are pasted, from nothing but the checkout."""
    spec, regression = cell.spec, run.plan.get("regression", {})
    planned: dict = next((w for w in run.plan.get("workloads", []) if w["address"] == cell.workload), {})
    events = planned.get("events") or cell.facts.get("events") or regression.get("events", 0)
    seed = planned.get("seed", cell.facts.get("seed", regression.get("seed", 1)))
    settings = [word for name, value in spec.params.items() for word in ("--set", f"{name}={value}")]
    workload, oracle, output = (_Expanded(f'"$again"/{name}') for name in ("workload", "oracle", "run"))
    options, files = _options(spec, (report.get("planned") or {}).get("plan"))
    generate = [["generate", spec.app, "--events", events, "--seed", seed, "--out", workload, *settings]]
    # No generator makes imported events: they are in the folder of the import.
    if name := planned.get("data"):
        workload, generate = _Expanded(shlex.quote(str(home.imported(spec.app, name)))), []
    commands = [
        *generate,
        ["oracle", spec.app, "--input", workload, "--out", oracle],
        ["run", spec.app, "--input", workload, "--out", output, *options],
        ["diff", output, oracle],
    ]
    shell = [_shell("streaming-core", words) for words in commands]
    if not cell.is_bound:  # a bound keeps no invariant
        shell.append(_shell("lockstep", ["invariants", output, "--input", workload]))
    install = [_shell("lockstep", ["engines", "install", spec.executor])] if is_other(cell) else []
    return ["again=$(mktemp -d)", *install, *files, *shell]


def _shell(command: str, words: list) -> str:
    quoted = (word if isinstance(word, _Expanded) else shlex.quote(str(word)) for word in words)
    return " ".join([f".venv/bin/{command}", *quoted])


def _options(spec: RunSpec, plan_in_report: dict | None) -> tuple[list, list[str]]:
    """The options of the run, and the shell lines that write the files that it reads."""
    options = ["--executor", spec.executor, "--threads", spec.threads]
    for axis, value in _strategies(spec).items():
        options += [f"--{axis}", value]
    options += [f"--{switch}" for switch in spec.options() if spec.option(switch) is True]
    for option, field in spec.options().items():
        if field.annotation is int and spec.option(option) != field.default:
            options += [f"--{option.replace('_', '-')}", spec.option(option)]
    options += ["--thresholds", ",".join(map(str, numbers))] if (numbers := spec.option("thresholds")) else []
    options += ["--punctuation", spec.punctuation, "--batch", spec.batch, "--idle", spec.idle, "--sink", "parquet"]
    options += ["--repetitions", spec.repetitions, *(["--rate", spec.rate] if spec.rate else [])]
    options += ["--seconds", spec.seconds] if spec.seconds != RunSpec.model_fields["seconds"].default else []
    # A search may find another plan on another machine, so the commands name the plan of this run.
    plan = plan_in_report if spec.needs_plan else spec.option("plan")
    if "plan" in spec.options() and not plan:
        options += ["--plan", next(word for word, named in NAMED_PLANS.items() if named == spec.option("plan"))]
    files = []
    for option, value in (("plan", plan), ("schedule", spec.model_dump(mode="json")["schedule"])):
        if value:
            path = _Expanded(f'"$again"/{option}.json')
            files.append(f"echo {shlex.quote(canonical_json(value))} > {path}")
            options += [f"--{option}", path]
    options += ["--pin"] if spec.needs_plan and plan else []
    return options, files


def _strategies(spec: RunSpec) -> dict[str, object]:
    """Its strategies by axis; those of windows only if they differ from the default."""
    chosen = {axis: value for axis in AXES if (value := spec.option(axis)) is not None}
    return {axis: value for axis, value in chosen.items() if axis not in WINDOW_OPTIONS or value != AXES[axis][0]}


def _seed(facts: dict) -> object:
    return "imported" if facts.get("seed") is None else facts["seed"]


def _facts(cell: Cell, report: dict, exit_record: dict) -> Iterator[tuple[str, object]]:
    parts = _way(cell, report), _input(cell, report), _provenance(cell, exit_record), _host(cell, report, exit_record)
    for name, value in itertools.chain.from_iterable(parts):
        if value not in (None, ""):
            yield name, value


def _way(cell: Cell, report: dict) -> list[tuple[str, object]]:
    spec = cell.spec
    words = [f"executor {spec.executor}"]
    words += [f"{axis} {value}" for axis, value in _strategies(spec).items() if axis != "order"]
    words += ["plan from the planner"] if spec.needs_plan else []
    words += [f"{len(schedule)} reconfigurations"] if (schedule := spec.option("schedule")) else []
    words += [f"{spec.threads} thread{'s' * (spec.threads > 1)}"]
    unordered = "none: the comparison uses what the application declares to agree without order"
    return [
        ("way", ", ".join(words)),
        ("order", unordered if spec.order == "none" else "total"),
        ("plan", _plan(report)),
        ("changes since the plan", _changes(report)),
        ("batch", f"{spec.batch} events"),
        ("punctuation interval", f"{spec.punctuation} events"),
        ("waiting threads", spec.idle),
        ("pinned to cores", "yes" if spec.pin else "no"),
    ]


def _input(cell: Cell, report: dict) -> list[tuple[str, object]]:
    facts = cell.facts
    params = report.get("workload", {}).get("params") or cell.spec.params
    return [
        ("parameters", ", ".join(f"{name}={value}" for name, value in params.items())),
        ("events, seed", f"{facts['events']:,}, {_seed(facts)}" if facts.get("events") else ""),
        ("workload", cell.workload),
        ("oracle", facts.get("oracle_address")),
    ]


def _provenance(cell: Cell, exit_record: dict) -> list[tuple[str, object]]:
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


def _host(cell: Cell, report: dict, exit_record: dict) -> list[tuple[str, object]]:
    facts, host = cell.facts, report.get("host", {})
    loads = [facts.get("load_before"), facts.get("load_after")]
    joules, seconds, peak = (facts.get(name) for name in ("energy_joules", "compile_seconds", "peak_memory_bytes"))
    return [
        ("host", facts.get("host") or exit_record.get("host")),
        ("load before, after", "" if None in loads else ", ".join(f"{load:.2f}" for load in loads)),
        ("disturbance", _disturbance(facts)),
        ("yardstick", facts.get("yardstick") or host.get("yardstick")),
        ("cores of the threads", ", ".join(map(str, report.get("binding") or []))),
        ("memory", short_json({name: value for name, value in (report.get("memory") or {}).items() if value})),
        ("topology", short_json(report.get("topology"))),
        ("versions", short_json(host.get("versions"))),
        ("compile time", f"{seconds:.2f} s" if seconds is not None else ""),
        ("peak memory", f"{peak / 2**20:,.0f} MiB" if peak else ""),
        ("energy", f"{joules:.1f} J" if joules is not None else host.get("energy", "")),
    ]


def _disturbance(facts: dict) -> str:
    """What other work did to the cores during the measurement (run/disturbance.py); empty without a record."""
    if facts.get("others") is None:
        return ""
    mhz = [f"{facts[name]:,.0f}" for name in ("mhz_before", "mhz_after") if facts.get(name)]
    others = f"other processes used {facts['others']:.0%} of the cores"
    steal = f"the hypervisor took {facts.get('steal') or 0:.1%}"
    lost = f"the process lost a core {facts.get('preempted') or 0:,.0f} times a second"
    return ", ".join([others, steal, lost, *([f"{' to '.join(mhz)} MHz"] if mhz else [])])


def _plan(report: dict) -> str:
    """The plan that the planner found, and the error of its prediction; empty without one."""
    planned = report.get("planned")
    if not planned:
        return ""
    # Tasks are listed upstream first, thread by thread; only the sink comes last on any thread.
    names = dict.fromkeys(task["operator"] for task in report["samples"][0]["tasks"] if task["operator"] != "sink")
    threads = "; ".join(f"{name} {', '.join(map(str, planned['plan'][name]))}" for name in [*names, "sink"])
    off = "" if planned["error"] is None else f", {planned['error']:.0%} off"
    predicted = f"{human_rate(planned['events_per_s'])} events/s predicted{off}, limited by {planned['bottleneck']}"
    return f"on threads: {threads} ({planned['strategy']}: {predicted})"


def _changes(report: dict) -> str:
    """How the load has changed since the planner found the plan, and the plan that fits it now."""
    planned = report.get("planned") or {}
    clauses = [
        f"{operator} has {times:.1f} times its part of the work"
        for operator, times in planned.get("changed", {}).items()
    ]
    if better := planned.get("better"):
        rates = f"{human_rate(better['events_per_s'])} events/s instead of {human_rate(better['instead_of'])}"
        clauses.append(f"better now: {short_json(better['plan'])}, {rates}")
    return "; ".join(clauses)


def _per_event(samples: list[dict]) -> Iterator[dict]:
    """Measured passes with nanoseconds of processor time and nanojoules per event."""
    for row in samples:
        spent = {"cpu_ns": row.get("cpu_seconds"), "energy_nj": row.get("energy_joules")}
        known = {name: total for name, total in spent.items() if total is not None and row["events"]}
        yield row | dict.fromkeys(spent) | {name: total * 1e9 / row["events"] for name, total in known.items()}
