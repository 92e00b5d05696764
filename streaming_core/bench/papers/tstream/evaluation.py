"""The claims of TStream's evaluation. Its figures have no numbers to read off, so the numbers are those of its text."""

from __future__ import annotations

from streaming_core.bench.claims import NODES, Claim

APPS = ("gs", "sl", "ob", "tp")
BASELINES = ("lock", "mvlk", "pat")
PUBLISHED, BOUND = "tstream", "no_lock"
# Our schemes: the default, and the one for workloads that gain nothing from threads.
DEFAULT = "owners"
OURS = (DEFAULT, "serial")
# The steps of `tstream`, as its costs name them. All but the rounds and the barriers are compute mode.
STEPS = ("planning", "decomposition", "insertion", "rounds", "barriers", "post_processing", "delivery")
COMPUTE_MODE = ("planning", "decomposition", "insertion", "post_processing", "delivery")
WAITING = ("sync", "lock")
P99 = "end_to_end_p99_us"

CONTENTION = (
    Claim(
        "With many cores, access to shared state takes most of PAT's time in toll processing.",
        "section I, figure 1",
        {"way": "pat"},
        {"way": DEFAULT},
        column=WAITING,
        expects=">=",
        paper=0.5,
    ),
)
SCHEMES = (
    Claim(
        "TStream has a higher throughput than the next best scheme, least in SL, whose chains depend on each other.",
        "section VI-C, figure 8; abstract",
        {"way": PUBLISHED, "app": APPS},
        {"way": OURS, "app": APPS},
        {"way": BASELINES},
        paper={"gs": 3.8, "sl": 1.7, "ob": 3.3, "tp": 4.8},
    ),
    Claim(
        "No-Lock, the upper bound, is still far above TStream.",
        "section VI-C, figure 8",
        {"way": PUBLISHED, "app": APPS},
        {"way": OURS, "app": APPS},
        {"way": BOUND},
        expects="<",
    ),
    *(
        Claim(
            f"PAT is {word} than LOCK{' and MVLK' * (len(others) > 1)} in {', '.join(apps).upper()}.",
            "section VI-C, figure 8",
            {"way": "pat", "app": apps},
            {"way": DEFAULT, "app": apps},
            {"way": others},
            expects=expects,
        )
        for word, apps, others, expects in (
            ("faster", ("gs", "sl", "ob"), ("lock", "mvlk"), ">"),
            ("slower", ("tp",), ("lock",), "<"),
        )
    ),
    Claim(
        "On one core, the applications spend different shares of their time in compute mode.",
        "section VI-A",
        {"way": PUBLISHED, "app": APPS, "threads": 1},
        column=COMPUTE_MODE,
        expects="=",
        paper={"gs": 0.13, "sl": 0.29, "ob": 0.22, "tp": 0.39},
    ),
)
BREAKDOWN = (
    Claim(
        "LOCK, MVLK and PAT spend most of their time on synchronisation.",
        "section VI-D, figure 9",
        {"way": BASELINES},
        {"way": OURS},
        column=WAITING,
        by=("way",),
        expects=">=",
        paper=0.8,
    ),
    Claim(
        "No-Lock spends more than half of its time on Others, above all on index look-ups.",
        "section VI-D, figure 9",
        {"way": BOUND},
        {"way": DEFAULT},
        column=("other",),
        expects=">=",
        paper=0.5,
    ),
    *(
        Claim(
            f"MVLK {says}.",
            "section VI-D, figure 9",
            {"way": "mvlk"},
            over={"way": "lock"},
            column=parts,
            expects=expects,
        )
        for says, parts, expects in (
            ("waits less than LOCK, because reads do not wait for writes", WAITING, "<"),
            ("takes more of Others than LOCK, for its counters", ("other",), ">"),
        )
    ),
)


def _along(
    says: str, figure: str, ways: str | tuple[str, ...], name: str, ends: tuple[float, float], expects: str
) -> Claim:
    """Return a claim on the throughput at one value of a parameter, relative to another value."""
    low, high = ends
    return Claim(
        says,
        f"section VI-E, figure {figure}",
        {"way": ways, name: high},
        {"way": DEFAULT, name: high} if ways == PUBLISHED else None,
        {name: low},
        by=("way",),
        expects=expects,
    )


def _partitions(figure: str, name: str, what: str, ends: tuple[float, float]) -> tuple[Claim, ...]:
    return (
        _along(f"PAT gets slower with {what}.", figure, "pat", name, ends, "<"),
        _along(f"TStream does not get slower with {what}.", figure, PUBLISHED, name, ends, ">="),
    )


