"""The results of a run as rows of the raw table `expectations`, which the mart `quality` and the next runs read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

ROW_COUNT = "expect_table_row_count_to_be_between"
NON_NULL = "expect_column_proportion_of_non_null_values_to_be_between"
ROWS_THAT_BREAK = "unexpected_rows_expectation"
LONGEST = 400  # characters of an observed value


def rows_of(data_set: str, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a data set.

    Args:
        data_set: Its name.
        results: The results of its expectations, as Great Expectations writes them as JSON.
    """
    counts = [
        result["result"].get("observed_value")
        for result in results
        if result["expectation_config"]["type"] == ROW_COUNT
    ]
    return [_row(data_set, number, result, counts[0] if counts else None) for number, result in enumerate(results)]


def error_of(result: dict[str, Any]) -> str | None:
    """Why an expectation could not be evaluated; None if it was."""
    info = result.get("exception_info") or {}
    each = [info] if "exception_message" in info else [entry for entry in info.values() if isinstance(entry, dict)]
    return next(
        (" ".join(entry["exception_message"].split()) for entry in each if entry.get("exception_message")), None
    )


def _row(data_set: str, number: int, outcome: dict[str, Any], rows: int | None) -> dict[str, Any]:
    config, result = outcome["expectation_config"], outcome["result"]
    kwargs = config["kwargs"]
    observed = result.get("observed_value", result.get("unexpected_count"))
    return {
        "data_set": data_set,
        "number": number,
        "column": kwargs.get("column"),
        "expectation": config["type"],
        "rule": config.get("description") or config["type"],
        "severity": config["severity"],
        "success": bool(outcome["success"]),
        "observed": None if observed is None else json.dumps(observed, default=str)[:LONGEST],
        "observed_value": _number(observed),
        "low": _number(kwargs.get("min_value")),
        "high": _number(kwargs.get("max_value")),
        "unexpected_share": _share(config["type"], result, rows),
        "error": error_of(outcome),
    }


def _share(kind: str, result: dict[str, Any], rows: int | None) -> float | None:
    """The share of the rows that break the rule; None if the result does not say it."""
    observed = _number(result.get("observed_value"))
    if kind == NON_NULL and observed is not None:
        return 1 - observed
    if kind == ROWS_THAT_BREAK and observed is not None and rows:
        return min(1.0, observed / rows)  # a query may count one row more than once
    percent = _number(result.get("unexpected_percent"))
    return None if percent is None else percent / 100


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
