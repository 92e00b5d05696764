"""Judges the speed of every cell of every run, before dbt builds the marts that show it.

In:  warehouse/raw/cells, samples and pairs, less the runs in quarantine.
Out: warehouse/speed/trends (one row per run and equal cell that has a speed) and warehouse/speed/gates (one row per run
     and cell of the speed gate). The marts `speed` and `gate` describe the columns.

A verdict depends on all nights before it, so the job writes both tables anew. A thousand nights of a hundred cells take
some seconds. The rules are in `trend.py` and `gate.py`.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from itertools import groupby
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.gate import Gate, gate
from jobs.trend import Bridge, Night, Size, Verdict, trend
from streaming_core.data.parts import Parts
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import RAW, parts
from streaming_core.storage import replacing

TABLES = ("gates", "trends")
# Limits beyond which the trend leaves a run out (docs/explanation/speed-verdicts.md).
SHORTEST_PASS = 0.001  # seconds; below, the engine measures no loop (streaming_core/run/yardstick.py)
SHORTEST_MEASURING = 0.5  # seconds of all repetitions, the cell's and the loop's together
MOST_DISTURBANCE = 0.2  # share of the cores' time that others had, stolen or not
MOST_SPREAD = 0.25  # from the slowest to the fastest repetition

_TYPES = {"str": pa.string(), "int": pa.int32(), "float": pa.float64(), "datetime": pa.timestamp("us", tz="UTC")}
_KEY = [("run_id", pa.string()), ("cell", pa.string())]
_SIZES = ("change", "change_low", "change_high", "smallest")
TRENDS = pa.schema(
    [
        *_KEY,
        ("series", pa.string()),
        ("to_loop", pa.float64()),
        ("repetitions", pa.int64()),
        ("pass_seconds", pa.float64()),
        ("measured_seconds", pa.float64()),
        ("spread", pa.float64()),
        *((field.name, _TYPES[str(field.type).split(" ")[0]]) for field in fields(Verdict)),
    ]
)
GATES = pa.schema(
    [
        *_KEY,
        *((name, pa.string()) for name in ("host", "baseline", "baseline_ref", "build")),
        ("pairs", pa.int64()),
        *((name, pa.float64()) for name in ("baseline_seconds", "build_seconds", "steal", "others")),
        ("environment_changed", pa.bool_()),
        *((name, pa.string()) for name in ("verdict", "reason")),
        *((name, pa.float64()) for name in _SIZES),
    ]
)
_CELLS = [
    *("run_id", "cell", "verdict", "spec_digest", "params", "events", "seed", "workload_address", "host", "yardstick"),
    *("build", "threads", "steal", "others"),
]
_SAMPLES = ["run_id", "cell", "kind", "seconds", "passes", "loop_seconds"]


def work(home: Home, quarantine: Collection[str]) -> None:
    """Write both tables.

    Args:
        home: LOCKSTEP_HOME.
        quarantine: Runs to leave out.
    """
    gates = list(gate_rows(_read(home, "pairs", None, quarantine)))
    cells, samples = _read(home, "cells", _CELLS, quarantine), _read(home, "samples", _SAMPLES, quarantine)
    trends = list(trend_rows(cells.to_pandas(), samples.to_pandas(), gates))
    for table, rows, schema in (("gates", gates, GATES), ("trends", trends, TRENDS)):
        folder = home.root / "warehouse" / "speed" / table
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "part-0.parquet") as file:
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)


def gate_rows(pairs: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows of the table `gates`, from those of the raw table `pairs`, in the order of runs and cells."""

    def key(row: dict) -> tuple[str, str]:
        return row["run_id"], row["cell"]

    for (run_id, cell), group in groupby(sorted(pairs.to_pylist(), key=key), key):
        rows = list(group)
        seconds = [(row["baseline_seconds"], row["build_seconds"]) for row in rows]
        both = [(baseline, build) for baseline, build in seconds if baseline and build]
        first = {name: _least(rows, name) for name in ("baseline", "baseline_ref", "build", "host")}
        medians = [_median([pair[side] for pair in seconds if pair[side] is not None]) for side in (0, 1)]
        error = max((row["error"] for row in rows if row["error"] is not None), default=None)
        differs = any(_differ(row, "baseline_digest", "build_digest") for row in rows)
        verdict = gate([math.log(baseline / build) for baseline, build in both])
        yield {
            "run_id": run_id,
            "cell": cell,
            **first,
            "pairs": sum(row["pair"] >= 0 for row in rows),
            "baseline_seconds": medians[0],
            "build_seconds": medians[1],
            **{
                name: max((row[name] for row in rows if row[name] is not None), default=None)
                for name in ("steal", "others")
            },
            "environment_changed": any(_differ(row, "baseline_environment", "environment") for row in rows),
            "verdict": _verdict(rows, error, differs, medians, verdict),
            "reason": error or ("the two builds have different results" if differs else None),
            **{name: getattr(verdict, name, None) for name in _SIZES},
        }


def _verdict(
    rows: list[dict], error: str | None, differs: bool, medians: list[float | None], verdict: Gate | None
) -> str | None:
    if min(row["pair"] for row in rows) < 0:
        return "not_judged"
    if error is not None:
        return "failed"
    if differs:
        return "different"
    if min((number for number in medians if number is not None), default=math.inf) < SHORTEST_PASS:
        return "too_short"
    return verdict.verdict if verdict else None


