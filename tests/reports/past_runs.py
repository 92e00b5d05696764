"""Past runs as files for the pages to read, written without any run.

Five nights of two applications; in the last one cell differs, one crashed and one never ran.
"""

import json
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.raw import write_raw
from reports import times
from reports.history import History
from streaming_core.regression import warehouse
from streaming_core.regression.home import Home
from streaming_core.regression.provenance import Check, Provenance, record
from streaming_core.regression.request import RegressionSpec
from streaming_core.regression.verdict import of_run
from streaming_core.storage import write_json

KINDS = {"gs": "transaction", "sl": "transaction", "wc": "dataflow"}
EXECUTORS, SCHEMES = ["transactional", "pooled"], ["owners", "serial", "no_lock"]
RUN_IDS = [f"202601{day:02d}T020000Z-0000000{day}" for day in range(1, 6)]
LAST = RUN_IDS[-1]
EVENTS = 100_000
# Scripts that would run, and templates that would be filled in, where a row is not shown as text.
HOSTILE = (
    '<script>document.title = "taken"</script><img src="x" onerror="document.title = `taken`">'
    "{{ 7 * 191 }}{% raw %}${7 * 191}</td></pre>"
)
ESCAPED = HOSTILE.replace('"', '\\"')


def make(home: Home, nights: int = 5, red: bool = True, **request: object) -> None:
    """Write plans, raw tables and marts of `nights` runs; the last is red if `red`. `request`: as of `add`.

    Writing takes half a second, and a hundred tests need the same nights, so an empty home gets a copy.
    """
    if home.root.exists() and any(home.root.iterdir()):
        _make(home, nights, red, request)
    else:
        shutil.copytree(_original(nights, red, json.dumps(request)).name, home.root, dirs_exist_ok=True)


@cache
def _original(nights: int, red: bool, request: str) -> tempfile.TemporaryDirectory:
    folder = tempfile.TemporaryDirectory()
    _make(Home(Path(folder.name)), nights, red, json.loads(request))
    return folder


def _make(home: Home, nights: int, red: bool, request: dict) -> None:
    for number, run_id in enumerate(RUN_IDS[:nights]):
        add(home, run_id, number, red and number == nights - 1, **request)


def add(
    home: Home,
    run_id: str,
    number: int = 0,
    red: bool = False,
    matrix: str = "",
    host: str = "node1",
    kinds: dict[str, str] = KINDS,
    **request: object,
) -> None:
    """Write one more run, of build `number`. `request` are fields of RegressionSpec, which do not count as overrides.

    An application in `data` has 3 events.
    """
    throughput, latency = _night(home, run_id, number, red, request, matrix, host, kinds)
    _append(home, "cells", warehouse.rows(home, "cells", run_id) or [])
    _append(home, "throughput", throughput)
    _append(home, "latency", latency)
    _append(home, "speed", [_speed(row) for row in throughput])


def gate(home: Home, ref: str = "v1.2 <script>") -> None:
    """Add the gate's verdicts on the last night's cells of gs against a commit.

    serial/t2 is slower, owners/t1 has a different result, and the passes of serial/t1 are too short. The others are
    unchanged.
    """
    measured = {"pairs": 32, "baseline_seconds": 0.01, "build_seconds": 0.01, "change": 0.001, "change_low": -0.002}
    measured |= {"verdict": "unchanged", "change_high": 0.004, "smallest": 0.031, "reason": None}
    overrides = {
        ("serial", 2): {"verdict": "slower", "change": -0.042, "change_low": -0.055, "change_high": -0.031},
        ("serial", 1): dict.fromkeys(measured) | {"verdict": "too_short", "pairs": 1},
        ("owners", 1): dict.fromkeys(measured) | {"verdict": "different", "pairs": 1, "reason": "different results"},
    }
    rows = [
        {"run_id": LAST, "cell": cell["cell"], "build": cell["build"]}
        | {"baseline": "abc323def0123456789", "baseline_ref": ref}
        | {"environment_changed": cell["threads"] == 2}
        | measured
        | overrides.get((cell["strategy"], cell["threads"]), {})
        for cell in warehouse.rows(home, "cells", LAST) or []
        if cell["app"] == "gs" and not cell["is_bound"]
    ]
    mart(home, "gate", rows)


