"""The experiments of Viper (section 5): order kept by the channels, or by merge operators in front of every replica.

Injectors deal the events one by one; each operator's replicas run on the threads in turn. The paper has as many sinks
as replicas; here one sink takes all outputs in order, and its merge counts. Of its text only what the abstract says was
at hand to be quoted as a claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from streaming_core.bench.race import Row, faster
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.run.energy import Meter
from streaming_core.run.way import RunSpec

APPS = ("pos_rep", "new_seg")  # named as their only operator is
COUNTS = (1, 2, 4, 6)
CHANNELS = ("gate", "merge_sort")

CHEAPER = Claim(
    "Determinism enforced in the communication layer, and not by dedicated sorting operators, serves throughput and "
    "energy efficiency.",
    "Viper: Communication-Layer Determinism and Scaling in Low-Latency Stream Processing, abstract (Euro-Par 2017)",
)


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
            ways.append(RunSpec(app=app, executor="pinned", channel=channel, threads=threads, plan=plan))
        heats.append(Heat(app, {}, ways))
    notes = [
        "With one injector and one instance there is nothing to merge, and the two channels are the same.",
        "Latencies are from an event's arrival.",
    ]
    if why := Meter().why:
        notes.append(f"No energy: {why}.")
    return heats, notes


def _gains(rows: list[Row]) -> Iterator[str]:
    """Injectors and instances of each row, and its chart; what gate gains over merge_sort, where both merge."""
    cells = {}
    for row in rows:
        if "plan" in row:
            row["injectors"], row["instances"] = len(row["plan"]["source"]), len(row["plan"][row["app"]])
            cells[row["app"], row["injectors"], row["instances"], row["channel"]] = row
        else:  # the loop, which has neither
            row["injectors"] = row["instances"] = 1
        row["chart"] = f"{row['app']}, {row['injectors']} injector{'s' * (row['injectors'] > 1)}"
    for app in APPS:
        gains = {}
        for injectors, instances in itertools.product(COUNTS, COUNTS):
            gate, sort = (cells.get((app, injectors, instances, channel)) for channel in CHANNELS)
            if max(injectors, instances) > 1 and gate and sort and gate["result"] == sort["result"] == "equal":
                gains[injectors, instances] = faster(gate, sort), sort["cpu_ns"] / gate["cpu_ns"]
        for at in [(2, 2), max(gains, key=lambda cell: gains[cell][0], default=(2, 2))]:
            if at in gains:
                yield (
                    f"{app}, {at[0]} injectors and {at[1]} instances: gate has {gains[at][0]:.2f} times the "
                    f"throughput of merge_sort, which takes {gains[at][1]:.2f} times its CPU time per event"
                )


SUITE = Suite(
    "viper",
    "Viper: determinism in the channel, or by merge operators",
    (
        Experiment(
            "configurations",
            "section 5",
            "Injectors by operator instances: channels that merge, and merge operators",
            (CHEAPER,),
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
