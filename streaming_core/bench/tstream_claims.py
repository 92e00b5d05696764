"""The claims of TStream's evaluation, and what we measured beside each.

`numbers` are from the paper's text; its figures have no numbers to read off. `published` is about the scheme `tstream`
and the paper's baselines, `ours` about `owners` and `serial`.
"""

from __future__ import annotations

from streaming_core.bench.suite import Claim
from streaming_core.bench.tstream_sentences import (
    BASELINES,
    BOUND,
    DEFAULT,
    OURS,
    PUBLISHED,
    WAITING,
    Text,
    against,
    along,
    at,
    below_bound,
    beside_loop,
    best_pool,
    by_app,
    compute_mode,
    figures,
    host_cores,
    host_sockets,
    indexed,
    joint,
    keyed,
    over_baselines,
    over_each,
    overhead,
    parts,
    stealing,
    together,
    useful_on_one,
    with_dependencies,
)
from streaming_core.bench.tstream_workloads import INTERVALS, SL_RECORD

CONTENTION = (
    Claim(
        "As cores are added, access to shared state soon takes most of PAT's time in toll processing.",
        "section I, figure 1",
        published=overhead("pat", PUBLISHED),
        ours=overhead(DEFAULT),
        host=host_cores,
    ),
)
FASTER = (
    Claim(
        "With many cores, TStream has a higher throughput than the next best scheme in all applications.",
        "section VI-C, figure 8; abstract",
        "3.8 times PAT on GS, 1.7 times PAT on SL, 3.3 times PAT on OB, 4.8 times LOCK on TP",
        published=over_baselines((PUBLISHED,)),
        ours=over_baselines(OURS),
        host=host_cores,
    ),
    Claim(
        "No-Lock, the upper bound, is still far above TStream.",
        "section VI-C, figure 8",
        published=below_bound((PUBLISHED,)),
        ours=below_bound(OURS),
        host=host_cores,
    ),
    Claim(
        "Where chains depend on each other, as in SL, TStream gains least.",
        "section VI-C, figure 8",
        "1.7 times on SL; 3.3 to 4.8 times on the others",
        published=with_dependencies((PUBLISHED,)),
        ours=with_dependencies(OURS),
        host=host_cores,
    ),
    Claim(
        "PAT is mostly faster than LOCK and MVLK. In TP it is slower than LOCK, because 100 keys contend for the same "
        "partitions.",
        "section VI-C, figure 8",
        published=over_each("pat", ("lock", "mvlk")),
        ours=over_each(DEFAULT, ("pat",)),
        host=host_cores,
    ),
)
COMPUTE_MODE = Claim(
    "On one core, the applications spend different shares of their time in compute mode.",
    "section VI-A",
    "TP 39 %, SL 29 %, OB 22 %, GS 13 %",
    published=compute_mode,
    ours=useful_on_one(DEFAULT),
    host="Published: all steps but rounds. Ours has no modes on one thread: its share is useful work.",
)
BREAKDOWN = (
    Claim(
        "LOCK, MVLK and PAT spend most of their time on synchronisation, on one socket and on four.",
        "section VI-D, figure 9",
        "about 80 %",
        published=parts(BASELINES, *WAITING),
        ours=parts(OURS, *WAITING),
        host=host_sockets,
    ),
    Claim(
        "No-Lock spends more than half of its time on Others, above all on index look-ups.",
        "section VI-D, figure 9",
        "more than 50 %",
        published=parts((BOUND,), "other", result="bound"),
        ours=parts(OURS, "other"),
        host="The tables here have no index: the key of a row is its number. Experiment `index` has indexes.",
    ),
    Claim(
        "MVLK waits less than LOCK, because reads do not wait for writes. Its counters take more of Others.",
        "section VI-D, figure 9",
        published=together(
            lambda rows: f"synchronisation: {parts(('mvlk', 'lock'), *WAITING)(rows)}",
            lambda rows: f"others: {parts(('mvlk', 'lock'), 'other')(rows)}",
        ),
        ours=parts(OURS, "other"),
        host=host_sockets,
    ),
    Claim(
        "TStream waits a lot in SL too, because its chains depend on each other.",
        "section VI-D, figure 9",
        published=parts((PUBLISHED,), "sync"),
        ours=parts(OURS, "sync"),
        host=host_sockets,
    ),
)


def partitions(name: str, low: float, high: float) -> tuple[Claim, ...]:
    """Return the claims on multi-partition transactions."""
    figure = "10a" if name == "mp_ratio" else "10b"
    source = f"section VI-E, figure {figure}"
    falls = Claim(
        "PAT gets slower with more multi-partition transactions, or longer ones. TStream does not.",
        source,
        published=along(name, low, high, ("pat", PUBLISHED, "lock")),
        ours=along(name, low, high, (DEFAULT,)),
        host=host_cores,
    )
    slower = Claim(
        "Even without multi-partition transactions, PAT is slower than TStream.",
        source,
        published=at(name, low, PUBLISHED, "pat"),
        ours=at(name, low, DEFAULT, "pat"),
        host=host_cores,
    )
    return (falls, slower) if name == "mp_ratio" else (falls,)