def _speed(row: dict) -> dict:
    """The row of a cell in the mart `speed`.

    gs/serial/t2 is slower from the fourth night on, as the fifth night shows. sl/serial/t1 was disturbed.
    """
    verdict: dict = {"verdict": "unchanged", "nights": 40, "smallest": 0.039}
    since = {"since_run": RUN_IDS[3], "since_at": times.of_run(RUN_IDS[3]), "since_build": "abc323def0123456789"}
    since |= {"found_run": LAST, "change": -0.051, "change_low": -0.064, "change_high": -0.038}
    unchanged = dict.fromkeys(["nights", "smallest", *since])
    if (row["app"], row["strategy"], row["threads"]) == ("gs", "serial", 2) and row["run_id"] == LAST:
        verdict |= {"verdict": "slower", "nights": 2, **since}
    if (row["app"], row["strategy"], row["threads"]) == ("sl", "serial", 1):
        verdict = {"verdict": "too_noisy"}
    same = ("run_id", "cell", "app", "executor", "strategy", "order", "threads", "host", "build", "series")
    fit = {"to_loop": _ratio(row["run_id"], row["cell"]), "spread": 0.07, "steal": 0.25, "others": 0.05}
    return unchanged | {name: row[name] for name in same} | fit | verdict


def _ratio(run_id: str, cell: str) -> float:
    """The speed of a cell relative to the compiled loop."""
    return 0.8 if run_id == LAST else random.Random(run_id + cell).uniform(0.79, 0.85)


