"""What a Spark task says of two tables in files, as JSON: that they are equal, or which rows are not right.

That takes constant memory as long as rows line up. Where one is missing, extra or elsewhere, Spark joins the two tables
(validate_outputs).
"""

from __future__ import annotations

import base64
import json
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core.data import comparison
from streaming_core.data.arrow import to_numpy
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.regression.warehouse import VIOLATION_CAP

BATCH_ROWS = 65_536


def compare(check: str, expected: Parts, actual: Parts, multiset: list[str] | None = None) -> dict:
    """What can be said about two tables without joining them.

    Args:
        multiset: compare these columns, rows in any order; both tables are held in memory for that.

    Returns:
        JSON-able: `expected_rows`, `actual_rows`; `faults` (phrases: no file, one that cannot be read, wrong columns);
        `counts`, the rows that are not right by kind, or None if that takes a join, and `rows`, the first of them
        ({kind, seq, sub, expected, actual}); of the order of delivery, likewise, `out_of_order` and `misplaced`.
    """
    faults: list[str] = []
    facts: dict = {"expected_rows": 0, "actual_rows": 0, "faults": faults, "counts": {}, "rows": []}
    facts |= {"out_of_order": 0, "misplaced": []}
    if not (expected.paths and actual.paths):
        faults.append("the oracle has no such table" if actual.paths else "no file was written")
    try:
        facts |= {"expected_rows": expected.rows, "actual_rows": actual.rows}
        if faults:
            return facts | {"counts": {"missing": expected.rows, "extra": actual.rows}}
        for wrong in comparison.columns(check, expected.schema, actual.schema):
            faults += wrong.words()
        if faults:
            return facts
        names = multiset or expected.schema.names
        found: comparison.Found | None
        if multiset:
            found = comparison.multisets(check, expected.read(names), actual.read(names), VIOLATION_CAP)
        else:
            found = comparison.in_slices(check, expected, actual, names, VIOLATION_CAP)
        if found is None:
            facts["counts"] = None
            if "seq" in names:
                facts["out_of_order"], facts["misplaced"] = misplaced(expected, actual)
            return facts

        def whole(row: dict, rest: dict | None) -> dict | None:
            """A row on one side; of a multiset, what tells it is the row."""
            columns = row if multiset else row | (rest or {})
            return None if rest is None else {name: columns[name] for name in names}

        facts["counts"] = found.counts
        for told in found.differences:
            sides = whole(told.row, told.expected), whole(told.row, told.actual)
            facts["rows"].append(evidence(told.kind, told.row.get("seq"), told.row.get("sub"), *sides))
    except BadInput as error:
        faults.append(str(error))
    return facts


def misplaced(expected: Parts, actual: Parts) -> tuple[int, list[dict]]:
    """Rows delivered directly behind one that is later in (seq, sub): their number, and the first of them, each beside
    what the oracle delivers at its position. There is none where rows line up with the oracle's."""
    count = 0
    rows: list[dict] = []
    last = [np.iinfo(np.int64).min] * 2
    for ours, theirs in zip_longest(actual.slices(BATCH_ROWS), expected.slices(BATCH_ROWS)):
        if ours is None:
            break
        seq, sub = (np.append(before, to_numpy(ours[name])) for before, name in zip(last, ("seq", "sub"), strict=True))
        last = [seq[-1], sub[-1]]
        late = np.flatnonzero(comparison.is_late(seq, sub)) - 1
        count += len(late)
        for at in late[: VIOLATION_CAP - len(rows)].tolist():
            row, wanted = (side.slice(at, 1).to_pylist() if side is not None else [] for side in (ours, theirs))
            rows.append(evidence("out_of_order", row[0]["seq"], row[0]["sub"], wanted[0] if wanted else None, row[0]))
    return count, rows


def evidence(kind: str, seq: int | None, sub: int | None, expected: dict | None, actual: dict | None) -> dict:
    """A violation but for its event."""
    return {"kind": kind, "seq": seq, "sub": sub, "expected": row_json(expected), "actual": row_json(actual)}


def row_json(row: dict | None) -> str | None:
    """Canonical JSON of a row for people: sorted keys, text as text."""
    if row is None:
        return None
    return json.dumps(comparison.plain(row), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def spark_row(text: str | None, schema: pa.Schema) -> dict | None:
    """A row that Spark wrote as JSON; bytes it writes in base64."""
    if text is None:
        return None
    kinds = {column.name: column.type for column in schema}
    return {name: _decoded(value, kinds[name]) for name, value in json.loads(text).items()}


def _decoded(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return value
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_decoded(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {f.name: _decoded(value.get(f.name), f.type) for f in (kind.field(i) for i in range(kind.num_fields))}
    return value
