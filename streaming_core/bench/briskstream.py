"""The experiments of BriskStream (section 6): pinned replicas, jumbo tuples, and the cost of total order.

BriskStream itself keeps no order. Only its abstract was at hand for quoted claims.
"""

from __future__ import annotations

from collections.abc import Iterator

from streaming_core.apps import registry
from streaming_core.bench.ratios import Row, compare, quantity, threads_of
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.run.way import Morsel, Pinned, Pooled, RunSpec

APPS = ("wc", "fd", "sd", "lr")
BATCHES = (1, 16, 256)

SCALES = Claim(
    "BriskStream yields much higher throughput and better scalability than existing stream processing systems on "
    "multicores.",
    "BriskStream: Scaling Data Stream Processing on Shared-Memory Multicore Architectures, abstract (arXiv:1904.03604)",
)


def _channels(app: str) -> tuple[str, ...]:
    """Returns the channels to compare: `shared_ring` needs an application that declares what agrees without order."""
    return ("gate", "shared_ring") if registry.load(app).unordered else ("gate",)


def _pipeline(app: str, threads: int) -> dict[str, list[int]]:
    """Returns a plan with one replica per operator and equally many consecutive operators on each thread."""
    names = ["source", *(operator.name for operator in registry.load(app).operators[1:-1]), "sink"]
    return {name: [place * threads // len(names)] for place, name in enumerate(names)}


def _applications(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads = max(counts)
    heats = []
    for app in APPS:
        ways: list[RunSpec] = [Pooled(app=app, threads=count) for count in counts]
        orders = ("total", "none") if registry.load(app).unordered else ("total",)
        ways += [Morsel(app=app, order=order, threads=threads) for order in orders]
        for channel in _channels(app):
            for plan in ({}, _pipeline(app, threads)):
                ways.append(Pinned(app=app, channel=channel, threads=threads, plan=plan))
        heats.append(Heat(app, {}, ways))
    notes = [
        "Placement `replicated`: each operator that may be replicated has a replica on each thread. Placement "
        "`pipeline`: each operator has one replica. Pooled workers may execute any operator.",
        "Without order, the check covers what the application declares to agree without order.",
    ]
    return heats, notes


def _order(rows: list[Row]) -> Iterator[str]:
    """Names placements, and compares the best ways with and without order."""
    for row in rows:
        pinned = "pipeline" if "plan" in row else "replicated"
        row["placement"] = pinned if row.get("executor") == "pinned" else row.get("executor", "loop")
    for app in APPS:
        best: dict[str, Row] = {}
        for row in rows:
            if row["app"] == app and row["result"] == "equal":
                order = row.get("order", "total")  # the loop has no such column
                if order not in best or row["to_loop"] > best[order]["to_loop"]:
                    best[order] = row
        if len(best) == 2:
            total, none = (
                f"{best[order]['way']}, {best[order]['placement']}, {threads_of(best[order])}"
                for order in ("total", "none")
            )
            ratio = compare(best["total"], best["none"], over_threads=True)
            yield f"{app}: throughput of total order ({total}) over no order ({none}): {ratio.text}"


def _jumbo(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads = max(counts)
    heats = []
    for app in APPS:
        plan = _pipeline(app, threads)
        ways = [
            Pinned(app=app, channel=channel, threads=threads, batch=batch, plan=plan)
            for channel in _channels(app)
            for batch in BATCHES
        ]
        heats.append(Heat(app, {}, ways))
    return heats, ["A batch of 1 stands for the paper's runs without jumbo tuples: each event travels alone."]


def _gain(rows: list[Row]) -> Iterator[str]:
    """Compares jumbo tuples with events that travel one by one."""
    least, most = min(BATCHES), max(BATCHES)
    for app in APPS:
        for channel in _channels(app):
            right = [row for row in rows if (row["app"], row.get("channel"), row["result"]) == (app, channel, "equal")]
            own = {row["batch"]: row for row in right}
            if least in own and most in own:
                before, after = (quantity(own[batch], "end_to_end_p99_us") for batch in (least, most))
                yield (
                    f"{app}, {channel}: throughput of batches of {most} over single events: "
                    f"{compare(own[most], own[least]).text}. At half the slowest peak rate, the p99 is {after}, and "
                    f"with single events {before}"
                )


SUITE = Suite(
    "briskstream",
    "BriskStream: pinned replicas and jumbo tuples",
    (
        Experiment(
            "applications",
            "section 6",
            "Pinned and pooled execution, with total order and without order",
            (SCALES,),
            _applications,
            (
                Plot(
                    "placement",
                    "to_loop",
                    "throughput, relative to the compiled loop",
                    lines=("way", "threads"),
                    kind="bar",
                ),
                Plot(
                    "placement",
                    "end_to_end_p99_us",
                    "p99 latency from arrival, at half the slowest peak rate",
                    lines=("way", "threads"),
                    kind="bar",
                    loop=False,
                ),
            ),
            loads=(0.5,),
            conclude=_order,
            needs="cores",
        ),
        Experiment(
            "jumbo_tuples",
            "section 5.2",
            "Batch size",
            (),
            _jumbo,
            tuple(
                Plot("batch", y, title, lines=("channel",), log=True, loop=False)
                for y, title in (
                    ("events_per_s", "events per second"),
                    ("p99_us", "p99 latency of a batch"),
                    ("end_to_end_p99_us", "p99 latency from arrival, at half the slowest peak rate"),
                )
            ),
            loads=(0.5,),
            conclude=_gain,
        ),
    ),
)
