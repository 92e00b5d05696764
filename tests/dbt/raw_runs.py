"""Three synthetic runs in the raw tables, with every verdict, in the format of the jobs and of the gate.

Figures are plain functions of run, threads and repetition. So a test can state the content of a mart without computing
it as the mart does.
"""

import json

from jobs.raw import write_raw
from streaming_core.regression.home import Home
from streaming_core.regression.verdict import of_run
from streaming_core.regression.warehouse import RAW, way_columns
from streaming_core.run.way import RunSpec

GREEN = "20250301T020000Z-00000001"
RED = "20250302T020000Z-00000002"
FASTER = "20250303T020000Z-00000003"
RUNS = (GREEN, RED, FASTER)
QUARANTINED = "20250304T020000Z-00000004"  # as GREEN, but one pass took no time
WITH_ENERGY = (RED, FASTER)  # the host of the other run had no energy counters
WITH_LOOP = (FASTER,)  # the runs that measured the compiled loop beside their passes
GATED = (FASTER,)  # the runs that were measured beside another build

# (app, executor, scheme), each at one and two threads.
WAYS = (("sl", "transactional", "owners"), ("sl", "transactional", "no_lock"), ("wc", "pooled", None))

# Repetitions as factors of a cell's base speed; their median is 1.
PEAKS = (1.0, 0.9, 1.2)


def base_speed(run_id: str, threads: int) -> float:
    """Events per second at the median repetition of every cell."""
    return 1e6 * threads**0.5 * (1.1 if run_id == FASTER else 1.0)


def slowdown(run_id: str, spec: RunSpec) -> float:
    """How many times as long as the baseline's a pass of the build takes, in a gated run."""
    return 1.1 if spec.threads == 2 else 1.0


def specs() -> list[RunSpec]:
    """The planned cells: two ways and a bound, at one and two threads, sl with an open-loop pass."""
    ways = [dict(zip(("app", "executor", "scheme"), way, strict=True)) for way in WAYS]
    ways = [way | {"threads": threads} for way in ways for threads in (1, 2)]
    more = {"repetitions": 3, "sink": "parquet"}
    return [RunSpec.parse(way | more | {"rate": 1000.0 if way["app"] == "sl" else 0.0}) for way in ways]


def plan_of(run_id: str) -> dict:
    """The plan of a run, as far as the gate reads it."""
    cells = [(spec, spec.model_dump(mode="json")) for spec in specs()]
    rows = [{"cell": cell.cell, "spec": spec, "workload": "w", "is_bound": cell.is_bound} for cell, spec in cells]
    return {"run_id": run_id, "workloads": [], "cells": rows}


def expected_verdict(run_id: str, spec: RunSpec) -> str:
    """The expected row of a cell in the marts."""
    if run_id == RED and not spec.is_bound:
        return {("sl", 1): "different", ("sl", 2): "failed", ("wc", 1): "equal", ("wc", 2): "not_run"}[
            spec.app, spec.threads
        ]
    return "not_comparable" if spec.is_bound else "equal"


def write_runs(home: Home, runs: tuple[str, ...] = RUNS) -> None:
    """Write every raw table of every run."""
    for run_id in runs:
        tables: dict[str, list] = {name: [] for name in RAW if name != "decisions"}
        tables["hosts"].append({"host": "local", "machine": "node", "cores": 2})
        for spec in specs():
            _add_cell(tables, run_id, spec)
        tables["expectations"] = _expectations(run_id, len(tables["cells"]))
        verdicts = of_run(None, tables["cells"], tables["verdicts"], tables["samples"])
        tables["cells"] = [row | verdicts[row["cell"]]._asdict() for row in tables["cells"]]
        if run_id == QUARANTINED:
            tables["samples"][0] |= {"seconds": 0.0}
        for name, rows in tables.items():
            write_raw(home, name, run_id, rows)


