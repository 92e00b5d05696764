"""Compares two tables in files, in a Spark task. The result is JSON: the tables are equal, or these rows are wrong.

The comparison takes constant memory. If a row is missing, extra or in another place, Spark joins the two tables
(validate_outputs).
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from streaming_core.data import comparison
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.regression.warehouse import VIOLATION_CAP

BATCH_ROWS = 65_536


def compare(check: str, expected: Parts, actual: Parts, multiset: list[str] | None = None) -> dict:
    """Compare two tables without a join.

    Args:
        check: Name of the check, `outputs` or `state:<table>`.
        expected: The oracle's table.
        actual: The cell's table.
        multiset: Compare these columns, with rows in any order.

    Returns:
        A mapping that fits into JSON:

        - `expected_rows`, `actual_rows`: numbers of rows;
        - `faults`: phrases about files that are missing or unreadable, and about wrong columns;
        - `counts`: wrong rows by kind, or None if only a join can tell;
        - `rows`: the first wrong rows, {kind, seq, sub, expected, actual};
        - `out_of_order`, `misplaced`: the number of rows that were delivered out of order, and the first of them.
    """
    faults: list[str] = []
    facts: dict = {"expected_rows": 0, "actual_rows": 0, "faults": faults, "counts": {}, "rows": []}
    facts |= {"out_of_order": 0, "misplaced": []}
    if not (expected.paths and actual.paths):
        faults.append("the oracle has no such table" if actual.paths else "the cell wrote no file")
    try:
        facts |= {"expected_rows": expected.rows, "actual_rows": actual.rows}
        if faults:
            return facts | {"counts": {"missing": expected.rows, "extra": actual.rows}}
        for wrong in comparison.columns(check, expected.schema, actual.schema, multiset):
            faults += wrong.words()
        if faults:
            return facts
        names = multiset or expected.schema.names
        result: comparison.Differences | None
        if multiset:
            result = comparison.in_buckets(check, expected, actual, names, VIOLATION_CAP)
        else:
            result = comparison.in_slices(check, expected, actual, names, VIOLATION_CAP)
        if result is None:
            facts["counts"] = None
            if "seq" in names:
                facts["out_of_order"], facts["misplaced"] = misplaced(expected, actual)
            return facts

        def whole(row: dict, rest: dict | None) -> dict | None:
            """The columns of a row on one side. In a multiset, the row has all its columns."""
            columns = row if multiset else row | (rest or {})
            return None if rest is None else {name: columns[name] for name in names}

        facts["counts"] = result.counts
        for difference in result.differences:
            sides = whole(difference.row, difference.expected), whole(difference.row, difference.actual)
            facts["rows"].append(
                evidence(difference.kind, difference.row.get("seq"), difference.row.get("sub"), *sides)
            )
    except BadInput as error:
        faults.append(str(error))
    return facts


def misplaced(expected: Parts, actual: Parts) -> tuple[int, list[dict]]:
    """Find rows that were delivered directly after a row with a larger (seq, sub).

    Returns:
        Their number, and the first of them, each with the oracle's row at the same position.
    """
    count = 0
    rows: list[dict] = []
    sides = comparison.late_rows(actual.slices(BATCH_ROWS)), expected.slices(BATCH_ROWS)
    for late, theirs in zip_longest(*sides):
        if late is None:
            break
        ours, numbers, _ = late
        count += len(numbers)
        for at in numbers[: VIOLATION_CAP - len(rows)].tolist():
            row, other = (side.slice(at, 1).to_pylist() if side is not None else [] for side in (ours, theirs))
            rows.append(evidence("out_of_order", row[0]["seq"], row[0]["sub"], other[0] if other else None, row[0]))
    return count, rows


def evidence(kind: str, seq: int | None, sub: int | None, expected: dict | None, actual: dict | None) -> dict:
    """A violation, without its event."""
    return {"kind": kind, "seq": seq, "sub": sub, "expected": row_json(expected), "actual": row_json(actual)}


def row_json(row: dict | None) -> str | None:
    """The canonical JSON of a row: sorted keys, text as text."""
    if row is None:
        return None
    return json.dumps(comparison.plain(row), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def spark_row(text: str | None, schema: pa.Schema) -> dict | None:
    """Decode a row that Spark wrote as JSON, with bytes in base64."""
    if text is None:
        return None
    kinds = {column.name: column.type for column in schema}
    return {name: _decoded(value, kinds[name]) for name, value in json.loads(text, parse_float=Decimal).items()}


def _decoded(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return value
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    if pa.types.is_decimal(kind):
        return Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
    if isinstance(value, Decimal):
        return float(value)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_decoded(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {f.name: _decoded(value.get(f.name), f.type) for f in (kind.field(i) for i in range(kind.num_fields))}
    return value
