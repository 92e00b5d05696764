"""Where the figures of a run come from: build, host, code and workload, as the report of the run states them."""

from __future__ import annotations

import platform
import socket
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.kernels.program import Program
from streaming_core.process import git
from streaming_core.process.ending import say
from streaming_core.run import probe
from streaming_core.run.processor import processor
from streaming_core.run.report import Rerun, RunReport, Sample
from streaming_core.run.way import RunSpec

ROOT = Path(__file__).resolve().parents[2]
BUILD_FILE = "BUILD"  # in the package, if it was shipped to a host (infra/hosts/wheel.py)


@dataclass(frozen=True)
class PreparedRun:
    """A cell that is ready to run.

    Attributes:
        spec: The way of executing.
        program: The compiled application.
        workload: The workload.
        load_before: The load average of the host before the run.
    """

    spec: RunSpec
    program: Program
    workload: workload.Workload
    load_before: float


@dataclass(frozen=True)
class Outcome:
    """The measurements and results of a run.

    Attributes:
        samples: The samples of all passes.
        rerun: The pass that was made again because its result differed.
        state_digest: The digest of the final states; None if the run leaves none.
        peak_memory_bytes: The peak memory of the engine.
        binding: The cores of the threads in the last pass.
        memory: The placement of memory in the last pass.
        energy_joules: The energy of all samples; None if unknown.
        resumed: Events at which the run resumed from a checkpoint.
        yardstick: The name of the compiled loop; None if no loop ran.
        host: Facts about the host, beside its name and versions.
    """

    samples: list[Sample]
    state_digest: str | None
    peak_memory_bytes: int
    binding: list[int] | None = None
    memory: dict[str, Any] | None = None
    energy_joules: float | None = None
    rerun: Rerun | None = None
    resumed: list[int] = field(default_factory=list)
    yardstick: str | None = None
    host: dict[str, Any] = field(default_factory=dict)


def report_of(run: PreparedRun, outcome: Outcome) -> RunReport:
    """The report of a run."""
    spec, program, manifest = run.spec, run.program, run.workload.manifest
    return RunReport(
        spec=spec.model_dump(mode="json"),
        spec_digest=spec.spec_digest,
        cell=spec.cell,
        app=spec.app,
        code_digest=registry.code_digest(program.app),
        build=build(),
        workload={name: dict(manifest)[name] for name in ("address", "content_digest", "events", "seed", "params")},
        is_bound=spec.is_bound,
        samples=outcome.samples,
        rerun=outcome.rerun,
        state_digest=outcome.state_digest,
        compile_seconds=program.compile_seconds,
        peak_memory_bytes=outcome.peak_memory_bytes,
        energy_joules=outcome.energy_joules,
        topology=probe.topology(),
        resumed=outcome.resumed,
        binding=outcome.binding,
        memory=outcome.memory,
        yardstick=outcome.yardstick,
        host={
            "name": socket.gethostname(),
            "load_before": run.load_before,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "cpu": processor(),
            **outcome.host,
        },
    )


@cache
def build() -> str:
    """Short git revision of the checkout that the engine runs from; `unknown` without one, and stderr says why.

    The revision ends with `-dirty` if files differ or git does not track them, such as those of a new application. A
    build that was shipped to another host has its revision in BUILD_FILE.
    """
    shipped = ROOT / "streaming_core" / BUILD_FILE
    if shipped.exists():
        return shipped.read_text().strip()
    if not (ROOT / "pyproject.toml").exists():  # the package is installed from a wheel
        return "unknown"
    try:
        described, status = git(ROOT, "describe", "--always", "--exclude=*"), git(ROOT, "status", "--porcelain")
        reason = described.stderr or status.stderr
        if not described.returncode and not status.returncode:
            return f"{described.stdout.strip()}{'-dirty' if status.stdout else ''}"
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
    reason = reason.strip().partition("\n")[0].removeprefix("fatal: ")
    say("build", f"unknown, so runs of {ROOT} have no commit to compare with ({reason}): commit it with git")
    return "unknown"
