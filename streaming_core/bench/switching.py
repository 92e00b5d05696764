"""STRETCH's question 4 (section 8.4): how long a reconfiguration takes, and its effect on outputs.

A switch lasts from the request until every affected replica has started with its first row under the new assignment of
keys. Each way runs with and without requests (`requests.py`): `switched` is `no`, `halves`, `swaps` or `between`. With
five rounds, the default, every configuration makes at least a thousand switches, except those that copy states.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_core.bench import host
from streaming_core.bench import stretch_sentences as sentences
from streaming_core.bench.race import Race
from streaming_core.bench.ratios import Row, compare, equal_rows, threads_of
from streaming_core.bench.requests import SOONEST, Requests
from streaming_core.bench.stretch_sentences import OURS, PUBLISHED, SHARE_NOTHING, SHARED
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot
from streaming_core.kernels import abi
from streaming_core.run.way import DEFAULT_BATCH, Pinned, RunSpec

JOIN = {"keys": 1000, "size": 60_001}  # not five minutes as in the paper: a window of a minute fills early in a pass
SWITCHES = 600  # in the time of a pass of the loop; there are none while windows expire at the end of the stream
BETWEEN = 250  # blocks of a pass with a request between any two
STATE_SWITCHES = 1200  # for passes that take a third of the loop's time
COPIED_SWITCHES = 10  # with SN, whose replicas stop while it copies states
SEEN_SWITCHES = 3  # few enough that most outputs are not near a switch
BATCHES = (1, 16, DEFAULT_BATCH)
REPLICAS = 8
LOAD = 0.5
LOADS = (0.1, LOAD, 0.9)
KINDS = ("halves", "swaps")
LISTED = 20  # of the longest switches, in a sentence
ONE_WINDOW = 10**12  # ms: the largest size, so all tweets fall into one window
# The number of equally likely words, and the share of the events. In wordcount, the words are the keys. In paircount,
# few words give few pairs; with many words nearly every pair is a new key, and states grow to a gigabyte.
WORDS = ((1_000, 1.0), (32_000, 1.0), (1_000_000, 0.5))
PAIRS = ((32, 0.08), (1_000_000, 0.22))

SWITCH = Claim(
    "All reconfigurations are quick. They take longer if threads of both sockets take part.",
    "section 8.4, figure 9",
    "below 40 ms; about 12 ms from 30 to 52 threads",
    published=sentences.switches(PUBLISHED),
    ours=sentences.switches(OURS),
    host="One socket and few cores. In the paper, a controller triggers them: see experiment q4-provisioning.",
)
PEAK = Claim(
    "At the peak rate, a reconfiguration also waits for queued rows.",
    "none: the paper has flow control",
    published=sentences.switches(PUBLISHED, is_loaded=False),
    ours=sentences.switches(OURS, is_loaded=False),
)
GOAL = Claim(
    "At an input rate, half of the reconfigurations take less than 100 us, and 99 % less than 1 ms and one row.",
    "a goal of this project",
    "p50 below 0.1 ms, p99 below 1 ms plus the time of a row",
    published=sentences.goal(PUBLISHED),
    ours=sentences.goal(OURS),
)
FLAT = Claim(
    "No state moves in a reconfiguration, so its time does not depend on the size of the state.",
    "sections 1 and 7",
    published=sentences.switches(PUBLISHED),
    ours=sentences.switches(OURS),
    host=lambda rows: f"SN copies states: {sentences.switches(SHARE_NOTHING)(rows)}",
)

NOTES = [
    "Requests `halves` switch from all replicas to half of them and back. Requests `swaps` switch from one half to the "
    "other. Requests `between` are `halves`, made while the engine is between two blocks and its clock stands still. "
    "Their time begins with the next block.",
    "A thread in addition to the engine's makes the requests, one at a time. It makes the next one when the last is "
    f"done and {SOONEST * 1000:g} ms have passed.",
    "A switch lasts from the request until every affected replica has started with its first row under the new "
    "assignment, or has parked. This includes the time until the source deals its next batch, and the queued rows.",
    "So a switch takes longer at the peak rate than under load. Load is a share of the peak rate of the slowest way, "
    "the same with and without switches. A source cuts its batch when a request comes.",
    f"No switch is left out. The results list all over 1 ms; sentences list the largest {LISTED}.",
    "On throughput: half of the replicas own all keys half of the time (`halves`), or always (`swaps`).",
    "A gap is the longest time in which the sink finishes no event. An output is near a switch if it is within 100 ms "
    "of the delivery of the switch's first event. Without switches, the same event counts.",
]


@dataclass(frozen=True)
class Reconfigured:
    """An application whose operator is reconfigured: its parameters, and how it runs."""

    app: str
    operator: str
    params: dict[str, Any]
    threads: int
    replicas: int
    batch: int = DEFAULT_BATCH

    def ways(
        self, times: int, kinds: tuple[str, ...] = KINDS, parallelisms: tuple[str, ...] = SHARED
    ) -> list[tuple[RunSpec, Requests | None]]:
        """A way without requests, and the same way with each kind of requests, for each parallelism.

        Args:
            times: Requests in a pass, for kinds other than `between`.
            kinds: The kinds of requests.
            parallelisms: The parallelisms.
        """
        replicas = [replica % self.threads for replica in range(self.replicas)]
        fields = {
            "app": self.app,
            "params": self.params,
            "threads": self.threads,
            "batch": self.batch,
            "plan": {} if self.replicas == self.threads else {self.operator: replicas},
        }
        ways: list[tuple[RunSpec, Requests | None]] = []
        for parallelism in parallelisms:
            spec = Pinned.model_validate(fields | {"parallelism": parallelism})
            ways.append((spec, None))
            counts = {kind: BETWEEN if kind == "between" else times for kind in kinds}
            ways += [(spec, Requests(self.operator, kind, self.replicas, count)) for kind, count in counts.items()]
        return ways


def _heat(app: str, params: dict[str, Any], ways: list[tuple[RunSpec, Requests | None]], share: float = 1.0) -> Heat:
    return Heat(app, params, [spec for spec, _ in ways], share, requests=tuple(requests for _, requests in ways))


def _unshown(counts: list[int]) -> str:
    return host.unshown(counts, "36 cores, on two sockets")


MINUTE = "A window is a minute, not five as in the paper, so that it fills early and a pass stays short."


def _joins(counts: list[int]) -> tuple[list[Heat], list[str]]:
    join = Reconfigured("scalejoin", "from_left", JOIN, max(counts), max(2, *counts))
    return [_heat("scalejoin", JOIN, join.ways(SWITCHES, (*KINDS, "between")))], [*NOTES, MINUTE, _unshown(counts)]


def _batches(counts: list[int]) -> tuple[list[Heat], list[str]]:
    join = Reconfigured("scalejoin", "from_left", JOIN, max(counts), max(2, *counts))
    ways = [way for batch in BATCHES for way in replace(join, batch=batch).ways(SWITCHES, ("halves",))]
    return [_heat("scalejoin", JOIN, ways)], [*NOTES, MINUTE, _unshown(counts)]


def _states(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads = max(counts)
    window: dict[str, Any] = {"skew": 0.0, "hashtag_ratio": 0.0, "advance": ONE_WINDOW, "size": ONE_WINDOW}

    def heat(app: str, params: dict[str, Any], share: float) -> Heat:
        count = Reconfigured(app, "count", params, threads, max(2, threads))
        copied = count.ways(COPIED_SWITCHES, ("swaps",), (SHARE_NOTHING,))
        return _heat(app, params, [*count.ways(STATE_SWITCHES), *copied], share)

    heats = [heat("wordcount", {"vocabulary": words, **window}, share) for words, share in WORDS]
    heats += [heat("paircount", {"vocabulary": words, "level": "H", **window}, share) for words, share in PAIRS]
    return heats, [
        *NOTES,
        "With SN, all replicas stop while it copies states. So there are few switches: about "
        f"{COPIED_SWITCHES} in a pass.",
        "All tweets fall into one window, so its states grow from nothing to the given number.",
        "The bytes of a state are those of its entry (header, key, count, texts), without index and lists.",
        _unshown(counts),
    ]


def _replicas(counts: list[int]) -> tuple[list[Heat], list[str]]:
    params, threads = {"vocabulary": WORDS[0][0], "hashtag_ratio": 0.0}, max(counts)
    ways = [
        way
        for used in dict.fromkeys((threads, REPLICAS))
        for way in Reconfigured("wordcount", "count", params, used, REPLICAS).ways(SWITCHES)
    ]
    return [_heat("wordcount", params, ways)], [
        *NOTES,
        f"{REPLICAS} replicas run on {threads} threads, and on one thread each. With more threads than cores, the "
        "result depends on the system's scheduler; we claim nothing about it.",
        "Context switches are those of all threads of the process in a pass at the peak rate. A voluntary switch "
        "gives up the core; an involuntary one loses it, also by a yield while waiting.",
    ]


def _outputs(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads = max(counts)
    replicas = max(2, threads)
    params = {"copies": replicas}
    ways = Reconfigured("forward", "forward", params, threads, replicas).ways(SEEN_SWITCHES)
    return [_heat("forward", params, ways)], [
        *NOTES,
        "Every event has outputs, so a gap is a gap between outputs. Switches are some hundred milliseconds apart.",
        _unshown(counts),
    ]


FIELD = 8  # bytes of a text reference, or of a count, in an entry


def _count(race: Race) -> dict[str, Any]:
    """Return the largest number of states at one time, and their bytes.

    The number is that of the states that expire together, times the number of overlapping windows.
    """
    params = race.app.bind(race.params)
    # The outputs at the end of the stream come last.
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
    """Summarise the duration of switches, their effect on outputs, and their cost."""
    plain: dict[tuple, Row] = {}
    for row in rows:
        row.setdefault("switched", "no")
        row["replicas"] = max((len(places) for places in row.get("plan", {}).values()), default=row["threads"])
        row["placement"] = f"{row['switched']}, {threads_of(row)}"
        if row["way"] != "loop" and row["switched"] == "no":
            plain[_shared_key(row)] = row
    for row in equal_rows(rows):
        if not row.get("switches"):
            continue
        at = f", at {row['load']:.0%} of the peak rate".replace("%", " %") if row.get("load") else ""
        states = f", {row['states']:,} states of {row['state_bytes'] / 1e6:,.1f} MB" if "states" in row else ""
        line = (
            f"{row['app']}{states}, {row['parallelism'].upper()}, {row['replicas']} replicas on {threads_of(row)}, "
            f"batches of {row['batch']}, {row['switched']}: a switch takes, at peak rate, {_times(row, 'switch')}"
        )
        if row.get("loaded_switches"):
            line += f"; under load{at}, {_times(row, 'loaded_switch')}; until the source deals the first event "
            line += f"{_spread(row, 'loaded_heard')}; the wait for former owners {_spread(row, 'loaded_waited')}"
        if row.get("copied_max_bytes"):
            p50, most = row["copied_p50_bytes"] / 1e6, row["copied_max_bytes"] / 1e6
            line += f"; copied bytes p50 {p50:,.2f}, max {most:,.2f} MB"
        without = plain.get(_shared_key(row), {"result": "missing"})
        known = without["result"] == "equal"
        for name, label in SEEN.items():
            if row.get(name) is not None:
                line += f"; {label} {row[name] / 1000:.3f} ms"
                line += (
                    f", without switches {without[name] / 1000:.3f} ms"
                    if known and without.get(name) is not None
                    else ""
                )
        if "voluntary" in row:
            line += f"; {row['voluntary']:,.0f} voluntary and {row['involuntary']:,.0f} involuntary context switches"
            line += f", without requests {without['voluntary']:,.0f} and {without['involuntary']:,.0f}" if known else ""
        if known:
            line += f"; throughput over that without switches: {compare(row, without).text}"
        yield line


SEEN = {
    "gap_max_us": "longest gap at peak rate",
    "loaded_gap_max_us": "longest gap under load",
    "loaded_near_p99_us": "end-to-end p99 latency near a switch",
}


def _shared_key(row: Row) -> tuple:
    """Return what a way with switches and the same way without have in common."""
    params = row["params"].items()
    return row["app"], *params, *(row.get(name) for name in ("threads", "replicas", "batch", "load", "parallelism"))


def _spread(row: Row, name: str) -> str:
    p50, p99, most = (row[f"{name}_{which}_us"] / 1000 for which in ("p50", "p99", "max"))
    return f"p50 {p50:.3f}, p99 {p99:.3f}, max {most:.3f} ms"


def _times(row: Row, name: str) -> str:
    """Return times in milliseconds, with the interval of the median over passes, and the largest times."""
    p50, p99, most = (row[f"{name}_{which}_us"] / 1000 for which in ("p50", "p99", "max"))
    lowest, highest = (of(row[f"{name}_p50s_us"]) / 1000 for of in (min, max))
    largest = ", ".join(f"{time / 1000:.3f}" for time, _ in row[f"{name}_largest"][:LISTED])
    return (
        f"p50 {p50:.3f} ({lowest:.3f} to {highest:.3f}), p99 {p99:.3f}, max {most:.3f} ms of {row[name + 'es']:,} "
        f"switches, {row[f'{name}_over_1ms']:,} over 1 ms, largest {largest}"
    )


TIMES = (
    ("switch_p99_us", "p99 of a switch, at the peak rate"),
    ("loaded_switch_p99_us", "p99 of a switch, under load"),
)
VIEWS = (
    ("loaded_gap_max_us", "longest gap between outputs, at half the peak rate"),
    ("loaded_near_p99_us", "p99 latency near a switch, at half the peak rate"),
)


def _bars(x: str, *lines: str, of: tuple[tuple[str, str], ...] = TIMES) -> tuple[Plot, ...]:
    return tuple(Plot(x, y, title, lines=lines, kind="bar", loop=False) for y, title in of)


EXPERIMENTS = (
    Experiment(
        "q4",
        "section 8.4, Figure 9",
        "Duration of a reconfiguration: ScaleJoin",
        (SWITCH, GOAL, PEAK),
        _joins,
        _bars("switched", "load"),
        events=80_000,
        loads=LOADS,
        conclude=_elasticity,
    ),
    Experiment(
        "q4-batches",
        "section 8.4",
        "Duration of a reconfiguration, by batch size",
        (GOAL,),
        _batches,
        _bars("batch", "switched"),
        events=80_000,
        loads=(LOAD,),
        conclude=_elasticity,
    ),
    Experiment(
        "q4-states",
        "section 8.4",
        "Duration of a reconfiguration, by the size of the state",
        (FLAT, GOAL),
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
        "Duration of a reconfiguration, with more replicas than cores",
        (GOAL,),
        _replicas,
        _bars("placement", "switched", "threads"),
        events=800_000,
        loads=(LOAD,),
        conclude=_elasticity,
    ),
    Experiment(
        "q4-outputs",
        "section 8.4",
        "Effect of a reconfiguration on outputs: an operator that only forwards",
        (),
        _outputs,
        _bars("switched", "batch", of=VIEWS),
        events=5_000_000,
        loads=(LOAD,),
        conclude=_elasticity,
    ),
)
