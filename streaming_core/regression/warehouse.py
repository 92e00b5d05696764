"""Schemas of the raw warehouse: the only truth about past runs, immutable Parquet, replaced whole per run.

Grain: cells = one row per planned cell; samples = one per measured pass; verdicts = one per cell and check;
violations = the first differing rows of a verdict, capped; pairs = one per cell and pair of passes beside the baseline.
Decisions, one row each, are of no run: each has an id of its own, formed as a run's.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pydantic.fields import FieldInfo

from streaming_core.data.parts import Parts
from streaming_core.regression.home import Home
from streaming_core.run.way import SPEC_FIELDS, RunSpec
from streaming_core.storage import canonical_json

# Raised when columns are added; none is ever removed or changes its meaning, so that parts of older versions stay
# readable, with nulls in what they lack. 2: cells have stealing, checkpoint, channel and plan. 3: samples have
# energy_joules. 4: cells have verdict and reason. 5: cells have schedule, controller, thresholds and parallelism,
# samples dropped_late, reconfigurations and slowest_reconfiguration_us. 6: cells have yardstick and what disturbed
# them (steal, others, preempted, mhz_before, mhz_after), samples passes and loop_seconds; a verdict may be
# invariant_broken. 7: words of strategies that had been taken from a paper mean that paper's algorithm; what had them
# before has the names below; cells have partitioning, partitions, slice and throughput_window. 8: there are pairs and
# decisions.
SCHEMA_VERSION = 8
# By column of raw cells: a word as rows of versions before 7 have it, and what that is called since. dbt has the same
# (vars in dbt_project.yml). The column `strategy` is made of such words.
RENAMED: dict[str, dict[str, str]] = {
    "channel": {"scalegate": "gate"},
    "scheme": {"tstream": "owners"},
    "heuristic": {"ct": "affinity"},
    "queue": {"hybrid": "lanes"},
}
VIOLATION_CAP = 20

_LATENCY = [
    (f"{kind}_{p}_us", pa.float64())
    for kind in ("processing", "end_to_end")
    for p in ("p50", "p95", "p99", "p999", "max")
]

# Fields of a RunSpec that say how a cell is executed: all but where its outputs go and how often it is measured.
WAY = tuple(name for name in SPEC_FIELDS if name not in ("app", "params", "sink", "repetitions", "seconds"))
_COLUMNS: dict[Any, pa.DataType] = {bool: pa.bool_(), int: pa.int32(), float: pa.float64()}


def _column(field: FieldInfo) -> pa.DataType:
    return _COLUMNS.get(field.annotation, pa.string())  # words as they are, else canonical JSON


CELLS = pa.schema(
    [
        ("schema_version", pa.int32()),
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
        ("yardstick", pa.string()),  # of which loop, on which processor, loop_seconds of its samples are; null: of none
        ("steal", pa.float64()),  # this and those that follow: while it was measured (run/disturbance.py)
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
        ("verdict", pa.string()),  # verdict.judge's, as is the reason; null before version 4
        ("reason", pa.string()),
    ]
)

SAMPLES = pa.schema(
    [
        ("schema_version", pa.int32()),
        ("run_id", pa.string()),
        ("cell", pa.string()),
        ("kind", pa.string()),
        ("repetition", pa.int32()),
        ("events", pa.int64()),
        ("outputs", pa.int64()),
        ("digest", pa.string()),
        ("in_order", pa.bool_()),
        ("seconds", pa.float64()),
        ("passes", pa.int32()),  # of a repetition, which this is the median pass of; null before version 6
        ("loop_seconds", pa.float64()),  # median pass of the compiled loop, in turns with these; null: none
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
        ("reconfigurations", pa.int32()),  # of windowed operators, as many as were gone through
        ("slowest_reconfiguration_us", pa.float64()),  # from its event being dealt to the last replica concerned
        ("rejected", pa.int64()),
    ]
)

VERDICT_ROWS = pa.schema(
    [
        ("schema_version", pa.int32()),
        ("run_id", pa.string()),
        ("cell", pa.string()),
        ("app", pa.string()),
        ("check", pa.string()),  # outputs | state:<table> | order | digest | invariant:<name> | completed
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
        ("schema_version", pa.int32()),
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

PAIRS = pa.schema(
    [
        ("schema_version", pa.int32()),
        ("run_id", pa.string()),  # the run whose cell it is, and whose build the baseline's is held against
        ("cell", pa.string()),
        ("pair", pa.int32()),  # from 0
        ("baseline", pa.string()),  # the accepted build
        ("build", pa.string()),
        ("host", pa.string()),
        ("first", pa.string()),  # baseline | build: which of them was measured first, by lot
        ("passes", pa.int32()),  # of each of them, in a process of its own
        ("baseline_seconds", pa.float64()),  # median over them
        ("build_seconds", pa.float64()),
        ("baseline_digest", pa.string()),  # of outputs and final state
        ("build_digest", pa.string()),
        ("steal", pa.float64()),  # this and `others`: as in cells, the greater of the two
        ("others", pa.float64()),
        ("accepted_environment", pa.string()),  # digest of requirements.lock when the baseline was accepted
        ("environment", pa.string()),  # in which both ran
        ("error", pa.string()),  # why there is no pair; null where there is
        ("measured_at", pa.timestamp("us", tz="UTC")),
    ]
)

DECISIONS = pa.schema(
    [
        ("schema_version", pa.int32()),
        ("run_id", pa.string()),  # its own id
        ("kind", pa.string()),  # baseline: a build is accepted | acknowledgement: a red cell has been seen
        ("build", pa.string()),  # of a baseline
        ("environment", pa.string()),  # of a baseline: digest of requirements.lock
        ("of_run", pa.string()),  # of an acknowledgement, as is `cell`
        ("cell", pa.string()),
        ("decided_by", pa.string()),
        ("why", pa.string()),
        ("decided_at", pa.timestamp("us", tz="UTC")),
    ]
)

RAW = {
    "cells": CELLS,
    "samples": SAMPLES,
    "verdicts": VERDICT_ROWS,
    "violations": VIOLATIONS,
    "pairs": PAIRS,
    "decisions": DECISIONS,
}

# Not raw, and made anew from it: warehouse/judged/cells, what became of cells that were loaded before version 4.
JUDGED = pa.schema([(name, pa.string()) for name in ("run_id", "cell", "verdict", "reason")])


def _as_called_now(row: dict) -> dict:
    """A row of raw cells in today's words."""
    if row["schema_version"] >= 7:
        return row
    words = {old: new for renamed in RENAMED.values() for old, new in renamed.items()}
    strategy = "-".join(words.get(word, word) for word in row["strategy"].split("-"))
    return row | {name: new.get(row[name], row[name]) for name, new in RENAMED.items()} | {"strategy": strategy}


def rows(home: Home, table: str, run_id: str) -> list[dict] | None:
    """One run's rows of a raw table, with None in columns that its version lacked; None when it has no part.

    Raises:
        BadInput: the part cannot be read.
    """
    path = home.part(table, run_id)
    if not path.exists():
        return None
    found = [{name: row.get(name) for name in RAW[table].names} for row in Parts([path]).read().to_pylist()]
    return [_as_called_now(row) for row in found] if table == "cells" else found


def way_columns(spec: RunSpec) -> dict:
    """How a cell is executed, as columns of the raw table `cells`."""
    found = spec.model_dump(mode="json")
    return {name: canonical_json(found[name]) if isinstance(found[name], dict | list) else found[name] for name in WAY}


def spec_of(row: dict) -> RunSpec:
    """The spec of a cell that is known from its raw row alone; what the row does not say has its default."""
    said = {name: row[name] for name in SPEC_FIELDS if row.get(name) is not None}
    # A plan is a word, or a mapping as JSON.
    kept = {name: said[name] for name in ("params", "plan", "schedule", "thresholds") if name in said}
    return RunSpec.parse(said | {name: json.loads(text) for name, text in kept.items() if text[:1] in ("[", "{")})
