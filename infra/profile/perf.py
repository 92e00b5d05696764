"""Runs a build under Linux's `perf`: samples of its stacks, and counters of the processor."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from infra.gate.pairs import report_of
from infra.hosts.build import Build
from infra.profile.stacks import Kernels, Stack, count
from streaming_core.errors import RunFailed
from streaming_core.machine_code.perf_map import VARIABLE
from streaming_core.process import Process
from streaming_core.run.way import RunSpec

HERTZ = 997  # a prime, so that samples do not keep in step with periodic work
STACK_BYTES = 8192  # of a thread's stack, which a sample copies to unwind it later
# Linux itself counts the first three; `task-clock` is in nanoseconds. The processor counts the others, if the
# hypervisor lets it.
COUNTERS = (
    *("task-clock", "context-switches", "page-faults", "instructions", "cycles", "branch-misses", "cache-misses"),
    *("node-loads", "node-load-misses"),
)
NOT_COUNTED = "<"  # begins `<not supported>` and `<not counted>`


class Counted(NamedTuple):
    """The report of a process, and its counts of events; None for an event that this host does not count."""

    report: dict[str, Any]
    counts: dict[str, float | None]


def obstacle() -> str:
    """Why `perf` cannot sample on this host, in one line; empty if it can."""
    if shutil.which("perf") is None:
        return "perf is not installed; Debian's package linux-perf has it"
    lines: list[str] = []
    if Process().run(["perf", "record", "-q", "-N", "-e", "cpu-clock", "-o", os.devnull, "--", "true"], lines.append):
        reason = next((line for line in lines if line.rstrip(":. ") not in ("", "Error")), "no message")
        return f"perf may not sample here: {reason.rstrip(':. ')}; see kernel.perf_event_paranoid"
    return ""


def sampled(build: Build, spec: RunSpec, workload: Path, passes: int) -> tuple[dict[str, Any], Counter[Stack]]:
    """Sample the stacks of a build; the arguments are those of `report_of`.

    Returns:
        The report, and the samples of the engine by stack. A sample stands for 1 / `HERTZ` seconds of a thread.

    Raises:
        RunFailed: As `report_of`, or `perf` cannot read its samples.
    """
    with tempfile.TemporaryDirectory(prefix="lockstep-profile-") as folder:
        samples, places = Path(folder, "samples"), Path(folder, "kernels")
        record = ["perf", "record", "-q", "-N", "-e", "cpu-clock", "-F", str(HERTZ)]
        record += ["--call-graph", f"dwarf,{STACK_BYTES}", "-o", str(samples), "--"]
        report = report_of(build, spec, workload, passes, ["env", f"{VARIABLE}={places}", *record])
        kernels = Kernels(places.read_text() if places.exists() else "")
        lines: list[str] = []
        script = ["perf", "script", "-i", str(samples), "--no-inline", "-F", "ip,sym,dso"]
        if Process().run(script, lines.append):
            raise RunFailed(f"build {build.name}: perf cannot read its samples: {lines[-1] if lines else 'no message'}")
        return report, count(lines, kernels)


def counted(build: Build, spec: RunSpec, workload: Path, passes: int) -> Counted:
    """Count events of the processor over the whole process of a build; the arguments are those of `report_of`."""
    with tempfile.TemporaryDirectory(prefix="lockstep-profile-") as folder:
        file = Path(folder, "counters")
        stat = ["perf", "stat", "-x", ",", "-o", str(file), "-e", ",".join(COUNTERS), "--"]
        report = report_of(build, spec, workload, passes, stat)
        return Counted(report, dict(_counts(file.read_text())))


def _counts(text: str) -> Iterator[tuple[str, float | None]]:
    for line in text.splitlines():
        value, unit, name, *_ = [*line.split(","), "", ""]
        if (event := name.partition(":")[0]) in COUNTERS:
            yield event, None if value.startswith(NOT_COUNTED) else float(value) * (1e6 if unit == "msec" else 1)


def per_event(short: Counted, long: Counted) -> dict[str, float | None]:
    """Counts per event of the workload: those of a long process less those of a short one, by the events between.

    So the start of the process, loading and compiling do not count.
    """
    events = events_of(long.report) - events_of(short.report)

    def rate(name: str) -> float | None:
        few, many = short.counts.get(name), long.counts.get(name)
        if few is None or many is None or not events:
            return None
        # The start of a process varies. Where that hides the passes, there is no number.
        return (many - few) / events if many >= few else None

    return {name: rate(name) for name in COUNTERS}


def events_of(report: Mapping[str, Any]) -> int:
    """The events of all passes of a report."""
    return sum(sample["events"] * sample.get("passes", 1) for sample in report["samples"])
