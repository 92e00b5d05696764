"""How the engine scales: every kind of application on one thread and on more, beside loops and a model.

The suite has no paper. The compiled loop is the yardstick of every benchmark (`oracle/loop`). A hand-written loop is
what a systems programmer would write for one application and one thread (`handwritten.py`). It takes part where cargo
can build it. From the costs on one and two threads, `model.py` expects the throughput on more.

The two experiments take nine minutes at most, so that a large machine is needed for a quarter of an hour only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streaming_core.bench.claims import ANY, GOAL, Claim
from streaming_core.bench.papers.goals.model import Model
from streaming_core.bench.race import handwritten
from streaming_core.bench.race.ratios import Row, best, compare, equal_rows, threads_of, three_digits
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.errors import BadInput
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec

Ways = tuple[dict[str, Any], ...]

# The best ways of each kind of application, and of each application the events, in millions.
TRANSACTIONAL: Ways = ({"executor": "transactional"}, {"executor": "transactional", "scheme": "owners"})
POOLED: Ways = ({"executor": "pooled"},)
PINNED: Ways = ({"executor": "pinned"},)
WAYS: dict[str, tuple[Ways, float]] = {
    "gs": (TRANSACTIONAL, 2),
    "ob": (TRANSACTIONAL, 1.5),
    "sl": (TRANSACTIONAL, 2),
    "tp": (TRANSACTIONAL, 1),
    "fx": (TRANSACTIONAL, 1),
    "wc": (POOLED, 0.2),
    "fd": (POOLED, 1.5),
    "sd": (POOLED, 1.5),
    "lr": (POOLED, 0.3),
    "wordcount": (PINNED, 0.1),
    "scalejoin": (PINNED, 0.2),
    "hedge": (PINNED, 0.05),
}
# Algorithms as published. Those of the pool and of the channel take one tuple at a time.
TSTREAM: Ways = ({"executor": "transactional", "scheme": "tstream"},)
ORDERED: Ways = ({"executor": "pooled", "heuristic": "ct", "queue": "hybrid", "batch": 1},)
VIPER: Ways = ({"executor": "pinned", "channel": "scalegate", "batch": 1},)
STRETCH: Ways = ({"executor": "pinned", "parallelism": "vsn_esg"},)
PUBLISHED: dict[str, tuple[Ways, float]] = {
    "gs": (TSTREAM, 0.5),
    "sl": (TSTREAM, 0.5),
    "wc": (ORDERED, 0.02),
    "fd": (ORDERED, 0.1),
    "sd": (VIPER, 0.1),
    "wordcount": (STRETCH, 0.05),
    "scalejoin": (STRETCH, 0.2),
}
MILLION = 1_000_000
# Seconds of the experiments.
BEST_SECONDS, PUBLISHED_SECONDS = 390.0, 105.0

# Goals by threads: the throughput, relative to the compiled loop.
TIMES_LOOP = {
    2: {
        "gs": 1.3, "ob": 1.2, "sl": 1.0, "tp": 1.5, "fx": 1.1, "wc": 1.6, "fd": 3.5, "sd": 1.8, "lr": 1.5,
        "wordcount": 1.5, "scalejoin": 1.7, "hedge": 1.4,
    },
    16: {
        "gs": 5.0, "ob": 5.0, "sl": 3.0, "tp": 9.0, "fx": 4.0, "wc": 8.0, "fd": 9.0, "sd": 9.0, "lr": 7.0,
        "wordcount": 6.0, "scalejoin": 6.0, "hedge": 5.0,
    },
}  # fmt: skip
# Of how many times the hand-written loop's time one thread may take.
ONE_THREAD = {"gs": 1.2, "sl": 1.3, "ob": 1.3, "wc": 1.3, "fd": 1.3, "sd": 1.2, "scalejoin": 2.0, "wordcount": 1.2}
KEPT = 0.97  # of the throughput of fewer threads
NEAR = 0.25  # the error of the model
EXPECTED = (4, 8, 16)  # threads whose throughput the model expects, measured or not


def _best(counts: list[int]) -> tuple[list[Heat], list[str]]:
    try:
        handwritten.cargo()
    except BadInput as error:
        return _heats(WAYS, counts), [f"left out: {error}"]
    return _heats(WAYS, counts, handwritten.APPS), [
        "All loops read the same rows in memory and digest their outputs. The hand-written loops have the default "
        "parameters built in."
    ]


def _heats(ways: dict[str, tuple[Ways, float]], counts: list[int], loops: tuple[str, ...] = ()) -> list[Heat]:
    heats = []
    for app, (hows, millions) in ways.items():
        specs = [RunSpec.parse({"app": app, "threads": count} | how) for how in hows for count in counts]
        distinct = {spec.spec_digest: spec for spec in specs}  # a default can be one of the others
        heats.append(Heat(app, {}, [*distinct.values()], millions, handwritten=(1,) * (app in loops)))
    return heats


def _by_way(rows: list[Row]) -> Iterator[tuple[Row, dict[int, Row]]]:
    """Yield the loop's row, and the right rows of each way of its application by their threads."""
    loops = {row["app"]: row for row in rows if row["way"] == "loop"}
    ways: dict[tuple[str, str], dict[int, Row]] = {}
    for row in equal_rows(rows):
        if "executor" in row:
            ways.setdefault((row["app"], row["way"]), {})[row["threads"]] = row
    yield from ((loops[app], by_threads) for (app, _), by_threads in ways.items())


