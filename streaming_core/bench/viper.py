"""The experiments of Viper (section 4): order kept by the channels, or by merge operators before every replica.

Injectors deal the events one by one. The replicas of each operator run on the threads in turn. The published variants
are the communication layer (channel `scalegate`) and the operator layer (`merge_sort`, whose merge operators have their
own threads). Channel `gate` is ours. The paper has as many sinks as replicas. Here one sink takes all outputs in order,
and its merge counts.

Outputs are counted, not digested, because replicas can digest in parallel only if the channels merge. The digest is not
part of the comparison. The warm-up round digests the outputs, and the check against the loop uses that digest. Waiting
threads park, so processor time is the cost of an event.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from streaming_core.bench.ratios import Row, compare
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.run.energy import Meter
from streaming_core.run.way import Pinned

APPS = ("pos_rep", "new_seg")  # each has the name of its only operator
COUNTS = (1, 2, 4, 6)
CHANNELS = ("scalegate", "merge_sort", "gate")  # Viper's, its baseline, and ours

PAPER = "Viper: Communication-Layer Determinism and Scaling in Low-Latency Stream Processing (Euro-Par 2017)"

CHEAPER = Claim(
    "Determinism in the communication layer, instead of in dedicated sort operators, improves throughput and energy "
    "efficiency.",
    f"{PAPER}, abstract",
)
POS_REP = Claim(
    "Application pos_rep with several injectors: more than 500,000 tuples/s at 90 W with determinism in the channels. "
    "About 400,000 at up to 140 W with merge operators. With one injector: 650,000 at 60 W, and less than 600,000 at "
    "about 100 W.",
    f"{PAPER}, section 4.1, figure 4a (16 cores, Apache Storm)",
)
NEW_SEG = Claim(
    "new_seg: about 100,000 tuples/s more with determinism in the channels, at 100 W or less instead of more than 140 "
    "W.",
    f"{PAPER}, section 4.2, figure 4b",
)
AT_MOST = Claim("Up to 70 % more throughput, and half the energy.", f"{PAPER}, section 6")


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
        "With one injector and one instance there is nothing to merge, so all channels do the same.",
        "merge_sort has an additional thread per instance if there are several injectors, and another one if there are "
        "several instances.",
        "Outputs are only counted in measured rounds. The warm-up round digests them, and the check uses that digest.",
        "Latencies start at the arrival of an event.",
    ]
    if why := Meter().why:
        notes.append(f"Energy was not measured: {why}.")
    return heats, notes


def _gains(rows: list[Row]) -> Iterator[str]:
    """Adds injectors, instances and chart to each row; compares channels with merge_sort where all merge."""
    cells = {}
    for row in rows:
        if "plan" in row:
            row["injectors"], row["instances"] = len(row["plan"]["source"]), len(row["plan"][row["app"]])
            cells[row["app"], row["injectors"], row["instances"], row["channel"]] = row
        else:  # the loop has neither
            row["injectors"] = row["instances"] = 1
        row["chart"] = f"{row['app']}, {row['injectors']} injector{'s' * (row['injectors'] > 1)}"
    for app, channel in itertools.product(APPS, (channel for channel in CHANNELS if channel != "merge_sort")):
        gains = {}
        for injectors, instances in itertools.product(COUNTS, COUNTS):
            own, sort = (cells.get((app, injectors, instances, of)) for of in (channel, "merge_sort"))
            if max(injectors, instances) > 1 and own and sort and own["result"] == sort["result"] == "equal":
                gains[injectors, instances] = compare(own, sort), compare(sort, own, "cpu_ns")
        for at in dict.fromkeys([(2, 2), max(gains, key=lambda cell: gains[cell][0].median, default=(2, 2))]):
            if at in gains:
                throughput, cost = gains[at]
                yield (
                    f"{app}, {at[0]} injectors and {at[1]} instances: throughput of {channel} over merge_sort: "
                    f"{throughput.text}; CPU time per event of merge_sort over {channel}: {cost.text}"
                )


SUITE = Suite(
    "viper",
    "Viper: determinism in the channels, or by merge operators",
    (
        Experiment(
            "configurations",
            "figure 4",
            "Channels that merge, and merge operators, by injectors and instances",
            (CHEAPER, POS_REP, NEW_SEG, AT_MOST),
            _configurations,
            tuple(
                Plot("instances", y, title, "chart", ("channel",), loop=False)
                for y, title in (
                    ("events_per_s", "throughput"),
                    ("cpu_ns", "processor time per event"),
                    ("energy_nj", "energy per event"),
                    ("end_to_end_p99_us", "p99 latency from arrival, at half the slowest peak rate"),
                )
            ),
            loads=(0.5,),
            conclude=_gains,
            needs="cores",
        ),
    ),
)