READS = (
    Claim(
        "The share of reads has little effect on LOCK, MVLK and PAT, because synchronisation takes most of their time.",
        "section VI-E, figure 11a",
        published=along("read_ratio", 0.0, 1.0, BASELINES),
        ours=along("read_ratio", 0.0, 1.0, (DEFAULT,)),
        host=host_cores,
    ),
    Claim(
        "TStream gets slower with more reads, because it copies values to events. With reads only it is a little "
        "faster than with a mixture.",
        "section VI-E, figure 11a",
        published=together(along("read_ratio", 0.0, 0.5, (PUBLISHED,)), along("read_ratio", 0.5, 1.0, (PUBLISHED,))),
        ours=together(along("read_ratio", 0.0, 0.5, (DEFAULT,)), along("read_ratio", 0.5, 1.0, (DEFAULT,))),
        host=host_cores,
    ),
)
SKEW = (
    Claim(
        "LOCK, MVLK and PAT get slower with more skew. TStream tolerates it, as a batch still offers parallel work.",
        "section VI-E, figure 11b",
        published=along("theta", 0.0, 1.0, (*BASELINES, PUBLISHED)),
        ours=along("theta", 0.0, 1.0, (DEFAULT,)),
        host=host_cores,
    ),
)


def interval_500(way: str, column: str) -> Text:
    """List a column of a way at interval 500, for each application."""
    return by_app(figures((way,), column, punctuation=500))


PUNCTUATION = (
    Claim(
        "TStream's throughput mostly grows with the punctuation interval, most of all in TP with its 100 segments.",
        "section VI-F, figure 12a",
        published=by_app(along("punctuation", INTERVALS[0], INTERVALS[-1], (PUBLISHED,))),
        ours=by_app(against(DEFAULT, PUBLISHED, punctuation=500)),
        host=host_cores,
    ),
    Claim(
        "At interval 500, TStream's p99 latency is low.",
        "section VI-F, figure 12b",
        "0.23 to 0.63 ms",
        published=interval_500(PUBLISHED, "end_to_end_p99_us"),
        ours=interval_500(DEFAULT, "end_to_end_p99_us"),
        host="Latency starts at an event's intended arrival, at half of the peak rate of the slowest interval.",
    ),
    Claim(
        "There is no clear trade-off: latency grows with the interval only where throughput no longer does.",
        "section VI-F, figure 12b",
        "GS: from interval 250",
        published=by_app(along("punctuation", INTERVALS[0], INTERVALS[-1], (PUBLISHED,), "end_to_end_p99_us")),
        ours=by_app(against(DEFAULT, PUBLISHED, "end_to_end_p99_us", punctuation=500)),
        host="All intervals have the same rate, so a longer interval takes longer to fill. The paper names no rate.",
    ),
    Claim(
        "Versions of rows take little memory: up to the transactions of an interval times their records.",
        "section IV-C2",
        "200 KB for SL: 500 transactions, 4 records, 100 bytes",
        published=f"at most {500 * 4 * SL_RECORD / 1000:.0f} KB by the same formula, with records of {SL_RECORD} bytes",
        ours="owners keeps no versions: it applies the accesses of a row in event order",
        host="The memory of versions is computed, not measured.",
    ),
)
LATENCY = (
    Claim(
        "At interval 500, TStream's p99 latency is comparable to that of the other schemes, and sometimes lower.",
        "section VI-F, figure 13; abstract",
        published=over_baselines((PUBLISHED,), "end_to_end_p99_us"),
        ours=over_baselines((DEFAULT,), "end_to_end_p99_us"),
        host="All schemes of an application have the same rate. The paper names no rate.",
    ),
)
NUMA = (
    Claim(
        "Work stealing makes shared pools much faster.",
        "section VI-F, figure 14",
        "1.6 to 7.0 times",
        published=by_app(stealing(PUBLISHED)),
        ours="owners has no need of it: its default pool is shared_nothing",
        host=host_sockets,
    ),
    Claim(
        "Shared-nothing is the fastest configuration in all applications.",
        "section VI-F, figure 14",
        published=lambda rows: "; ".join(best_pool(rows)),
        ours=by_app(against(DEFAULT, PUBLISHED)),
        host=host_sockets,
    ),
)
S_STORE = (
    Claim(
        "On one core, with three writes per transaction, TStream's PAT is about three times as fast as S-Store.",
        "section VI-G",
        "11.7 K events/s against 3.6 K events/s",
        published=together(beside_loop("pat"), against("pat", PUBLISHED)),
        ours=beside_loop(DEFAULT),
        host="S-Store does not run here. The loop is the yardstick instead.",
    ),
)
FUSION = (
    Claim(
        "Operators that share state are fused into one joint operator, which saves the communication between them.",
        "section V",
        published=joint(PUBLISHED),
        ours=joint(DEFAULT),
        host="Both forms run in one operator. They differ in transactions per report: three, or one.",
    ),
)
KEYED = (
    Claim(
        "State that is partitioned by key needs buffers and sorting, and copies of state; concurrent access does not.",
        "section II-A, figure 2",
        published=keyed(PUBLISHED),
        ours=keyed(DEFAULT),
        host="Lockstep's keyed operators keep event order by themselves, so their application sorts nothing.",
    ),
)
INDEX = (
    Claim(
        "Index look-ups cause most of the time that No-Lock spends on Others.",
        "section VI-D, figure 9",
        "Others take more than 50 %",
        published=indexed(BOUND, PUBLISHED),
        ours=indexed(DEFAULT),
        host="Tables have 10,000 rows, so their index fits the caches of this machine.",
    ),
)