def _compare(rows: list[Row]) -> None:
    """Add the columns that compare the rows of a way: `to_one_thread`, and `kept` to the row of the most threads."""
    for _, by_threads in _by_way(rows):
        ratios = []
        for threads, row in by_threads.items():
            row.setdefault("worked", threads)
            if one := by_threads.get(1):
                row |= _ratio("to_one_thread", row, one)
            if fewer := best(other for count, other in by_threads.items() if count < threads):
                ratios.append(_ratio("kept", row, fewer))
        if ratios:
            by_threads[max(by_threads)] |= min(ratios, key=lambda columns: columns["kept"])


def _ratio(name: str, row: Row, other: Row) -> Row:
    ratio = compare(row, other, over_threads=True)
    return {name: ratio.median, f"{name}_range": [ratio.low, ratio.high]}


def _expect(rows: list[Row]) -> Iterator[str]:
    """Add the model's columns, and rows for threads that were not measured. Yield costs and expectations."""
    for loop, by_threads in [*_by_way(rows)]:
        last = by_threads[max(by_threads)]
        yield f"{last['app']}: {last['way']} on {threads_of(last)} spends, in nanoseconds per event: {_steps(last)}"
        one, two = by_threads.get(1), by_threads.get(2)
        if one is None or two is None or two["worked"] < 2:
            continue
        model = Model.of(one, two)
        texts = []
        for threads in sorted({*by_threads, *EXPECTED} - {1}):
            row = by_threads.get(threads) or _unmeasured(last, threads)
            if threads not in by_threads:
                rows.append(row)
            expected = max(1e9 / model.nanoseconds(threads, row.get("round_trip_ns")), one["events_per_s"])
            row["model"] = expected / loop["events_per_s"]
            text = f"{three_digits(row['model'])} on {threads}"
            if threads > 2 and row["events_per_s"]:
                row["error"] = abs(expected / row["events_per_s"] - 1)
                text += f" (measured {three_digits(row['to_loop'])})"
            texts.append(text)
        yield f"{last['app']}: from {model}, the model of {last['way']} expects, times the loop: {', '.join(texts)}"
    rows.sort(key=lambda row: (row["heat"], row["result"] != "yardstick", row["way"], row["threads"]))


def _unmeasured(row: Row, threads: int) -> Row:
    """Return the row of a way for a number of threads that was not measured."""
    same = {name: row[name] for name in ("app", "params", "way", "events", "heat")}
    return same | {"threads": threads, "result": "expected", "events_per_s": None, "to_loop": None, "rates": []}


def _steps(row: Row) -> str:
    """Say where the time goes, summed over threads: the steps of a scheme, the roles of tasks, or the breakdown."""
    costs = row.get("costs", {})
    times = {name: spent for name, spent in costs.items() if "_per_" not in name}
    steps = times or {name: spent for name, spent in row["breakdown"].items() if spent}
    text = ", ".join(f"{name} {spent:.1f}" for name, spent in steps.items())
    if spanning := costs.get("spanning_per_batch"):
        text += f"; {spanning:.0f} events of a batch span shares"
    return f"{text}; {row['worked']:.0f} of {threads_of(row)} worked"


SUITE = Suite(
    "scaling",
    "Scaling: from one thread to all cores",
    ("transactions", "pooled", "pinned", "channels", "windows", "limits"),
    (
        Experiment(
            "applications",
            "",
            "The best way of each application, the loops, and a model",
            (
                *(
                    Claim(
                        f"{threads} threads have so many times the throughput of the compiled loop.",
                        GOAL,
                        ours={"threads": threads},
                        column="to_loop",
                        expects=">=",
                        paper=goals,
                        needs=threads,
                    )
                    for threads, goals in TIMES_LOOP.items()
                ),
                Claim(
                    "More threads are not slower than fewer.",
                    GOAL,
                    ours={},
                    column="kept",
                    by=("app", "way"),
                    expects=">=",
                    paper=KEPT,
                    needs=2,
                ),
                Claim(
                    "One thread is nearly as fast as a hand-written loop.",
                    GOAL,
                    ours={"app": tuple(ONE_THREAD), "executor": tuple(ENGINE_EXECUTORS), "threads": 1},
                    over={"way": "hand-written", "executor": ANY},
                    expects=">=",
                    paper={app: 1 / limit for app, limit in ONE_THREAD.items()},
                ),
                Claim(
                    "The model tells the throughput on the most threads from one and two.",
                    GOAL,
                    ours={},
                    column="error",
                    by=("app", "way"),
                    expects="<=",
                    paper=NEAR,
                    needs=4,
                ),
            ),
            _best,
            (
                Plot("threads", "to_loop", "throughput over the loop", dashed="model"),
                Plot("threads", "cpu_ns", "processor time, all threads", loop=False),
            ),
            events=MILLION,
            loads=(0.5,),
            loaded=2,
            seconds=BEST_SECONDS,
            needs="cores",
            describe=_compare,
            conclude=_expect,
        ),
        Experiment(
            "published",
            "",
            "Algorithms as published",
            (),
            lambda counts: (_heats(PUBLISHED, counts), []),
            (Plot("threads", "to_loop", "throughput over the loop"),),
            events=MILLION,
            seconds=PUBLISHED_SECONDS,
            needs="cores",
            describe=_compare,
        ),
    ),
)
