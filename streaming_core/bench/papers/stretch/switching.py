"""STRETCH's question 4 (section 8.4): how long a reconfiguration takes, and its effect on outputs.

A switch lasts from the request until every affected replica has started with its first row under the new assignment of
keys. Each way runs with and without requests (`requests.py`): `switched` is `no`, `halves`, `swaps` or `between`. With
five rounds, the default, every configuration makes at least a thousand switches, except those that copy states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_core.bench.claims import GOAL, Claim
from streaming_core.bench.papers.stretch.vsn import OURS, PUBLISHED, SHARE_NOTHING, SHARED
from streaming_core.bench.race.race import Race
from streaming_core.bench.race.ratios import Row, threads_of
from streaming_core.bench.race.requests import SOONEST, Requests
from streaming_core.bench.suite import Experiment, Heat, Plot
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
ONE_WINDOW = 10**12  # ms: the largest size, so all tweets fall into one window
# The number of equally likely words, and the share of the events. In wordcount, the words are the keys. In paircount,
# few words give few pairs; with many words nearly every pair is a new key, and states grow to a gigabyte.
WORDS = ((1_000, 1.0), (32_000, 1.0), (1_000_000, 0.5))
PAIRS = ((32, 0.08), (1_000_000, 0.22))

SWITCH = Claim(
    "All reconfigurations take less than 40 ms.",
    "section 8.4, figure 9",
    {"parallelism": PUBLISHED},
    {"parallelism": OURS},
    column="loaded_switch_max_us",
    by=("load", "switched"),
    expects="<=",
    paper=40_000.0,
)
FLAT = Claim(
    "No state moves in a reconfiguration, so its time does not depend on the size of the state.",
    "sections 1 and 7",
    {"parallelism": PUBLISHED, "vocabulary": WORDS[-1][0], "app": "wordcount"},
    {"parallelism": OURS, "vocabulary": WORDS[-1][0], "app": "wordcount"},
    {"vocabulary": WORDS[0][0]},
    column="loaded_switch_p50_us",
    by=("switched",),
    expects="=",
)


def _goals(by: str) -> tuple[Claim, ...]:
    return tuple(
        Claim(
            f"At an input rate, {share} of the reconfigurations take less than {limit:g} us.",
            GOAL,
            ours={"parallelism": OURS},
            column=f"loaded_switch_{of}_us",
            by=(by, "switched"),
            expects="<=",
            paper=limit,
        )
        for share, of, limit in (("half", "p50", 100.0), ("99 %", "p99", 1000.0))
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
    "No switch is left out. The results list all over 1 ms.",
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


MINUTE = "A window is a minute, not five as in the paper, so that it fills early and a pass stays short."


def _joins(counts: list[int]) -> tuple[list[Heat], list[str]]:
    join = Reconfigured("scalejoin", "from_left", JOIN, max(counts), max(2, *counts))
    return [_heat("scalejoin", JOIN, join.ways(SWITCHES, (*KINDS, "between")))], [*NOTES, MINUTE]


def _batches(counts: list[int]) -> tuple[list[Heat], list[str]]:
    join = Reconfigured("scalejoin", "from_left", JOIN, max(counts), max(2, *counts))
    ways = [way for batch in BATCHES for way in replace(join, batch=batch).ways(SWITCHES, ("halves",))]
    return [_heat("scalejoin", JOIN, ways)], [*NOTES, MINUTE]


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


def _describe(rows: list[Row]) -> None:
    """Add the kind of requests, the replicas and the placement to each row."""
    for row in rows:
        row.setdefault("switched", "no")
        row["replicas"] = max((len(places) for places in row.get("plan", {}).values()), default=row["threads"])
        row["placement"] = f"{row['switched']}, {threads_of(row)}"


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
        (SWITCH, *_goals("load")),
        _joins,
        _bars("switched", "load"),
        events=80_000,
        loads=LOADS,
        describe=_describe,
    ),
    Experiment(
        "q4-batches",
        "section 8.4",
        "Duration of a reconfiguration, by batch size",
        _goals("batch"),
        _batches,
        _bars("batch", "switched"),
        events=80_000,
        loads=(LOAD,),
        describe=_describe,
    ),
    Experiment(
        "q4-states",
        "section 8.4",
        "Duration of a reconfiguration, by the size of the state",
        (FLAT, *_goals("states")),
        _states,
        tuple(Plot("states", y, title, lines=("switched", "parallelism"), log=True, loop=False) for y, title in TIMES),
        events=1_000_000,
        loads=(LOAD,),
        count=_count,
        describe=_describe,
    ),
    Experiment(
        "q4-replicas",
        "section 8.4",
        "Duration of a reconfiguration, with more replicas than cores",
        _goals("threads"),
        _replicas,
        _bars("placement", "switched", "threads"),
        events=800_000,
        loads=(LOAD,),
        describe=_describe,
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
        describe=_describe,
    ),
)
