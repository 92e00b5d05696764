"""Ten nights of results of Great Expectations in the mart `quality`.

The import `orders` grows by a percent a night. In the eighth night it has a third of the rows, and in the last night
every tenth row has no value. In the ninth night a critical rule of `outputs_gs` does not hold. `outputs_wc` begins in
the sixth night.
"""

import random
from collections.abc import Sequence

from expectations.anomaly import usual_range
from expectations.history import NON_NULL, ROW_COUNT, ROWS_THAT_BREAK
from reports import times
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import EXPECTATIONS
from tests.reports import past_runs

BEFORE = [f"202512{day:02d}T020000Z-000000{day}" for day in range(27, 32)]
NIGHTS = [*BEFORE, *past_runs.RUN_IDS]
ORDERS = "import_orders"
RULE = "Only nullable values are null, each is in the range of its type, and seq is the number of an event"


def figures() -> list[tuple[int, float]]:
    """The rows of the import and the share of those with a value, by night."""
    draw = random.Random(7)
    nights = [
        (round(120_000 * 1.01**night * draw.uniform(0.995, 1.005)), 1 - draw.uniform(0, 0.004)) for night in range(10)
    ]
    nights[7] = nights[7][0] // 3, nights[7][1]
    nights[9] = nights[9][0], 0.9
    return nights


def rows(run_ids: Sequence[str] = NIGHTS) -> list[dict]:
    """The rows of the mart, for ten runs."""
    nights, mart = figures(), []
    for night, run_id in enumerate(run_ids):
        count, share = nights[night]
        earlier = [night for night, _ in nights[:night]], [night for _, night in nights[:night]]
        usual = usual_range(earlier[0], 0.01 * count) or (0.0, None)
        usual_share = usual_range(earlier[1], 0.005) or (0.0, 1.0)
        usual_share = max(0.0, usual_share[0]), min(1.0, usual_share[1])
        sets: dict[str, list[dict]] = {
            ORDERS: [
                _row(ROW_COUNT, "The number of rows is as in the last nights", "warning", count, usual),
                _row(
                    NON_NULL,
                    "The share of rows that were not set aside is as in the last nights",
                    "warning",
                    share,
                    usual_share,
                    "seq",
                ),
            ],
            "outputs_gs": _outputs(100_000, night == 8),
            "cells": [
                _row(ROW_COUNT, "The run has cells", "critical", 24, (1.0, None)),
                _row(ROWS_THAT_BREAK, "Each cell has one row", "critical", 0),
            ],
        }
        if night >= 5:
            sets["outputs_wc"] = _outputs(412_000, False)
        for name, of_set in sets.items():
            about = {"run_id": run_id, "run_at": times.of_run(run_id), "month": f"{run_id[:4]}-{run_id[4:6]}"}
            mart += [row | about | {"data_set": name, "number": number} for number, row in enumerate(of_set)]
    return mart


def _outputs(count: int, is_broken: bool) -> list[dict]:
    return [
        _row(ROW_COUNT, "The cells have outputs", "critical", count, (1.0, None)),
        _row(ROWS_THAT_BREAK, RULE, "critical", 3 if is_broken else 0, (None, 0.0)),
        _row(NON_NULL, "No value is null", "info", 1 - 3 / count * is_broken, (1.0, None), "balance"),
    ]


def _row(
    kind: str, rule: str, severity: str, value: float, usual: tuple = (None, None), column: str | None = None
) -> dict:
    low, high = usual
    row = dict.fromkeys(EXPECTATIONS.names[2:]) | {"expectation": kind, "rule": rule, "severity": severity}
    row |= {"observed": str(value), "observed_value": float(value), "low": low, "high": high, "column": column}
    return row | {"success": (low is None or value >= low) and (high is None or value <= high)}


def make(home: Home, run_ids: Sequence[str] = NIGHTS) -> None:
    """Write the mart, for ten runs."""
    past_runs.mart(home, "quality", rows(run_ids))