def _night(
    home: Home, run_id: str, number: int, red: bool, request: dict, matrix: str, host: str, kinds: dict[str, str]
) -> tuple[list[dict], list[dict]]:
    usual = {"applications": list(kinds), "executors": EXECUTORS, "schemes": SCHEMES, "events": EVENTS}
    regression = RegressionSpec(**usual | request)
    specs = regression.cells(kinds)
    workloads = {app: _workload(app, regression) for app in kinds}
    plan = {"run_id": run_id, "origin": f"manual__{run_id}", "created_at": run_id}
    plan |= {"regression": regression.model_dump(mode="json"), "workloads": list(workloads.values())}
    plan["matrix"] = {"name": matrix, "digest": "3f2a91c0" * 8, "overrides": []} if matrix else None
    plan["cells"] = [
        {"cell": spec.cell, "spec": spec.model_dump(mode="json"), "is_bound": spec.is_bound}
        | {"workload": workloads[spec.app]["address"]}
        for spec in specs
    ]
    write_json(home.run(run_id) / "plan.json", plan)
    checked = [Check("the generator makes the same events twice", "passed", "before this run")]
    taken = [
        Provenance(w["app"], w["address"], "import" if "data" in w else "reused", w["events"], w["seed"], checked)
        for w in workloads.values()
    ]
    record(home, run_id, taken)
    cells, samples, verdicts, violations, throughput, latency = [], [], [], [], [], []
    draw = random.Random(number)
    for spec in specs:
        workload = workloads[spec.app]
        events = workload["events"]
        base = {"gs": 2.1e6, "sl": 0.9e6, "wc": 5.4e6}.get(spec.app, 1.6e6)
        base *= {"serial": 1.4, "no_lock": 1.8, "shared_ring": 2.0}.get(spec.strategy, 1)
        speed = base * spec.threads**0.7 * draw.uniform(0.97, 1.03)
        state = "equal"
        if red and spec.threads == 2 and spec.strategy == "owners":
            state = {"sl": "different", "gs": "failed"}.get(spec.app, "equal")
        if red and spec.threads == 2 and spec.app == "wc":
            state = "not_run"
        build = f"abc{number}23def0123456789"
        status = {"failed": "failed", "not_run": "not_run"}.get(state, "ok")
        key = {"cell": spec.cell, "app": spec.app}
        cell = key | {name: getattr(spec, name) for name in ("executor", "strategy", "order", "threads")}
        cell |= {name: spec.option(name) for name in ("scheme", "pool", "heuristic", "queue", "reorder", "channel")}
        cell |= {"params": "{}", "plan": "{}", "punctuation": spec.punctuation, "batch": spec.batch}
        cell |= {"rate": 0.0, "pin": False, "idle": "yield", "spec_digest": spec.spec_digest, "is_bound": spec.is_bound}
        cell |= {"events": events, "seed": workload["seed"], "workload_address": workload["address"]}
        cell |= {"oracle_address": f"{spec.app}-oracle", "attempt": 1 if status != "not_run" else 0, "status": status}
        cell["error"] = "operator debit, event 17: division by zero" if status == "failed" else None
        cell |= {"host": host if status != "not_run" else None, "build": build if status == "ok" else None}
        cell |= {"load_before": 0.12, "load_after": 1.7, "yardstick": "abcdef", "steal": 0.031, "others": 0.12}
        cell |= {"preempted": 41.0, "mhz_before": 2600.0, "mhz_after": 2400.0, "compile_seconds": 1.1}
        cell |= {"code_digest": "0123456789abcdef", "output_digest": "100000:0123456789abcdef"}
        cells.append(cell | {"peak_memory_bytes": 210 * 2**20})
        if status == "failed":
            write_json(home.attempt(run_id, spec.cell, 1) / "exit.json", {"exit_code": 1, "host": host})
            (home.run(run_id) / spec.cell / "attempt-1.stderr.log").write_text(f"error: {HOSTILE}\n")
        if status != "ok":
            counts = {"expected_rows": 1, "actual_rows": 0}
            verdicts.append(key | {"check": "completed", "verdict": status, "detail": cell["error"]} | counts)
            continue
        for check in ("completed", "outputs", "order", "state:accounts", "digest", "invariant:money_is_kept"):
            wrong = state == "different" and check == "outputs"
            verdict = "different" if wrong else "not_comparable" if spec.is_bound else "equal"
            counts = {"expected_rows": events, "actual_rows": events - wrong, "missing": int(wrong)}
            counts |= {"extra": 0, "different": 2 * wrong, "out_of_order": 0, "detail": None}
            verdicts.append(key | {"check": check, "verdict": verdict} | counts)
            if wrong:
                expected = '{"accepted":true,"source":812,"note":"ok"}'
                event = '{"amount":250,"source":812,"target":17}'
                about = key | {"check": check, "sub": 0, "expected": expected, "event": event}
                for rank, actual in enumerate(
                    (expected.replace("true", "false"), expected.replace("ok", ESCAPED), None), 1
                ):
                    kind = "different" if actual else "missing"
                    violations.append(about | {"rank": rank, "kind": kind, "seq": 16 + rank, "actual": actual})
        micros = {"p50": 40.0, "p95": 90.0, "p99": 180.0 / spec.threads, "p999": 700.0, "max": 2100.0}
        for repetition in range(4):
            kind = "peak" if repetition else "verified"
            sample = {"cell": spec.cell, "kind": kind, "repetition": repetition, "events": events, "outputs": events}
            sample |= {"digest": "100000:0123456789abcdef", "in_order": spec.order == "total", "rejected": 12}
            sample |= {"seconds": events / speed, "events_per_s": speed * (1 + 0.01 * repetition)}
            passes = _ratio(run_id, spec.cell) * (1 + 0.005 * (repetition - 2))  # the median is the second one
            sample |= {"loop_seconds": passes * events / speed if repetition else None}
            sample |= {"cpu_seconds": events * 73e-9, "energy_joules": events * 2.31e-6}
            samples.append(sample | {f"processing_{name}_us": value for name, value in micros.items()})
        if state == "equal" and not spec.is_bound:
            same = {
                name: cell[name] for name in ("executor", "strategy", "order", "threads", "events", "host", "build")
            }
            same |= {"run_id": run_id, "run_at": times.of_run(run_id)} | key
            rates = {f"{n}_events_per_s": speed * by for n, by in (("median", 1.02), ("min", 1.01), ("max", 1.03))}
            series = {"series": f"{spec.spec_digest}/{workload['address']}/{host}", "samples": 3}
            throughput.append(same | series | rates | {"cpu_ns": 73.0, "speedup": float(spec.threads**0.7)})
            latency.append(same | {"kind": "processing", "samples": 3} | {f"{n}_us": v for n, v in micros.items()})
    for table, rows in (("cells", cells), ("samples", samples), ("verdicts", verdicts), ("violations", violations)):
        write_raw(home, table, run_id, rows)
    load(home, run_id)
    return throughput, latency


def _workload(app: str, regression: RegressionSpec) -> dict:
    if name := regression.data.get(app):
        return {"app": app, "params": {}, "events": 3, "seed": None, "address": f"{app}-{name}", "data": name}
    address = f"{app}-{regression.events}"
    return {"app": app, "params": {}, "events": regression.events, "seed": 1, "address": address}


def load(home: Home, run_id: str) -> None:
    """Gives the run's cells the verdicts that its checks come to, as load_metrics does."""
    cells, checks, samples = (warehouse.rows(home, table, run_id) for table in ("cells", "verdicts", "samples"))
    cells = [row | {"verdict": None} for row in cells]
    verdicts = of_run(None, cells, checks, samples)
    write_raw(home, "cells", run_id, [row | verdicts[row["cell"]]._asdict() for row in cells])


def _append(home: Home, name: str, rows: list[dict]) -> None:
    mart(home, name, History(home).mart(name) + rows)


def mart(home: Home, name: str, rows: list[dict]) -> None:
    """Write a mart in place of an earlier one."""
    folder = home.root / "warehouse" / "marts" / name
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.parquet"):
        path.unlink()
    pq.write_table(pa.Table.from_pylist(rows), folder / "part-00000.parquet")