def trend_rows(cells: pd.DataFrame, samples: pd.DataFrame, gates: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of the table `trends`, from those of the raw tables `cells` and `samples`, and of `gates`."""
    speeds = _speeds(cells, samples)
    of_gate = {(row["run_id"], row["cell"]): row for row in gates}
    bridges: dict[tuple[str, str], Bridge] = {}
    nights: dict[str, list[Night]] = defaultdict(list)
    columns = ("run_id", "cell", "series", "epoch", "build", "to_loop", "unfit")
    for run_id, cell, series, epoch, build, to_loop, unfit in zip(*(speeds[name] for name in columns), strict=True):
        # A night knows what the gate said last of its epoch: the run that the gate measured may itself be unfit.
        if row := of_gate.get((run_id, cell)):
            size = None if row["change"] is None else Size(row["change"], row["change_low"], row["change_high"])
            bridges[series, epoch] = Bridge(run_id, row["baseline"], row["verdict"], size, row["smallest"])
        if not unfit:
            run_at = datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            known_build = None if pd.isna(build) else build
            bridge = bridges.get((series, epoch))
            nights[series].append(Night(run_id, run_at, known_build, math.log(to_loop), epoch, bridge))
    verdicts = {
        (series, night.run_id): verdict
        for series, history in nights.items()
        for night, verdict in zip(history, trend(history), strict=True)
    }
    known = [name for name in TRENDS.names if name in speeds.columns]
    for row in speeds.to_dict("records"):
        verdict = verdicts.get((row["series"], row["run_id"]))
        values = {name: None if pd.isna(row[name]) else row[name] for name in known}
        yield values | ({"verdict": row["unfit"]} if row["unfit"] else vars(verdict))


def _speeds(cells: pd.DataFrame, samples: pd.DataFrame) -> pd.DataFrame:
    """The speed of each equal cell relative to the compiled loop, which took turns with it, in the order of the runs.

    Seconds by themselves say nothing over the nights: these machines' speed swings by factors. A repetition's ratio is
    that of the two medians of its passes, a cell's the median over its repetitions.
    """
    peaks = samples[samples["kind"] == "peak"]
    ratio = peaks["loop_seconds"] / peaks["seconds"]
    grouped = peaks.assign(
        ratio=ratio, measured_seconds=peaks["passes"] * (peaks["seconds"] + peaks["loop_seconds"])
    ).groupby(["run_id", "cell"], sort=False)
    speeds = pd.DataFrame(
        {
            "repetitions": grouped.size(),
            "pass_seconds": grouped["seconds"].median(),
            "measured_seconds": grouped["measured_seconds"].sum(min_count=1),
            "to_loop": grouped["ratio"].median(),
            "spread": grouped["ratio"].max() / grouped["ratio"].min() - 1,
        }
    ).reset_index()
    # Only cells that are right have a speed. Without a loop there is nothing to compare with, and where a pass takes a
    # millisecond and more the request wanted none.
    speeds = cells[cells["verdict"] == "equal"].drop(columns="verdict").merge(speeds, on=["run_id", "cell"])
    speeds = speeds[speeds["to_loop"].notna() | (speeds["pass_seconds"] < SHORTEST_PASS)].sort_values(
        ["run_id", "cell"]
    )
    # One way of executing one request on one host: a series. It goes on when the source of the application changes.
    request = speeds["params"].map(lambda text: None if pd.isna(text) else hashlib.sha256(text.encode()).hexdigest())
    seed = speeds["seed"].astype("Int64").astype("string").fillna(speeds["workload_address"])
    series = _joined([speeds["spec_digest"], request, speeds["events"].astype("Int64"), seed, speeds["host"]])
    # Ratios of a series are comparable if they have this in common. The source is part of the workload's address, and
    # the loop of the yardstick.
    epoch = _joined([speeds["workload_address"], speeds["yardstick"]])
    # Where others have the cores, a repetition also ends too early: that is not for want of events. The loop has one
    # thread. What slows it down slows a cell on one thread as much, so their ratio stays.
    disturbed = (speeds["threads"] > 1) & (speeds["steal"] + speeds["others"] > MOST_DISTURBANCE)
    reasons = [
        (speeds["to_loop"].isna(), "too_short"),
        (disturbed, "too_noisy"),
        (speeds["measured_seconds"] < SHORTEST_MEASURING, "too_short"),
        (speeds["spread"] > MOST_SPREAD, "too_noisy"),
    ]
    unfit = np.select([reason.to_numpy(bool) for reason, _ in reasons], [name for _, name in reasons], "")
    return speeds.assign(series=series, epoch=epoch, unfit=unfit)


def _joined(columns: list[pd.Series]) -> list[str]:
    return ["/".join(str(value) for value in row if not pd.isna(value)) for row in zip(*columns, strict=True)]


def _read(home: Home, table: str, columns: list[str] | None, quarantine: Collection[str]) -> pa.Table:
    files = [Parts([path]).read(columns) for path in parts(home, table)]
    whole = pa.concat_tables([RAW[table].empty_table().select(columns or RAW[table].names), *files])
    return whole.filter(~np.isin(whole.column("run_id").to_numpy(), list(quarantine)))


def _differ(row: dict, left: str, right: str) -> bool:
    return row[left] is not None and row[right] is not None and row[left] != row[right]


def _least(rows: list[dict], name: str) -> str | None:
    return min((row[name] for row in rows if row[name] is not None), default=None)


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
