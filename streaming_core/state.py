"""Final state as one value: the digest over all shared tables and keyed states."""

from __future__ import annotations

import pyarrow as pa

from streaming_core.digest import MASK, digest_table, format_digest


def state_digest(tables: dict[str, pa.Table]) -> str:
    """`<rows>:<16 hex>` over tables by name; each table's digest is weighed by its place among the sorted names, so
    that rows cannot change places between tables unnoticed."""
    rows, total = 0, 0
    for place, name in enumerate(sorted(tables)):
        table = tables[name]
        count, value = digest_table(table, ("key",) if "key" in table.column_names else ())
        rows += count
        total = (total + value * (2 * place + 3)) & MASK
    return format_digest(rows, total)
