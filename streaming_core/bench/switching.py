"""STRETCH's question 4 (section 8.4): how long a reconfiguration takes, from the request to the last replica concerned
having begun with its first row from there on, and what whoever waits for outputs sees of it.

Each way runs with and without requests (requests.py): `switched` is `no`, `halves` or `swaps`. Sizes are chosen so that
five rounds, the default, make a thousand switches of every configuration but of those that copy states.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_core.bench import host
from streaming_core.bench.race import Race, Row, faster, gains, interval, right, threads_of
from streaming_core.bench.requests import SOONEST, Requests
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot
from streaming_core.kernels import abi
from streaming_core.run.way import Pinned, RunSpec

JOIN = {"keys": 1000, "size": 60_001}  # the paper's windows are five minutes; a minute fills early in a pass of seconds
SWITCHES = 400  # in as long as the loop takes for a pass; none come while what is left expires at its end
STATE_SWITCHES = 1200  # of passes that take a third of the loop's time
COPIED_SWITCHES = 10  # with SN, whose replicas stop while states are copied
SEEN_SWITCHES = 3  # so few that most outputs are near none
BATCHES = (1, 16)
SMALL = 16  # a batch that lets a switch be seen, and not the rows dealt before it
REPLICAS = 8
LOAD = 0.5
ONE_WINDOW = 10**12  # ms: the largest, in which all tweets fall
# Words, every one equally likely, and the share of the events. Of wordcount they are the keys; of paircount, pairs of
# few words all come, and of many nearly every pair is another key, until states are a gigabyte.
WORDS = ((1_000, 1.0), (32_000, 1.0), (1_000_000, 0.5))
PAIRS = ((32, 0.08), (1_000_000, 0.22))
PAIRED = 2  # a batch of paircount, whose rows have eight times as many keys as those of wordcount

SWITCH = Claim(
    "All reconfigurations take less than 40 ms, and about 12 ms from 30 to 52 threads.",
    "STRETCH, section 8.4, Figure 9",
)

NOTES = [
    "Switched `halves`: from all replicas to half of them and back; `swaps`: from one half to the other. A thread "
    "beside the engine's asks for them, one at a time, each when the last one is done and "
    f"{SOONEST * 1000:g} ms have gone by.",
    "A switch takes from the request to the last replica concerned having begun with its first row from there on, or "
    "having parked: what the source takes to deal its next batch, and what is queued by then; at peak rate more than "
    "under load (half the peak of the slowest: with switches or without, the rate is the same). No switch is left "
    "out: the maximum is of all of them, and the largest are listed.",
    "Throughput: half of the replicas have all keys half of the time (`halves`), or always (`swaps`).",
    "A gap is the longest time in which no event is finished at the sink, near is within 100 ms of the delivery of a "
    "switch's first event; without switches, of the same event's.",
]


def _ways(
    app: str,
    operator: str,
    params: dict[str, Any],
    threads: int,
    replicas: int,
    batch: int,
    times: int,
    kinds: tuple[str, ...] = ("halves", "swaps"),
    parallelism: str = "vsn",
) -> list[tuple[RunSpec, Requests | None]]:
    """A way without requests, and with each of these kinds."""
    plan = {} if replicas == threads else {operator: [replica % threads for replica in range(replicas)]}
    spec = Pinned(app=app, params=params, threads=threads, batch=batch, plan=plan, parallelism=parallelism)
    return [(spec, None), *((spec, Requests(operator, kind, replicas, times)) for kind in kinds)]


def _heat(app: str, params: dict[str, Any], ways: list[tuple[RunSpec, Requests | None]], share: float = 1.0) -> Heat:
    return Heat(app, params, [spec for spec, _ in ways], share, requests=tuple(asked for _, asked in ways))


def _unshown(counts: list[int]) -> str:
    return host.unshown(counts, "36 cores, on two sockets")


def _joins(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads = max(counts)
    ways = [
        way
        for batch in BATCHES
        for way in _ways("scalejoin", "from_left", JOIN, threads, max(2, threads), batch, SWITCHES)
    ]
    minute = "A window is a minute, the paper's are five: so it fills early, and a pass stays short."
    return [_heat("scalejoin", JOIN, ways)], [*NOTES, minute, _unshown(counts)]


def _states(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads = max(counts)
    window: dict[str, Any] = {"skew": 0.0, "hashtag_ratio": 0.0, "advance": ONE_WINDOW, "size": ONE_WINDOW}

    def heat(app: str, params: dict[str, Any], batch: int, share: float) -> Heat:
        given = (app, "count", params, threads, max(2, threads), batch)
        copied = _ways(*given, COPIED_SWITCHES, ("swaps",), "sn")
        return _heat(app, params, [*_ways(*given, STATE_SWITCHES), *copied], share)

    heats = [heat("wordcount", {"vocabulary": words, **window}, SMALL, share) for words, share in WORDS]
    heats += [heat("paircount", {"vocabulary": words, "level": "H", **window}, PAIRED, share) for words, share in PAIRS]
    return heats, [
        *NOTES,
        "With SN all replicas stop and states are copied, so there are few switches: about "
        f"{COPIED_SWITCHES} in a pass.",
        "All tweets fall into one window: its states are those at its end, and of every size on the way. Their bytes "
        "are those of their entries (header, key, count, texts), without index and lists.",
        f"A batch of paircount is {PAIRED} tweets, which have about as many keys as {SMALL} of wordcount.",
        _unshown(counts),
    ]


def _replicas(counts: list[int]) -> tuple[list[Heat], list[str]]:
    params, threads = {"vocabulary": WORDS[0][0], "hashtag_ratio": 0.0}, max(counts)
    ways = [
        way
        for of in dict.fromkeys((threads, REPLICAS))
        for way in _ways("wordcount", "count", params, of, REPLICAS, SMALL, SWITCHES)
    ]
    return [_heat("wordcount", params, ways)], [
        *NOTES,
        f"{REPLICAS} replicas on {threads} threads, and on as many threads as replicas: where these are more than the "
        "cores, what is measured is the system's scheduler, and nothing is claimed of it. Context switches of a pass "
        "at peak rate, of all threads of the process: voluntary ones gave up their core, involuntary ones lost it, as "
        "those do that yield while they wait.",
    ]


def _outputs(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads = max(counts)
    replicas = max(2, threads)
    params = {"copies": replicas}
    ways = _ways("forward", "forward", params, threads, replicas, SMALL, SEEN_SWITCHES)
    return [_heat("forward", params, ways)], [
        *NOTES,
        "Every event has outputs, so a gap is one between outputs. Switches are some hundred milliseconds apart.",
        _unshown(counts),
    ]


FIELD = 8  # bytes of a text's place in an entry, or a count


def _count(race: Race) -> dict[str, Any]:
    """States that are there at once, at most: as many as leave with one end, in each of the windows that overlap; and
    their bytes (runtime/README.md)."""
    params = race.app.bind(race.given)
    # What the end of the stream makes expire comes last.
    outputs = pa.concat_tables([race.outputs(), race.loop.finish(race.events)])
    ends, counts = np.unique(outputs["ts"].to_numpy(), return_counts=True)
    at_once = math.ceil(params["size"] / params["advance"])
    last = outputs.filter(pc.equal(outputs["ts"], int(ends[counts.argmax()]))) if len(ends) else outputs
    texts = [column for column in last.itercolumns() if pa.types.is_binary(column.type)]
    texts_bytes = sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in texts)
    states = last.num_rows * at_once
    return {
        "states": states,
        "state_bytes": states * (abi.ENTRY_SIZE + (len(texts) + 1) * FIELD) + texts_bytes * at_once,
    }


def _elasticity(rows: list[Row]) -> Iterator[str]:
    """What switches took, what was seen of them, and what they cost."""
    plain: dict[tuple, Row] = {}
    for row in rows:
        row.setdefault("switched", "no")
        row["replicas"] = max((len(places) for places in row.get("plan", {}).values()), default=row["threads"])
        row["placement"] = f"{row['switched']}, {threads_of(row)}"
        if row["way"] != "loop" and row["switched"] == "no":
            plain[_of(row)] = row
    for row in right(rows):
        if not row.get("switches"):
            continue
        states = f", {row['states']:,} states of {row['state_bytes'] / 1e6:,.1f} MB" if "states" in row else ""
        line = (
            f"{row['app']}{states}, {row['parallelism'].upper()}, {row['replicas']} replicas on {threads_of(row)}, "
            f"batches of {row['batch']}, {row['switched']}: at peak rate {_times(row, 'switch')}"
        )
        if row.get("loaded_switches"):
            line += f"; under load {_times(row, 'loaded_switch')}, of that until its event was dealt "
            line += f"{_spread(row, 'loaded_heard')}; waited for others {_spread(row, 'loaded_waited')}"
        if row.get("copied_max_bytes"):
            p50, most = row["copied_p50_bytes"] / 1e6, row["copied_max_bytes"] / 1e6
            line += f"; copied p50 {p50:,.2f}, max {most:,.2f} MB"
        without = plain.get(_of(row), {"result": "missing"})
        known = without["result"] == "equal"
        for name, said in SEEN.items():
            if row.get(name) is not None:
                line += f"; {said} {row[name] / 1000:.3f} ms"
                line += f", without {without[name] / 1000:.3f} ms" if known and without.get(name) is not None else ""
        if "voluntary" in row:
            line += f"; {row['voluntary']:,.0f} voluntary and {row['involuntary']:,.0f} involuntary context switches"
            line += f", without {without['voluntary']:,.0f} and {without['involuntary']:,.0f}" if known else ""
        if known:
            found = gains(row, without)
            line += f"; {faster(row, without):.2f} times the throughput without switches ({interval(found)})"
        yield line + ". The paper: below 40 ms, on 36 cores"


SEEN = {
    "gap_max_us": "longest gap at peak rate",
    "loaded_gap_max_us": "longest gap under load",
    "loaded_near_p99_us": "end-to-end p99 near a switch",
}


def _of(row: Row) -> tuple:
    """What is the same with and without switches."""
    params = row["params"].items()
    return row["app"], *params, *(row.get(name) for name in ("threads", "replicas", "batch", "load", "parallelism"))


def _spread(row: Row, name: str) -> str:
    p50, p99, most = (row[f"{name}_{which}_us"] / 1000 for which in ("p50", "p99", "max"))
    return f"p50 {p50:.3f}, p99 {p99:.3f}, max {most:.3f} ms"


def _times(row: Row, name: str) -> str:
    """In milliseconds; of the median its interval over passes too, and the largest."""
    p50, p99, most = (row[f"{name}_{which}_us"] / 1000 for which in ("p50", "p99", "max"))
    lowest, highest = (of(row[f"{name}_p50s_us"]) / 1000 for of in (min, max))
    largest = ", ".join(f"{time / 1000:.3f}" for time, _ in row[f"{name}_largest"])
    return (
        f"p50 {p50:.3f} ({lowest:.3f} to {highest:.3f}), p99 {p99:.3f}, max {most:.3f} ms of {row[name + 'es']:,} "
        f"switches, {row[f'{name}_over_1ms']:,} over 1 ms, largest {largest}"
    )


TIMES = (
    ("switch_p99_us", "p99 of a switch, at peak"),
    ("loaded_switch_p99_us", "p99 of a switch, at half the peak"),
)
VIEWS = (
    ("loaded_gap_max_us", "longest gap between outputs, at half the peak"),
    ("loaded_near_p99_us", "p99 near a switch, at half the peak"),
)


def _bars(x: str, *lines: str, of: tuple[tuple[str, str], ...] = TIMES) -> tuple[Plot, ...]:
    return tuple(Plot(x, y, title, lines=lines, kind="bar", loop=False) for y, title in of)


EXPERIMENTS = (
    Experiment(
        "q4",
        "section 8.4, Figure 9",
        "How long a reconfiguration takes: ScaleJoin",
        (SWITCH,),
        _joins,
        _bars("switched", "batch"),
        events=100_000,
        loads=(LOAD,),
        conclude=_elasticity,
    ),
    Experiment(
        "q4-states",
        "section 8.4",
        "How long a reconfiguration takes, by what there is that does not move",
        (SWITCH,),
        _states,
        tuple(Plot("states", y, title, lines=("switched", "parallelism"), log=True, loop=False) for y, title in TIMES),
        events=1_000_000,
        loads=(LOAD,),
        count=_count,
        conclude=_elasticity,
    ),
    Experiment(
        "q4-replicas",
        "section 8.4",
        "How long a reconfiguration takes, with more replicas than cores",
        (SWITCH,),
        _replicas,
        _bars("placement", "switched", "threads"),
        events=800_000,
        loads=(LOAD,),
        conclude=_elasticity,
    ),
    Experiment(
        "q4-outputs",
        "section 8.4",
        "What a reconfiguration does to outputs: an operator that forwards",
        (SWITCH,),
        _outputs,
        _bars("switched", "batch", of=VIEWS),
        events=5_000_000,
        loads=(LOAD,),
        conclude=_elasticity,
    ),
)
