"""The contract between Lockstep and another engine: the manifest, the task, and the report.

An engine is a program in an environment of its own. For each cell, Lockstep calls its command:

    COMMAND --workload DIR --spec FILE --out DIR

The command reads the events, executes them, and writes `outputs/part-*.parquet` and, last, `report.json`.
docs/reference/engines.md describes the fields of these models. `client/lockstep_engine.py` keeps the contract for
programs in Python, and uses nothing of this package.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

VERSION = 1  # of the task and the report
MAX_LIMIT = 86_400.0
MAX_THREADS = 1024

Order = Literal["total", "none"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Manifest(_Model):
    """The declaration of an engine: the file `engine.yaml` in its folder. The folder's name is the engine's."""

    system: str = Field(min_length=1, max_length=60, description="What pages call the engine, such as `Polars 2.1`.")
    command: list[str] = Field(
        min_length=1,
        description="The program and its first arguments. It runs in the engine's folder. `python` is that of the "
        "engine's environment.",
    )
    build: list[str] = Field(
        default_factory=list,
        description="A command that `lockstep engines install` runs in the engine's folder, after it has installed the "
        "packages of requirements.lock. It may write into the folder that ENGINE_HOME names.",
    )
    applications: dict[str, Order] = Field(
        min_length=1,
        description="The applications that it runs, with the order of their outputs. With `total`, each output has the "
        "`seq` of its event and a `sub`. With `none`, outputs have the columns that the application declares to agree "
        "without order.",
    )
    fixed: dict[str, dict[str, bool | int | float | str]] = Field(
        default_factory=dict,
        description="By application, parameters and the only value that the engine supports. A matrix leaves out other "
        "cells.",
    )
    max_threads: int = Field(
        MAX_THREADS, ge=1, le=MAX_THREADS, description="The most threads that it uses. A matrix leaves out other cells."
    )
    open_loop: bool = Field(False, description="Whether it can offer events at a rate.")
    limit: float = Field(
        600.0, ge=1.0, le=MAX_LIMIT, allow_inf_nan=False, description="Seconds after which a cell is stopped."
    )


class Task(_Model):
    """The work of an engine: the file that `--spec` names."""

    version: int = Field(VERSION, description="Version of the contract.")
    app: str = Field(description="Name of the application.")
    params: dict[str, bool | int | float | str] = Field(description="All parameters of the application.")
    threads: int = Field(description="Worker threads.")
    batch: int = Field(description="Events in a batch, for engines that have batches.")
    order: Order = Field(description="The order of the outputs, as the manifest declares it.")
    rate: float = Field(description="Events per second of the open-loop pass; 0 = there is no such pass.")
    repetitions: int = Field(description="Measured passes at least.")
    seconds: float = Field(
        description="The measured passes go on until they have taken this long, times `repetitions`."
    )
    columns: str = Field(
        description="A Parquet file without rows, beside this file. Its columns are those of the outputs."
    )


class Latencies(_Model):
    """Latencies of a pass, in microseconds."""

    p50: float = Field(ge=0.0)
    p95: float = Field(ge=0.0)
    p99: float = Field(ge=0.0)
    p999: float = Field(ge=0.0)
    max: float = Field(ge=0.0)
    mean: float = Field(ge=0.0)


class Pass(_Model):
    """One pass over all events, from fresh state."""

    kind: Literal["verified", "peak", "open_loop"] = Field(
        description="`verified`: the first pass, which warms up, and whose outputs are written. `peak`: a measured "
        "pass. `open_loop`: the last pass, if the task has a rate."
    )
    events: int = Field(ge=0, description="Events that entered the engine.")
    outputs: int = Field(ge=0, description="Outputs of the pass.")
    digest: str = Field(
        pattern=r"^[0-9]+:[0-9a-f]{16}$", description="Digest of the outputs: `<rows>:<16 hex digits>`."
    )
    seconds: float = Field(
        gt=0.0,
        allow_inf_nan=False,
        description="From the moment at which the first event enters the engine until the digest of all outputs is "
        "known. Reading and converting the events and starting the engine are not included.",
    )
    latency_us: Latencies | None = Field(
        None,
        description="From the emission of an event by the source to the delivery of its outputs; in an open-loop pass "
        "from its intended arrival. Without it, the time of the pass counts.",
    )


class Report(_Model):
    """The results of an engine: the file `report.json` in the folder that `--out` names."""

    passes: list[Pass] = Field(min_length=1, description="The passes, in order.")
    versions: dict[str, str] = Field(default_factory=dict, description="Versions of the software, by name.")

    def fault(self, task: Task, events: int, wall: float) -> str:
        """The fault of the report, if it lacks or contradicts something; else empty.

        Args:
            task: The task of the engine.
            events: The events of the workload.
            wall: Seconds that the engine's process took.
        """
        kinds = [pass_.kind for pass_ in self.passes]
        peaks = kinds.count("peak")
        expected = ["verified", *["peak"] * peaks, *["open_loop"] * (task.rate > 0)]
        if kinds != expected:
            return f"the passes must be {', '.join(dict.fromkeys(expected))}, in this order, got {', '.join(kinds)}"
        if peaks < task.repetitions:
            return f"it has {peaks} measured passes, expected at least {task.repetitions}"
        for number, pass_ in enumerate(self.passes):
            if pass_.events != events:
                return f"pass {number} has {pass_.events} events, but the workload has {events}"
            if int(pass_.digest.partition(":")[0]) != pass_.outputs:
                return f"pass {number} has {pass_.outputs} outputs, but its digest is {pass_.digest}"
        if (total := math.fsum(pass_.seconds for pass_ in self.passes)) > wall:
            return f"its passes took {total:.2f} s, but its process only {wall:.2f} s"
        return ""

    @model_validator(mode="after")
    def _check_latencies(self) -> Report:
        for number, pass_ in enumerate(self.passes):
            if pass_.kind == "open_loop" and pass_.latency_us is None:
                raise ValueError(f"pass {number} is open_loop and has no latency_us")
        return self
