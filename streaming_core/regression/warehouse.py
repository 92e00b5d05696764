"""The raw warehouse: the only truth about past runs, in immutable Parquet files. Each run has a file per table.

| table | rows |
|---|---|
| cells | one per planned cell |
| hosts | one per host that the preflight of the run looked at |
| samples | one per measured pass |
| verdicts | one per cell and check |
| violations | the first differing rows of a verdict, VIOLATION_CAP at most |
| expectations | one per expectation of a data set that the run evaluated |
| pairs | one per cell and pair of passes beside the baseline |
| finds | one per case that the search for faults found |
| searches | one per application that it searched |
| decisions | one per entry of the chain of decisions (decisions.py) |

A decision belongs to no run. It has an id of its own, in the form of a run id.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic.fields import FieldInfo

from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.run.way import SPEC_FIELDS, RunSpec, literal_values
from streaming_core.storage import canonical_json

# Raise it whenever a column is added, removed or changes its meaning: readers refuse parts of any other version.
SCHEMA_VERSION = 2
VERSION = "schema_version"
VIOLATION_CAP = 20
ELSEWHERE = "restore it from a backup, or set LOCKSTEP_HOME to a new folder"

# The columns of a latency; the mean in a report is for benchmarks.
LATENCY = ("p50", "p95", "p99", "p999", "max")
_LATENCY = [(f"{kind}_{p}_us", pa.float64()) for kind in ("processing", "end_to_end") for p in LATENCY]

# The fields of a spec that say how a cell is executed: all but where its outputs go and how often it is measured.
WAY = tuple(name for name in SPEC_FIELDS if name not in ("app", "params", "sink", "repetitions", "seconds"))
_COLUMNS: dict[Any, pa.DataType] = {bool: pa.bool_(), int: pa.int32(), float: pa.float64()}
# The fields of a spec that a raw row may hold as JSON.
JSON_FIELDS = {
    name
    for name, field in SPEC_FIELDS.items()
    if field.annotation not in (str, *_COLUMNS) and not literal_values(field)
}


def _column(field: FieldInfo) -> pa.DataType:
    return _COLUMNS.get(field.annotation, pa.string())  # strings as they are, anything else as canonical JSON


CELLS = pa.schema(
    [
        (VERSION, pa.int32()),
        ("run_id", pa.string()),
        ("cell", pa.string()),
        ("app", pa.string()),
        ("params", pa.string()),  # canonical JSON
        ("executor", pa.string()),
        ("strategy", pa.string()),  # RunSpec.strategy
        *((name, _column(SPEC_FIELDS[name])) for name in WAY if name != "executor"),
        ("events", pa.int64()),
        ("seed", pa.int64()),
        ("spec_digest", pa.string()),
        ("code_digest", pa.string()),
        ("build", pa.string()),
        ("workload_address", pa.string()),
        ("oracle_address", pa.string()),
        ("is_bound", pa.bool_()),
        ("attempt", pa.int32()),
        ("status", pa.string()),  # ok | failed | not_run
        ("error", pa.string()),
        ("host", pa.string()),
        ("load_before", pa.float64()),
        ("load_after", pa.float64()),
        ("yardstick", pa.string()),  # loop and processor of the samples' loop_seconds; null: no loop ran
        ("steal", pa.float64()),  # this and the next four: during the measurement (run/disturbance.py)
        ("others", pa.float64()),
        ("preempted", pa.float64()),
        ("mhz_before", pa.float64()),
        ("mhz_after", pa.float64()),
        ("compile_seconds", pa.float64()),
        ("peak_memory_bytes", pa.int64()),
        ("energy_joules", pa.float64()),
        ("output_digest", pa.string()),
        ("state_digest", pa.string()),
        ("started_at", pa.timestamp("us", tz="UTC")),
        ("verdict", pa.string()),  # from verdict.judge, as is the reason
        ("reason", pa.string()),
    ]
)

# The fields of a preflight, but for those that change with the minute.
HOSTS = pa.schema(
    [
        (VERSION, pa.int32()),
        ("run_id", pa.string()),
        ("host", pa.string()),  # the connection
        ("machine", pa.string()),  # `host` of the cells that ran there
        ("reason", pa.string()),  # why it ran no cells; null if it was fit
        ("cpu", pa.string()),
        ("cores", pa.int32()),
        ("sockets", pa.string()),  # physical cores of each, as JSON
        ("bound", pa.string()),
        ("distances", pa.string()),  # between NUMA nodes, as JSON
        ("quota", pa.float64()),
        ("governor", pa.string()),
        ("turbo", pa.string()),
        ("numa_balancing", pa.bool_()),
        ("transparent_hugepages", pa.string()),
        ("perf_event_paranoid", pa.int32()),
        ("isolated", pa.string()),
        ("warning", pa.string()),  # the causes of unsteady speeds; empty if there are none
    ]
)

SAMPLES = pa.schema(
    [
        (VERSION, pa.int32()),
        ("run_id", pa.string()),
        ("cell", pa.string()),
        ("kind", pa.string()),
        ("repetition", pa.int32()),
        ("events", pa.int64()),
        ("outputs", pa.int64()),
        ("digest", pa.string()),
        ("in_order", pa.bool_()),
        ("seconds", pa.float64()),
        ("passes", pa.int32()),  # passes of the repetition; the sample is the median one
        ("loop_seconds", pa.float64()),  # median pass of the compiled loop, in turns with these; null: no loop ran
        ("events_per_s", pa.float64()),
        *_LATENCY,
        ("useful_s", pa.float64()),
        ("sync_s", pa.float64()),
        ("lock_s", pa.float64()),
        ("remote_s", pa.float64()),
        ("other_s", pa.float64()),
        ("cpu_seconds", pa.float64()),
        ("energy_joules", pa.float64()),
        ("dropped_invalid", pa.int64()),
        ("dropped_late", pa.int64()),
        ("reconfigurations", pa.int32()),  # completed reconfigurations of windowed operators
        ("slowest_reconfiguration_us", pa.float64()),  # from the first event to the last replica concerned
        ("rejected", pa.int64()),
    ]
)

VERDICT_ROWS = pa.schema(
    [
        (VERSION, pa.int32()),
        ("run_id", pa.string()),
        ("cell", pa.string()),
        ("app", pa.string()),
        ("check", pa.string()),  # as the table in docs/explanation/checking.md
        ("verdict", pa.string()),
        ("expected_rows", pa.int64()),
        ("actual_rows", pa.int64()),
        ("missing", pa.int64()),
        ("extra", pa.int64()),
        ("different", pa.int64()),
        ("out_of_order", pa.int64()),
        ("detail", pa.string()),
    ]
)

VIOLATIONS = pa.schema(
    [
        (VERSION, pa.int32()),
        ("run_id", pa.string()),
        ("cell", pa.string()),
        ("app", pa.string()),
        ("check", pa.string()),
        ("rank", pa.int32()),
        ("kind", pa.string()),  # missing | extra | different | out_of_order | invariant
        ("seq", pa.int64()),
        ("sub", pa.int64()),
        ("expected", pa.string()),  # canonical JSON of the row
        ("actual", pa.string()),
        ("event", pa.string()),  # canonical JSON of the input event that caused it
    ]
)

EXPECTATIONS = pa.schema(
    [
        (VERSION, pa.int32()),
        ("run_id", pa.string()),
        ("data_set", pa.string()),  # the suite
        ("number", pa.int32()),  # of the result among those of the data set, from 0
        ("column", pa.string()),  # null: the expectation is about whole rows
        ("expectation", pa.string()),  # the type of Great Expectations
        ("rule", pa.string()),  # the rule in words
        ("severity", pa.string()),  # critical | warning | info
        ("success", pa.bool_()),
        ("observed", pa.string()),  # JSON of the observed value
        ("observed_value", pa.float64()),  # the same as a number; null if it is none
        ("low", pa.float64()),  # the bounds of the observed value; null: there is none
        ("high", pa.float64()),
        ("unexpected_share", pa.float64()),  # rows that break the rule, of all rows; null if unknown
        ("error", pa.string()),  # why the expectation could not be evaluated
    ]
)

PAIRS = pa.schema(
    [
        (VERSION, pa.int32()),
        ("run_id", pa.string()),  # the run of the cell; its build is compared with that of the baseline
        ("cell", pa.string()),
        ("pair", pa.int32()),  # from 0
        ("baseline", pa.string()),  # the commit whose build is the baseline
        ("baseline_ref", pa.string()),  # the name in the request: a branch, a tag, a commit
        ("build", pa.string()),
        ("host", pa.string()),
        ("first", pa.string()),  # baseline | build: the one measured first, by lot
        ("passes", pa.int32()),  # passes of each of them, in a process of its own
        ("baseline_seconds", pa.float64()),  # median over the passes
        ("build_seconds", pa.float64()),
        ("baseline_digest", pa.string()),  # of outputs and final state
        ("build_digest", pa.string()),
        ("steal", pa.float64()),  # this and `others`: as in cells, the greater value of the two sides
        ("others", pa.float64()),
        ("baseline_environment", pa.string()),  # digest of the runtime.lock of the baseline's commit
        ("environment", pa.string()),  # the environment of both
        ("error", pa.string()),  # the reason for having no pair; null if there is one
        ("measured_at", pa.timestamp("us", tz="UTC")),
    ]
)

FINDS = pa.schema(
    [
        (VERSION, pa.int32()),
        ("run_id", pa.string()),
        ("cell", pa.string()),  # the find counts as a red cell of this name: <app>.find.<digest of the case>
        ("app", pa.string()),
        ("kind", pa.string()),  # of the symptom (search/case.py), as is the name
        ("name", pa.string()),
        ("reason", pa.string()),  # one line for people
        ("spec", pa.string()),  # of the small case, as canonical JSON
        ("events", pa.int64()),
        ("rate", pa.float64()),  # the share of trials that show the symptom
        ("folder", pa.string()),  # below LOCKSTEP_HOME
        ("build", pa.string()),
    ]
)

SEARCHES = pa.schema(
    [
        (VERSION, pa.int32()),
        ("run_id", pa.string()),
        ("app", pa.string()),
        ("inputs", pa.int64()),  # inputs that it tried in this run
        ("ways", pa.int64()),  # runs of the engine
        ("reached", pa.int64()),  # branches that any of its inputs reached, those of earlier runs included
        ("branches", pa.int64()),  # branches of the operators
        ("seconds", pa.float64()),
    ]
)

DECISIONS = pa.schema(
    [
        (VERSION, pa.int32()),
        ("run_id", pa.string()),  # the id of the entry
        ("entry", pa.int64()),  # from 1
        ("previous", pa.string()),  # digest of the entry before
        ("digest", pa.string()),  # of all other columns
        ("decision", pa.string()),  # acknowledged | withdrawn
        ("of_run", pa.string()),  # the run of the acknowledged red cell
        ("cell", pa.string()),
        ("decided_by", pa.string()),
        ("why", pa.string()),
        ("decided_at", pa.timestamp("us", tz="UTC")),
    ]
)

RAW = {
    "cells": CELLS,
    "hosts": HOSTS,
    "samples": SAMPLES,
    "verdicts": VERDICT_ROWS,
    "violations": VIOLATIONS,
    "expectations": EXPECTATIONS,
    "pairs": PAIRS,
    "finds": FINDS,
    "searches": SEARCHES,
    "decisions": DECISIONS,
}


def rows(home: Home, table: str, run_id: str) -> list[dict] | None:
    """Read one run's rows of a raw table; None if the run has no file.

    Raises:
        BadInput: The file cannot be read, or has another version of the schema.
    """
    path = home.part(table, run_id)
    if not path.exists():
        return None
    check_version(path, table)
    return Parts([path]).read().to_pylist()


def check_version(path: Path, table: str) -> None:
    """Check that a file of a raw table has this version of the schema.

    Raises:
        BadInput: The file has another version or other columns, or cannot be read. The line says what to do.
    """
    part = Parts([path])
    if part.rows and VERSION in part.schema.names:
        versions = set(part.read([VERSION]).column(VERSION).to_pylist())
        if versions != {SCHEMA_VERSION}:
            names = ", ".join(map(str, sorted(versions, key=str)))
            raise BadInput(
                f"{path} has raw schema version {names}, but this checkout reads only version {SCHEMA_VERSION}; "
                "check out the Lockstep that wrote it"
            )
    if not part.schema.equals(RAW[table]):
        raise BadInput(f"{path} does not have the columns of raw schema version {SCHEMA_VERSION}; {ELSEWHERE}")


def check_versions(home: Home) -> None:
    """Check all files of all raw tables as `check_version` does."""
    for table in RAW:
        for path in parts(home, table):
            check_version(path, table)


def parts(home: Home, table: str) -> Iterator[Path]:
    """All files of a raw table, as Spark lists them: it ignores hidden names."""
    folder = home.raw(table)
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        yield from (Path(parent, name) for name in sorted(files) if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def way_columns(spec: RunSpec) -> dict:
    """The way of executing a cell, as columns of the raw table `cells`."""
    fields = spec.model_dump(mode="json")
    return {name: canonical_json(v) if isinstance(v := fields[name], dict | list) else v for name in WAY}


def spec_of(row: dict) -> RunSpec:
    """Make the spec of a cell from its raw row. Fields that the row lacks have their defaults."""
    fields = {name: row[name] for name in SPEC_FIELDS if row.get(name) is not None}
    for name in fields.keys() & JSON_FIELDS:
        if fields[name][:1] in ("[", "{"):  # a plan may also be a name
            fields[name] = json.loads(fields[name])
    return RunSpec.parse(fields)
