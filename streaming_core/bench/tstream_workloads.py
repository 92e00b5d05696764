"""The workloads of TStream's evaluation: the paper's parameters (sections VI-A and VI-B)."""

from __future__ import annotations

from typing import Any

# Sizes of records as in the paper, and partitions that a transaction chooses at random. Other parameters have the
# paper's values by default.
PAPER: dict[str, dict[str, Any]] = {
    "gs": {"payload": 15, "mp_partitions": "any"},
    "sl": {"payload": 11, "mp_partitions": "any"},
    "ob": {"payload": 4, "mp_partitions": "any"},
    "tp": {"payload": 8, "separate": True},
    "fx": {},
}
# Punctuation intervals, and the microbenchmark of S-Store in gs.
INTERVALS = (10, 100, 500, 1000)
THREE_WRITES = {"length": 3, "read_ratio": 0.0, "mp_ratio": 0.0, "summation": False, "post_compute": 0}