PARTITION_RATIO = (
    *_partitions("10a", "mp_ratio", "more multi-partition transactions", (0.0, 1.0)),
    Claim(
        "Even without multi-partition transactions, PAT is slower than TStream.",
        "section VI-E, figure 10a",
        {"way": PUBLISHED, "mp_ratio": 0.0},
        {"way": DEFAULT, "mp_ratio": 0.0},
        {"way": "pat"},
    ),
)
PARTITION_LENGTH = _partitions("10b", "mp_len", "longer multi-partition transactions", (1, 10))
READS = (
    _along("The share of reads has little effect on LOCK, MVLK, PAT.", "11a", BASELINES, "read_ratio", (0.0, 1.0), "="),
    _along(
        "TStream gets slower with more reads, as it copies values.", "11a", PUBLISHED, "read_ratio", (0.0, 0.5), "<"
    ),
    _along(
        "With reads only, TStream is faster than with half of them.", "11a", PUBLISHED, "read_ratio", (0.5, 1.0), ">"
    ),
)
SKEW = (
    _along("LOCK, MVLK and PAT get slower with more skew.", "11b", BASELINES, "theta", (0.0, 1.0), "<"),
    _along("TStream tolerates skew.", "11b", PUBLISHED, "theta", (0.0, 1.0), ">="),
)
PUNCTUATION = (
    Claim(
        "TStream's throughput grows with the punctuation interval, from 10 to 1,000.",
        "section VI-F, figure 12a",
        {"scheme": PUBLISHED, "punctuation": 1000},
        over={"punctuation": 10},
    ),
    Claim(
        "At interval 500, TStream's p99 latency is low. The paper names no rate.",
        "section VI-F, figure 12b",
        {"scheme": PUBLISHED, "punctuation": 500},
        {"scheme": DEFAULT},
        column=P99,
        expects="<=",
        paper=630.0,
    ),
    Claim(
        "Throughput and latency are no clear trade-off: the latency at interval 1,000 is as at 10.",
        "section VI-F, figure 12b",
        {"scheme": PUBLISHED, "punctuation": 1000},
        over={"punctuation": 10},
        column=P99,
        expects="=",
    ),
)
LATENCY = (
    Claim(
        "At interval 500, TStream's p99 latency is comparable to that of the best other scheme, or lower.",
        "section VI-F, figure 13; abstract",
        {"way": PUBLISHED},
        {"way": DEFAULT},
        {"way": BASELINES},
        column=P99,
        expects="<=",
    ),
)
POOLS = (
    Claim(
        "Work stealing makes shared pools 1.6 to 7.0 times as fast.",
        "section VI-F, figure 14",
        {"scheme": PUBLISHED, "stealing": True},
        over={"stealing": False},
        by=("app", "pool"),
        paper=1.6,
        needs=NODES,
    ),
    Claim(
        "Shared-nothing is the fastest pool in all applications.",
        "section VI-F, figure 14",
        {"scheme": PUBLISHED, "pool": "shared_nothing"},
        {"scheme": DEFAULT},
        {"scheme": PUBLISHED, "pool": ("shared_everything", "shared_per_socket")},
        needs=NODES,
    ),
)
S_STORE = (
    Claim(
        "On one core, with three writes per transaction, PAT is three times as fast as S-Store.",
        "section VI-G",
        {"way": "pat"},
        {"way": DEFAULT},
        paper=11_700.0,
        needs="S-Store",
    ),
)
FUSION = (
    Claim(
        "One joint operator is faster than operators that share state, as it saves their communication.",
        "section V",
        {"way": PUBLISHED, "form": "joint"},
        {"way": DEFAULT, "form": "joint"},
        {"form": "separate"},
        column="reports_per_s",
    ),
)
KEYED = (
    Claim(
        "Concurrent access to shared state is faster than state that is partitioned by key.",
        "section II-A, figure 2",
        {"app": "tp", "way": PUBLISHED},
        {"app": "tp", "way": DEFAULT},
        {"app": "tpk", "way": "affinity"},
        by=(),
    ),
)
INDEX = (
    Claim(
        "Index look-ups cause most of the time that No-Lock spends on Others.",
        "section VI-D, figure 9",
        {"way": BOUND, "index": "hash"},
        {"way": DEFAULT, "index": "hash"},
        {"index": "dense"},
        column=("other",),
        paper=2.0,
    ),
)
