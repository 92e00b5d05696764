"""A join within a band, which looks rows up by an index, beside the same join in DuckDB.

The rows are those of ScaleJoin: pairs lie within five minutes of each other, and both columns differ by at most 10 of
10,000. `App.join` puts the rows into buckets of the first column. The query does the same: a left row has one bucket,
a right row has three, and the join compares the rows of a bucket. It also cuts time into buckets of five minutes, so a
right row is there nine times. DuckDB may see all rows at once, and emits in any order.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core.bench.claims import GOAL, Claim
from streaming_core.bench.race.ratios import Row
from streaming_core.bench.race.statistics import interval
from streaming_core.bench.race.subject import prepared
from streaming_core.bench.suite import Experiment, Plot
from streaming_core.data.digest import format_digest
from streaming_core.generator import Draws
from streaming_core.kernels.program import compile_app
from streaming_core.language.application import App
from streaming_core.language.record import Record, boolean, f64, i64
from streaming_core.oracle.loop import Loop
from streaming_core.run import one_pass
from streaming_core.run.blocks import BLOCK
from streaming_core.run.one_pass import PassRequest
from streaming_core.run.way import Pinned

EVENTS = 2_000_000
ROUNDS = 5
RATE, WITHIN, BAND, DOMAIN = 100, 300_000, 10, 10_000  # rows per second, ms, and whole numbers


LEFT = Record("Left", {"ts": i64, "x": i64, "y": f64}, None)
RIGHT = Record("Right", {"ts": i64, "a": i64, "b": f64, "c": f64, "d": boolean}, None)


def lefts(params: dict[str, Any], seed: int, start: int, stop: int) -> dict[str, np.ndarray]:
    """Draw left rows; the streams take turns."""
    draws = Draws(seed, "banded.lefts", start, stop)
    x, y = (1 + draws.below(d, DOMAIN) for d in range(2))
    return {"ts": 2 * np.arange(start, stop) * 1000 // RATE, "x": x, "y": y.astype(float)}


def rights(params: dict[str, Any], seed: int, start: int, stop: int) -> dict[str, np.ndarray]:
    """Draw right rows."""
    draws = Draws(seed, "banded.rights", start, stop)
    a, b = (1 + draws.below(d, DOMAIN) for d in range(2))
    ts = (2 * np.arange(start, stop) + 1) * 1000 // RATE
    return {"ts": ts, "a": a, "b": b.astype(float), "c": draws.u53(2) / float(1 << 53), "d": draws.chance(3, 0.5)}


def application() -> App:
    """The join."""
    app = App("banded")
    left, right = app.sources(LEFT, RIGHT)
    app.join(left, right, within=WITHIN, band={"x": ("a", BAND), "y": ("b", BAND)}).sink()
    app.generates(lefts, rights)
    return app


QUERY = f"""
    SELECT greatest(l.ts, r.ts) AS ts, l.x, l.y, r.a, r.b, r.c, r.d
    FROM (SELECT *, x // {BAND} AS bucket, ts // {WITHIN} AS span FROM events WHERE stream = 0) l
    JOIN (
        SELECT *, unnest([a // {BAND} - 1, a // {BAND}, a // {BAND} + 1]) AS bucket FROM (
            SELECT *, unnest([ts // {WITHIN} - 1, ts // {WITHIN}, ts // {WITHIN} + 1]) AS span
            FROM events WHERE stream = 1
        )
    ) r
    ON l.bucket = r.bucket AND l.span = r.span
    AND abs(l.ts - r.ts) <= {WITHIN} AND abs(l.x - r.a) <= {BAND} AND abs(l.y - r.b) <= {BAND}
"""


def _query(events: pa.Table, threads: int) -> tuple[float, float, int]:
    """Run the query. Returns its seconds, its processor time in seconds, and the number of pairs."""
    import duckdb

    with duckdb.connect(config={"threads": threads}) as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.register("source", events)
        connection.execute("CREATE TABLE events AS SELECT * FROM source")
        began, worked = time.perf_counter(), time.process_time()
        pairs = connection.sql(QUERY).to_arrow_table()
        return time.perf_counter() - began, time.process_time() - worked, pairs.num_rows


def _measure() -> Iterator[Row]:
    app = application()
    bound = app.bind()
    program = compile_app(app, bound)
    with prepared(app, program, EVENTS, BLOCK) as (source, blocks):
        tables = list(source.blocks(BLOCK))
    events = pa.concat_tables(tables)
    specs = [Pinned.model_validate({"app": app.name, "threads": threads}) for threads in (1, 2)]
    seconds: dict[str, list[float]] = {}
    worked: dict[str, list[float]] = {}
    results: dict[str, bool] = {}
    for number in range(ROUNDS + 1):  # the first one warms up
        loop = Loop(app, bound)
        decoded = [loop.decode(table) for table in tables]
        began, before = time.perf_counter(), time.process_time()
        for block in decoded:
            loop.run(*block, keep=False)
        loop.finish(EVENTS)
        spent = {"loop": (time.perf_counter() - began, time.process_time() - before)}
        expected, pairs = format_digest(*loop.digest), loop.digest[0]
        for spec in specs:
            sample, _, _ = one_pass.run(spec, program, blocks, PassRequest(exports_state=False))
            spent[f"gate {spec.threads}"] = EVENTS / sample.events_per_s, EVENTS * (sample.cpu_ns or 0) / 1e9
            results[f"gate {spec.threads}"] = sample.digest == expected and sample.in_order
        for count in (1, 2):
            passed, cpu, rows = _query(events, count)
            spent[f"duckdb {count}"] = passed, cpu
            results[f"duckdb {count}"] = rows == pairs
        if number:
            for name, (passed, cpu) in spent.items():
                seconds.setdefault(name, []).append(passed)
                worked.setdefault(name, []).append(cpu)
    for name, passes in seconds.items():
        way, _, threads = name.partition(" ")
        rates = [EVENTS / one for one in passes]
        ratios = [base / one for base, one in zip(seconds["loop"], passes, strict=True)]
        yield {
            "app": app.name,
            "params": {},
            "way": way,
            "threads": int(threads or 1),
            "result": "yardstick" if way == "loop" else "equal" if results[name] else "different",
            "events": EVENTS,
            "events_per_s": statistics.median(rates),
            "rates": rates,
            "cpu_ns": statistics.median(worked[name]) * 1e9 / EVENTS,
            "to_loop": statistics.median(ratios),
            "to_loop_range": interval(ratios),
        }


BANDED = Claim(
    "A join within a band is at least as fast as DuckDB's join by buckets.",
    GOAL,
    ours={"way": "gate"},
    over={"way": "duckdb"},
    by=("threads",),
    expects=">=",
)
EXPERIMENT = Experiment(
    "q3-band",
    "none: a goal of this project",
    "A join within a band, by an index",
    (BANDED,),
    lambda counts: (
        [],
        [
            f"{EVENTS:,} rows, {RATE} per second, within five minutes; both columns within {BAND} of {DOMAIN:,}.",
            "DuckDB's rows lie in a table of its own before the query begins. It sees all rows at once.",
            "Results of the engine have the digest of the loop's. DuckDB has as many pairs.",
        ],
    ),
    (Plot("threads", "events_per_s", "rows per second", by="", lines=("way",)),),
    model=_measure,
)
