"""The claims of TStream's evaluation. Its figures have no numbers to read off, so the numbers are those of its text."""

from __future__ import annotations

from streaming_core.bench.claims import ANY, NODES, Claim

APPS = ("gs", "sl", "ob", "tp")
BASELINES = ("lock", "mvlk", "pat")
PUBLISHED, BOUND = "tstream", "no_lock"
DEFAULT = "owners"  # our own scheme
INTERVAL, SHORT = 500, 10  # punctuation intervals: the paper's, and the shortest of figure 12
SHARE = 250  # events of a batch of `owners`, per thread
# The intervals at which schemes are compared: the paper's, and the batches of `owners`.
COMPARED = (INTERVAL, *(SHARE * threads for threads in range(1, 257)))
WAITING = ("sync", "lock")
P99 = "end_to_end_p99_us"
BY = ("app", "punctuation")

SCHEMES = (
    Claim(
        "TStream has a higher throughput than the next best scheme, least in SL, whose chains depend on each other.",
        "section VI-C, figure 8; abstract",
        {"way": PUBLISHED, "punctuation": COMPARED},
        {"way": DEFAULT},
        {"way": BASELINES},
        by=BY,
        paper={"gs": 3.8, "sl": 1.7, "ob": 3.3, "tp": 4.8},
    ),
    Claim(
        "No-Lock, which bounds the schemes with locks, is still far above TStream.",
        "section VI-C, figure 8",
        {"way": PUBLISHED, "punctuation": INTERVAL},
        over={"way": BOUND},
        expects="<",
    ),
    *(
        Claim(
            f"PAT is {word} than LOCK{' and MVLK' * (len(others) > 1)} in {', '.join(apps).upper()}.",
            "section VI-C, figure 8",
            {"way": "pat", "app": apps, "punctuation": INTERVAL},
            over={"way": others},
            expects=expects,
        )
        for word, apps, others, expects in (
            ("faster", ("gs", "sl", "ob"), ("lock", "mvlk"), ">"),
            ("slower", ("tp",), ("lock",), "<"),
        )
    ),
    Claim(
        "TStream's throughput grows with the punctuation interval, from 10 to 500.",
        "section VI-F, figure 12a",
        {"way": PUBLISHED, "punctuation": INTERVAL},
        over={"punctuation": SHORT},
    ),
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
        {"way": PUBLISHED, "punctuation": INTERVAL},
        over={"way": ANY, "pool": ("shared_everything", "shared_per_socket")},
        needs=NODES,
    ),
)
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
LATENCY = (
    Claim(
        "At interval 500, TStream's p99 latency is low. The paper names no rate.",
        "section VI-F, figure 12b",
        {"way": PUBLISHED},
        {"way": DEFAULT},
        column=P99,
        expects="<=",
        paper=630.0,
    ),
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
