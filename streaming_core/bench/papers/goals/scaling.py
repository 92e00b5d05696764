"""How the engine scales: every executor of every kind of application on one thread and more, beside loops and a model.

The suite has no paper. The compiled loop is the yardstick of every benchmark (`oracle/loop`). A hand-written loop is
what a systems programmer would write for one application and one thread (`handwritten.py`). It takes part where cargo
can build it. From the costs on one and two threads, `model.py` expects the throughput on more.

The suite takes eight minutes at most, so that a large machine is needed for a quarter of an hour only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streaming_core.apps import registry
from streaming_core.bench.claims import ANY, GOAL, Claim
from streaming_core.bench.papers.goals.model import Model
from streaming_core.bench.race import handwritten
from streaming_core.bench.race.ratios import Row, best, compare, equal_rows, threads_of, three_digits
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.errors import BadInput
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec, engine_executors_of

# The events of each application, in millions.
MILLIONS = {
    "gs": 2, "ob": 1.5, "sl": 2, "tp": 1, "fx": 1, "wc": 0.2, "fd": 1, "sd": 1, "lr": 0.3, "wordcount": 0.1,
    "scalejoin": 0.2, "hedge": 0.05,
}  # fmt: skip
MILLION = 1_000_000
SECONDS = 720.0  # of the experiment

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


def _sweep(counts: list[int]) -> tuple[list[Heat], list[str]]:
    loops: Iterable[str] = handwritten.APPS
    notes = [
        "All loops read the same rows in memory and digest their outputs. The hand-written loops have the default "
        "parameters built in."
    ]
    try:
        handwritten.cargo()
    except BadInput as error:
        loops, notes = (), [f"left out: {error}"]
    return [_heat(app, counts, app in loops) for app in MILLIONS], notes


def _heat(app: str, counts: list[int], has_loop: bool) -> Heat:
    """Return the heat of an application: every executor that runs it, with default options."""
    executors = engine_executors_of(registry.load(app).kind)
    ways = [RunSpec.parse({"app": app, "executor": name, "threads": n}) for name in executors for n in counts]
    return Heat(app, {}, ways, MILLIONS[app], handwritten=(1,) * has_loop)


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
            if single := by_threads.get(1):
                row |= _ratio("to_one_thread", row, single)
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
        single, two = by_threads.get(1), by_threads.get(2)
        if single is None or two is None or two["worked"] < 2:
            continue
        model = Model.of(single, two)
        texts = []
        for threads in sorted({*by_threads, *EXPECTED} - {1}):
            row = by_threads.get(threads) or _unmeasured(last, threads)
            if threads not in by_threads:
                rows.append(row)
            expected = max(1e9 / model.nanoseconds(threads, row.get("round_trip_ns")), single["events_per_s"])
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
    (
        Experiment(
            "applications",
            "",
            "Every executor of each application, the loops, and a model",
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
            _sweep,
            (
                Plot("threads", "to_loop", "throughput over the loop", dashed="model"),
                Plot("threads", "cpu_ns", "processor time, all threads", loop=False),
            ),
            events=MILLION,
            loads=(0.5,),
            seconds=SECONDS,
            needs="cores",
            describe=_compare,
            conclude=_expect,
        ),
    ),
)
