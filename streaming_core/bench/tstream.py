"""The experiments of TStream (ICDE 2020, section VI): schemes for concurrent access to shared state.

The paper ran them on four sockets with 40 cores. Parameters are those of the paper; sizes fit a small machine. Scheme
`tstream` is as published, and `owners` is ours; every experiment has both. Claims quote only the abstract. An
experiment without a claim repeats the paper's comparison; it does not check the paper's figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow.compute as pc

from streaming_core.bench.race import Race
from streaming_core.bench.ratios import Row, best, compare, quantity, threads_of, versus
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.errors import BadInput
from streaming_core.run import engine
from streaming_core.run.way import AXES, Pooled, RunSpec, Transactional

APPS = ("gs", "sl", "ob", "tp")
# The published scheme, and ours.
PUBLISHED, OURS = "tstream", "owners"
# The paper's configurations. A note names those that this build lacks.
POOLS = ("shared_nothing", "shared_everything", "shared_per_socket")
PUNCTUATIONS = (10, 50, 100, 250, 500, 750, 1000, 100_000)
# Rounds of extra work per call of a state access function.
WORK = {
    "gs": (0, 2, 4, 8, 16),
    "sl": (0, 16, 32, 64, 128),
    "ob": (0, 4, 8, 16, 32),
    "tp": (0, 16, 32, 64, 128),
    "tb": (0, 64, 128, 256, 512),
}
ABSTRACT = "TStream, abstract (arXiv:1904.03800v4)"

FASTER = Claim("TStream reaches up to 4.8 times the throughput of the next best scheme, at similar latency.", ABSTRACT)
LOCKS = Claim(
    "Earlier designs for transactional state access rely on locks. Contention prevents them from using many cores.",
    ABSTRACT,
)
COST = Claim(
    "A system's COST is the hardware with which it outperforms a competent single-threaded program.",
    "McSherry, Isard, Murray: Scalability! But at what COST? (HotOS 2015)",
)
TOLERANT = Claim(
    "Unlike other schemes, TStream tolerates skewed keys and transactions over many partitions.",
    ABSTRACT,
)

Sweep = tuple[list[Heat], list[str]]


def _is_numa() -> bool:
    """Tells whether there is remote memory. Then threads are bound to cores, as in the paper, and memory to nodes."""
    return len(engine.topology()["nodes"]) > 1


def schemes(app: str, params: dict[str, Any], threads: list[int]) -> list[Transactional]:
    """Returns every transactional scheme that may run the application, at every thread count."""
    return [
        Transactional(app=app, params=params, scheme=scheme, threads=count, pin=_is_numa())
        for scheme in AXES["scheme"]
        for count in threads
    ]


def _schemes(counts: list[int]) -> Sweep:
    notes = [
        "There is no time for index look-ups: tables are dense, and the key of a row is its number.",
        "no_lock is a bound, not a result. It cannot run tp, whose tables hold sets.",
        "On one thread, owners, serial and auto execute events directly, one after the other.",
    ]
    if not _is_numa():
        notes.append("This machine has one memory node, so there is no time for remote memory.")
    return [Heat(app, {}, schemes(app, {}, counts)) for app in APPS], notes


def _next_best(rows: list[Row]) -> Iterator[str]:
    """Compares TStream, and our scheme, with the schemes that the paper compares with."""
    most = max(row["threads"] for row in rows)
    for app in APPS:
        own = {r["way"]: r for r in rows if r["app"] == app and r["threads"] == most and r["result"] == "equal"}
        others = [own[way] for way in ("lock", "mvlk", "pat") if way in own]
        for way in (PUBLISHED, OURS):
            if way in own and others:
                yield f"{app}: on {threads_of(own[way])}, {versus(own[way], best(others))}, the next best"


def _over(app: str, name: str, values: tuple, fixed: dict[str, Any], counts: list[int]) -> Sweep:
    """Varies a parameter of the workload; all schemes run with the most threads."""
    heats = []
    for value in values:
        params = fixed | {name: value}
        heats.append(Heat(app, params, schemes(app, params, [max(counts)])))
    return heats, []


def _punctuations(counts: list[int]) -> Sweep:
    heats = []
    for app in APPS:
        exact = [spec for spec in schemes(app, {}, [max(counts)]) if not spec.is_bound]
        others = [spec for spec in exact if spec.scheme not in (PUBLISHED, OURS)]
        own = [
            Transactional(app=app, scheme=scheme, threads=max(counts), punctuation=punctuation)
            for scheme in (PUBLISHED, OURS)
            for punctuation in PUNCTUATIONS
        ]
        heats.append(Heat(app, {}, own + others))
    return heats, ["Other schemes run at the default interval, to show their latencies."]


def _intervals(rows: list[Row]) -> Iterator[str]:
    """Summarises latency at the default interval, and throughput at a long one."""
    for app, way in itertools.product(APPS, (PUBLISHED, OURS)):
        own = {r["punctuation"]: r for r in rows if r["app"] == app and r["way"] == way}
        default, longest = own[500], own[PUNCTUATIONS[-1]]
        yield (
            f"{app}, {way}: at interval 500 and half the slowest peak rate, the p99 latency is "
            f"{quantity(default, 'end_to_end_p99_us')}; interval {PUNCTUATIONS[-1]:,} over interval 500, throughput: "
            f"{compare(longest, default).text}"
        )


def _pools(counts: list[int]) -> Sweep:
    ways: dict[str, list[RunSpec]] = {app: [] for app in APPS}
    missing = []
    for pool in POOLS:
        for stealing in (False,) if pool == "shared_nothing" else (False, True):
            try:
                for app, scheme in itertools.product(APPS, (PUBLISHED, OURS)):
                    given = {"scheme": scheme, "pool": pool, "stealing": stealing, "threads": max(counts)}
                    given["pin"] = _is_numa()
                    ways[app].append(RunSpec.parse({"app": app, "executor": "transactional"} | given))
            except BadInput:
                missing.append(f"{pool}{' with stealing' * stealing}")
    notes = [f"This build lacks {', '.join(missing)}."] if missing else []
    topology = engine.topology()
    if topology["is_mock"] or topology["sockets"] == 1:
        notes.append(
            f"This machine has {topology['sockets']} socket{'s' * (topology['sockets'] != 1)}, so a mock topology "
            "replaces NUMA. Pools differ in how they share and steal, not in remote memory."
        )
    return [Heat(app, {}, ways[app]) for app in APPS], notes


def _three_writes(counts: list[int]) -> Sweep:
    params = {"length": 3, "read_ratio": 0.0}
    return [Heat("gs", params, schemes("gs", params, [1]))], []


def _coordination(rows: list[Row]) -> Iterator[str]:
    loop = next(row for row in rows if row["way"] == "loop")
    each = 1e9 / loop["events_per_s"]
    for row in rows:
        if row is not loop:
            yield f"{row['way']}: {each / row['to_loop'] - each:+.1f} ns per transaction; the loop takes {each:.1f} ns"


def _keyed(counts: list[int]) -> Sweep:
    keyed = [Pooled(app="tpk", threads=count) for count in counts]
    exact = [spec for spec in schemes("tp", {}, counts) if not spec.is_bound]
    return [Heat("tpk", {}, keyed), Heat("tp", {}, exact)], [
        "Both read the same reports and emit the same tolls. With state keyed by segment, an event passes through a "
        "chain of operators. The transactional operators are fused into one joint transaction."
    ]


def _work(counts: list[int]) -> Sweep:
    heats = []
    for app, values in WORK.items():
        for work in values:
            params = {"work": work}
            ways = [Transactional(app=app, params=params, scheme=OURS, threads=t) for t in (1, 2)]
            heats.append(Heat(app, params, ways))
    return heats, []


def operations(race: Race) -> dict[str, int]:
    """Returns how often the events of a race call a function with extra work: writes, and in gs also reads."""
    outputs = race.outputs()
    accepted = outputs.filter(outputs["ok"]) if "ok" in outputs.column_names else outputs
    match race.app.name:
        case "gs":
            return {"operations": outputs.num_rows * race.loop.event.event[0]["keys"].count}
        case "sl":
            return {"operations": 2 * accepted.num_rows + 2 * pc.sum(pc.equal(accepted["kind"], 1)).as_py()}
        case "ob":
            named = [table["n"].to_pylist() for table in race.source.blocks(engine.BLOCK)]
            lengths = [n for part in named for n in part]
            return {"operations": sum(lengths[seq] for seq in accepted["seq"].to_pylist())}
        case "tp":
            return {"operations": 2 * accepted.num_rows}
        case "tb":
            return {"operations": 3 * accepted.num_rows}
    raise AssertionError(race.app.name)


def _overtakes(rows: list[Row]) -> Iterator[str]:
    """Adds `work_ns`, the extra work of one operation in the loop, and finds where two threads win."""
    for app in WORK:
        own = [row for row in rows if row["app"] == app]
        loops = [row for row in own if row["way"] == "loop"]
        # Heats do not alternate, so their comparison uses the fastest rounds: other load only adds time.
        seconds = {row["params"]["work"]: row["events"] / max(row["rates"]) for row in loops}
        for row in own:
            row["work_ns"] = (seconds[row["params"]["work"]] - seconds[0]) / row["operations"] * 1e9
        base = seconds[0] / loops[0]["operations"] * 1e9
        two = [row for row in own if row["threads"] == 2]
        ones = [row for row in own if row["way"] != "loop" and row["threads"] == 1]
        against_loop = crossing([(row["work_ns"], row["to_loop"]) for row in two])
        against_one = crossing([(t["work_ns"], t["to_loop"] / o["to_loop"]) for t, o in zip(two, ones, strict=True)])
        yield (
            f"{app}: owners on 2 threads beats the compiled loop {_from(against_loop, base, two)}, and owners on 1 "
            f"thread {_from(against_one, base, two)}. Without extra work, the loop takes {base:.1f} ns per operation"
        )


def crossing(points: list[tuple[float, float]]) -> float | None:
    """Returns the x from which a ratio stays above 1, with linear interpolation; None if it ends below 1.

    A ratio that is never below 1 gives the first x.

    Args:
        points: Pairs of x and ratio, in ascending order of x.
    """
    below = [i for i, (_, ratio) in enumerate(points) if ratio < 1]
    if not below:
        return points[0][0]
    if below[-1] + 1 == len(points):
        return None
    (x0, y0), (x1, y1) = points[below[-1] : below[-1] + 2]
    return x0 + (x1 - x0) * (1 - y0) / (y1 - y0)


def _from(work: float | None, base: float, rows: list[Row]) -> str:
    if work is None:
        return f"nowhere up to {base + rows[-1]['work_ns']:.0f} ns per operation"
    return "at any cost of an operation" if work <= 0 else f"from {base + work:.0f} ns per operation"


def _curves(x: str) -> tuple[Plot, ...]:
    return Plot(x, "events_per_s", "throughput"), Plot(
        x, "to_loop", "throughput, relative to the loop of the same round", loop=False
    )


SUITE = Suite(
    "tstream",
    "TStream: concurrent state access on multicores (ICDE 2020)",
    (
        Experiment(
            "schemes",
            "Figures 1, 8 and 9; section VI-D",
            "Throughput of the schemes, and the time of a transaction by component",
            (FASTER, LOCKS),
            _schemes,
            (
                Plot("threads", "events_per_s", "throughput"),
                Plot("way", "breakdown", "time of a transaction, summed over threads", kind="parts", loop=False),
            ),
            conclude=_next_best,
            needs="cores",
        ),
        Experiment(
            "partition-ratio",
            "Figure 10; section VI-E",
            "Share of transactions that span six partitions (gs)",
            (TOLERANT,),
            partial(_over, "gs", "mp_ratio", (0.0, 0.25, 0.5, 0.75, 1.0), {"mp_len": 6}),
            _curves("mp_ratio"),
        ),
        Experiment(
            "partition-length",
            "Figure 10; section VI-E",
            "Number of partitions that half of the transactions span (gs)",
            (TOLERANT,),
            partial(_over, "gs", "mp_len", (1, 2, 4, 6, 8, 10), {"mp_ratio": 0.5}),
            _curves("mp_len"),
        ),
        Experiment(
            "read-ratio",
            "Figure 11; section VI-E",
            "Share of transactions that read (gs, uniform keys, half of the transactions span several partitions)",
            (TOLERANT,),
            partial(
                _over,
                "gs",
                "read_ratio",
                (0.0, 0.25, 0.5, 0.75, 1.0),
                {"theta": 0.0, "mp_ratio": 0.5, "post_compute": 0},
            ),
            _curves("read_ratio"),
        ),
        Experiment(
            "skew",
            "Figure 11; section VI-E",
            "Skew of the keys (gs, writes only)",
            (TOLERANT,),
            partial(_over, "gs", "theta", (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), {"read_ratio": 0.0}),
            _curves("theta"),
        ),
        Experiment(
            "punctuation",
            "Figure 12",
            "Throughput and latency by punctuation interval",
            (FASTER,),
            _punctuations,
            (
                Plot("punctuation", "events_per_s", "throughput", log=True, loop=False),
                Plot(
                    "punctuation",
                    "end_to_end_p99_us",
                    "end-to-end p99 latency at half the peak rate",
                    log=True,
                    loop=False,
                ),
                Plot("punctuation", "p99_us", "processing p99 latency at the peak rate", log=True, loop=False),
            ),
            loads=(0.5,),
            conclude=_intervals,
        ),
        Experiment(
            "pools",
            "Figures 13 and 14",
            "Pools: the threads that may evaluate an operation chain, with and without work stealing",
            (),
            _pools,
            (Plot("pool", "events_per_s", "throughput", lines=("scheme", "stealing"), kind="bar", loop=False),),
            needs="nodes",
        ),
        Experiment(
            "three-writes",
            "section VI-G",
            "Cost of coordination on a single core, with three writes per transaction",
            (),
            _three_writes,
            (Plot("way", "events_per_s", "throughput on one thread", kind="bar"),),
            conclude=_coordination,
        ),
        Experiment(
            "keyed",
            "Figure 2(a); section II",
            "Toll processing keyed by segment, compared with the transactional one",
            (),
            _keyed,
            (
                Plot("threads", "events_per_s", "throughput", by="", lines=("app", "way")),
                Plot(
                    "threads",
                    "to_loop",
                    "throughput, relative to the application's own loop",
                    by="",
                    lines=("app", "way"),
                    loop=False,
                ),
            ),
        ),
        Experiment(
            "work",
            "not in the paper",
            "Cost of an operation from which two threads beat one",
            (COST,),
            _work,
            (Plot("work_ns", "to_loop", "throughput of owners, relative to the loop", lines=("way", "threads")),),
            count=operations,
            conclude=_overtakes,
        ),
    ),
)