def _add_cell(tables: dict[str, list], run_id: str, spec: RunSpec) -> None:
    verdict = expected_verdict(run_id, spec)
    key = {"run_id": run_id, "cell": spec.cell}
    cell = key | way_columns(spec) | {"app": spec.app, "params": "{}", "strategy": spec.strategy, "events": 1000}
    cell |= {"seed": 1, "spec_digest": spec.spec_digest, "workload_address": f"w-{spec.app}"}
    cell |= {"oracle_address": f"o-{spec.app}", "is_bound": spec.is_bound, "attempt": 1}
    cell["status"] = verdict if verdict in ("failed", "not_run") else "ok"
    tables["cells"].append(cell)
    check = key | {"app": spec.app}
    if verdict == "not_run":
        tables["verdicts"].append(check | {"check": "completed", "verdict": "not_run", "detail": "it never started"})
        return
    cell |= {"host": "node1", "build": f"build-{run_id[6:8]}", "load_before": 0.1, "load_after": 1.5}
    if verdict == "failed":
        cell["error"] = "operator debit: event 17: division by zero"
        tables["verdicts"].append(check | {"check": "completed", "verdict": "failed", "detail": cell["error"]})
        return
    cell |= {"yardstick": "loop" if run_id in WITH_LOOP else None, "steal": 0.0, "others": 0.02, "preempted": 3.0}
    cell |= {"compile_seconds": 1.0, "peak_memory_bytes": 10**8, "output_digest": "1000:aa", "state_digest": "10:bb"}

    if verdict == "equal" and run_id in GATED:
        tables["pairs"] += [_pair(key, spec, number) for number in range(32)]

    passes = [("verified", 0, 0.5)] + [("peak", i, factor) for i, factor in enumerate(PEAKS)]
    if spec.rate:
        passes.append(("open_loop", 0, 0.001))
    for kind, repetition, factor in passes:
        speed = base_speed(run_id, spec.threads) * factor
        sample = key | {"kind": kind, "repetition": repetition, "events": 1000, "outputs": 1000, "digest": "1000:aa"}
        sample |= {"in_order": True, "seconds": 1000 / speed, "events_per_s": speed, "rejected": 3}
        sample |= dict.fromkeys(("dropped_invalid", "dropped_late", "reconfigurations"), 0)
        sample["cpu_seconds"] = spec.threads * 1000 / speed
        sample["energy_joules"] = 40 * 1000 / speed if run_id in WITH_ENERGY else None  # 40 watts
        # The loop takes half as long, and as many turns as make two seconds.
        loop = 500 / speed if kind == "peak" and run_id in WITH_LOOP else None
        sample |= {"passes": 1000, "loop_seconds": loop}
        for part in ("useful", "sync", "lock", "remote", "other"):
            sample[f"{part}_s"] = 0.2 * spec.threads * 1000 / speed
        for i, percentile in enumerate(("p50", "p95", "p99", "p999", "max")):
            sample[f"processing_{percentile}_us"] = (10.0 + repetition) * (i + 1)
            if kind == "open_loop":
                sample[f"end_to_end_{percentile}_us"] = 200.0 * (i + 1)
        tables["samples"].append(sample)

    differs = verdict == "different" or (spec.is_bound and spec.threads == 2)
    for name in ("outputs", "state:accounts", "digest"):
        wrong = differs and name == "outputs"
        row = {"check": name, "verdict": "not_comparable" if spec.is_bound else "different" if wrong else "equal"}
        row |= {"expected_rows": 1000, "actual_rows": 1000, "missing": 0, "extra": 0, "different": 2 if wrong else 0}
        row |= {"out_of_order": 0, "detail": "2 rows differ, first at seq 5" if wrong else None}
        tables["verdicts"].append(check | row)
        for rank, seq in enumerate((5, 9)) if wrong else ():
            violation = {"check": name, "rank": rank, "kind": "different", "seq": seq, "sub": 0}
            violation |= {"expected": json.dumps({"balance": 10}), "actual": json.dumps({"balance": 11})}
            tables["violations"].append(check | violation | {"event": json.dumps({"seq": seq})})


def _expectations(run_id: str, cells: int) -> list[dict]:
    """The number of cells, and a critical rule that the cells of the red run break."""
    red = run_id == RED
    same = {"data_set": "cells", "severity": "critical", "success": True}
    count = {"number": 0, "expectation": "expect_table_row_count_to_be_between", "rule": "The run has cells"}
    count |= {"observed": f"{cells}", "observed_value": float(cells), "low": 1.0}
    ended = {"number": 1, "expectation": "unexpected_rows_expectation", "rule": "Every cell ran to its end"}
    ended |= {
        "success": not red,
        "observed": f"{2 * red}",
        "observed_value": 2.0 * red,
        "unexpected_share": 2 * red / cells,
    }
    return [same | count, same | ended]


def _pair(key: dict, spec: RunSpec, number: int) -> dict:
    # Noise of less than a percent, as often to this side as to that.
    noise = 1 + (1 if number % 2 else -1) * number / 4000
    row = key | {"pair": number, "baseline": "build-01", "baseline_ref": "v1", "build": f"build-{key['run_id'][6:8]}"}
    row |= {"host": "node1", "first": ("baseline", "build")[number // 2 % 2], "passes": 50, "baseline_seconds": 0.01}
    row |= {"build_seconds": 0.01 * slowdown(key["run_id"], spec) * noise}
    row |= dict.fromkeys(("baseline_digest", "build_digest"), "1000:aa 10:bb")
    return row | {"steal": 0.0, "others": 0.02, "baseline_environment": "locked", "environment": "locked"}
