"""The experiments of Viper (section 4): order kept by the channels, or by merge operators in front of every replica.

Injectors deal the events one by one; each operator's replicas run on the threads in turn. As published: communication
layer, channel `scalegate`; operator layer, `merge_sort`, whose merge operators have threads of their own. Ours: `gate`.
The paper has as many sinks as replicas; here one sink takes all outputs in order, and its merge counts.

Outputs are counted, and digested by nobody: replicas can digest beside each other where the channels merge, and not
where merge operators stand behind them, which is no part of what is compared. What is held against the loop is the
round that warms up. Threads that wait are parked, so that processor time is what an event costs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from streaming_core.bench.race import Row, faster
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.run.energy import Meter
from streaming_core.run.way import Pinned

APPS = ("pos_rep", "new_seg")  # named as their only operator is
COUNTS = (1, 2, 4, 6)
CHANNELS = ("scalegate", "merge_sort", "gate")  # Viper's, what it is compared with, and ours

PAPER = "Viper: Communication-Layer Determinism and Scaling in Low-Latency Stream Processing (Euro-Par 2017)"

CHEAPER = Claim(
    "Determinism enforced in the communication layer, and not by dedicated sorting operators, serves throughput and "
    "energy efficiency.",
    f"{PAPER}, abstract",
)
POS_REP = Claim(
    "pos_rep, several injectors: more than 500,000 tuples/s at 90 W with determinism in the channels, about 400,000 at "
    "up to 140 W with merge operators; one injector: 650,000 at 60 W, and less than 600,000 at about 100 W.",
    f"{PAPER}, section 4.1, figure 4a (16 cores, Apache Storm)",
)
NEW_SEG = Claim(
    "new_seg: about 100,000 tuples/s more with determinism in the channels, at no more than 100 W against more than "
    "140 W.",
    f"{PAPER}, section 4.2, figure 4b",
)
AT_MOST = Claim("Up to 70 % more throughput, and half of the energy.", f"{PAPER}, section 6")


def _configurations(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads = max(counts)
    heats = []
    for app in APPS:
        ways = []
        for injectors, instances, channel in itertools.product(COUNTS, COUNTS, CHANNELS):
            plan = {
                "source": [i % threads for i in range(injectors)],
                app: [i % threads for i in range(instances)],
                "sink": [threads - 1],
            }
            given = {"channel": channel, "plan": plan, "idle": "park", "sink": "count"}
            ways.append(Pinned(app=app, threads=threads, **given))
        heats.append(Heat(app, {}, ways))
    notes = [
        "With one injector and one instance there is nothing to merge, and all channels are the same.",
        "merge_sort has a thread more for each instance if there are several injectors, and one if there are several "
        "instances.",
        "Outputs are counted, not digested, in all channels; the round that warms up digests them, and is compared.",
        "Latencies are from an event's arrival.",
    ]
    if why := Meter().why:
        notes.append(f"No energy: {why}.")
    return heats, notes


def _gains(rows: list[Row]) -> Iterator[str]:
    """Injectors and instances of each row, and its chart; what channels gain over merge_sort, where all merge."""
    cells = {}
    for row in rows:
        if "plan" in row:
            row["injectors"], row["instances"] = len(row["plan"]["source"]), len(row["plan"][row["app"]])
            cells[row["app"], row["injectors"], row["instances"], row["channel"]] = row
        else:  # the loop, which has neither
            row["injectors"] = row["instances"] = 1
        row["chart"] = f"{row['app']}, {row['injectors']} injector{'s' * (row['injectors'] > 1)}"
    for app, channel in itertools.product(APPS, (channel for channel in CHANNELS if channel != "merge_sort")):
        gains = {}
        for injectors, instances in itertools.product(COUNTS, COUNTS):
            own, sort = (cells.get((app, injectors, instances, of)) for of in (channel, "merge_sort"))
            if max(injectors, instances) > 1 and own and sort and own["result"] == sort["result"] == "equal":
                gains[injectors, instances] = faster(own, sort), sort["cpu_ns"] / own["cpu_ns"]
        for at in dict.fromkeys([(2, 2), max(gains, key=lambda cell: gains[cell][0], default=(2, 2))]):
            if at in gains:
                yield (
                    f"{app}, {at[0]} injectors and {at[1]} instances: {channel} has {gains[at][0]:.2f} times the "
                    f"throughput of merge_sort, which takes {gains[at][1]:.2f} times its CPU time per event"
                )


SUITE = Suite(
    "viper",
    "Viper: determinism in the channel, or by merge operators",
    (
        Experiment(
            "configurations",
            "figure 4",
            "Injectors by operator instances: channels that merge, and merge operators",
            (CHEAPER, POS_REP, NEW_SEG, AT_MOST),
            _configurations,
            tuple(
                Plot("instances", y, title, "chart", ("channel",), loop=False)
                for y, title in (
                    ("events_per_s", "throughput"),
                    ("cpu_ns", "processor time"),
                    ("energy_nj", "energy"),
                    ("end_to_end_p99_us", "p99 at half the peak"),
                )
            ),
            events=200_000,
            loads=(0.5,),
            conclude=_gains,
        ),
    ),
)
