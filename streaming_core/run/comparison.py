"""Whether a run produced exactly what the oracle says: every row, column, bit, the order, and every final table.

Outputs are compared in delivered order, a slice at a time; only when rows are missing, added or out of order are both
sides loaded and matched by (seq, sub), so that the difference can be named. Floats are compared by their bits.

No rows on either side is equal, with the same columns and digests: it is what an empty stream makes. (That a regression
has compared nothing is for jobs/validate_outputs.py to say.) No rows on one side only is a difference.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from streaming_core import interruption
from streaming_core.data.arrow import to_arrow, to_numpy
from streaming_core.errors import BadInput
from streaming_core.language.record import NAN_BITS
from streaming_core.oracle import oracle
from streaming_core.run import recording
from streaming_core.run.report import RunReport

SHOWN = 10  # differences shown per table; all are counted
_SLICE = 1 << 17


@dataclass(frozen=True)
class Difference:
    """One difference. `kind`: value, missing (a row the oracle has), extra (one it has not), order, column, table or
    digest. `row`: {"seq", "sub"} of an output, {"key"} of a final table, or {"position"}."""

    table: str
    kind: str
    row: dict[str, Any]
    column: str | None = None
    expected: Any = None
    actual: Any = None

    def text(self) -> str:
        """One line."""
        where = ", ".join(f"{name} {_shown(value)}" for name, value in self.row.items())
        place = f"{self.table}: {where}" if where else self.table
        match self.kind:
            case "missing":
                return f"{place}: the row is missing, expected {_shown(self.expected)}"
            case "extra":
                return f"{place}: the row should not be there: {_shown(self.actual)}"
            case "order":
                return f"{place}: out of order, delivered after {_shown(self.expected)}"
            case "value":
                expected, actual = _apart(self.expected, self.actual)
                return f"{place}: {self.column}: expected {expected}, got {actual}"
        what = f"{place}: column {self.column}" if self.column else place
        return f"{what}: expected {_shown(self.expected)}, got {_shown(self.actual)}"


@dataclass
class Diff:
    """The outcome. `reason` is set when the two cannot be compared; `operator` when they are recordings of what it
    takes; `counts` is differing rows by table."""

    run: str
    oracle: str
    reason: str | None = None
    operator: str | None = None
    outputs: int = 0
    states: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 equal, 1 different, 2 not comparable."""
        return 2 if self.reason else 1 if self.differences else 0

    def text(self) -> str:
        """For people."""
        if self.reason:
            return f"not comparable: {self.reason}"
        compared = f"{self.outputs} outputs and {self.states} rows of final state"
        if self.operator:
            compared = f"{self.outputs} rows that {self.operator} takes"
        if not self.differences:
            return f"equal: {compared}{'' if self.outputs + self.states else ' on either side'}"
        lines = [f"different: {', '.join(f'{n} in {table}' for table, n in self.counts.items())} ({compared} expected)"]
        lines += [f"  {d.text()}" for d in self.differences]
        if (hidden := sum(self.counts.values()) - len(self.differences)) > 0:
            lines.append(f"  and {hidden} more")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For machines: JSON values only."""
        return {
            "verdict": ("equal", "different", "not_comparable")[self.exit_code],
            "reason": self.reason,
            "run": self.run,
            "oracle": self.oracle,
            "operator": self.operator,
            "outputs": self.outputs,
            "states": self.states,
            "counts": self.counts,
            "differences": [
                {name: _plain(value) for name, value in vars(d).items() if value is not None} for d in self.differences
            ],
        }

    def add(self, found: list[Difference], count: int) -> None:
        """Counts differences of one table and keeps the first ones."""
        if count:
            table = found[0].table
            self.counts[table] = self.counts.get(table, 0) + count
            kept = sum(d.table == table for d in self.differences)
            self.differences += found[: max(0, SHOWN - kept)]


def diff(run_dir: Path | str, oracle_dir: Path | str) -> Diff:
    """Compares the run in `run_dir` (an attempt's folder) with the oracle's result in `oracle_dir`; or what an operator
    takes, recorded from a run, with a recording of the oracle's.

    Never raises for what the folders hold: what cannot be compared has a reason and exit code 2.
    """
    run_dir, oracle_dir = Path(run_dir), Path(oracle_dir)
    found = Diff(str(run_dir), str(oracle_dir))
    try:
        if recording.is_recording(run_dir) or recording.is_recording(oracle_dir):
            _recordings(found, run_dir, oracle_dir)
            return found
        manifest = oracle.read_manifest(oracle_dir)
        report = _report(run_dir)
        found.reason = _incomparable(run_dir, report, manifest)
        if found.reason is None:
            agrees = manifest["unordered"] if report.spec.get("order") == "none" else None
            if agrees is None:
                _rows(found, "outputs", run_dir, oracle_dir)
            else:
                _unordered(found, run_dir, oracle_dir, agrees["columns"])
            _states(found, run_dir, oracle_dir, agrees and agrees["states"])
            _samples(found, report, agrees or manifest, ordered=agrees is None)
    except BadInput as error:
        found.reason = str(error)
    except MemoryError:  # one of Arrow's errors, and nothing the file can help
        raise
    except (OSError, pa.ArrowException) as error:
        found.reason = f"a file cannot be read: {' '.join(str(error).split())}"
    return found


def compare(run_dir: Path, oracle_dir: Path) -> Diff:
    """Compares the outputs, in order, and the final states in two folders of which it is known that they may be."""
    found = Diff(str(run_dir), str(oracle_dir))
    _rows(found, "outputs", run_dir, oracle_dir)
    _states(found, run_dir, oracle_dir)
    return found


def _recordings(found: Diff, run_dir: Path, oracle_dir: Path) -> None:
    ours, theirs = recording.read_manifest(run_dir), recording.read_manifest(oracle_dir)
    for what, one, other in (
        *((key, ours[key], theirs[key]) for key in ("app", "operator", "code_digest")),
        *((f"workload {key}", ours["workload"][key], theirs["workload"][key]) for key in ("content_digest", "params")),
    ):
        if one != other:
            found.reason = f"different recordings: {what} is {one} of the one, {other} of the other"
            return
    found.operator = ours["operator"]
    _rows(found, "rows", run_dir, oracle_dir)


def _report(run_dir: Path) -> RunReport:
    path = run_dir / "report.json"
    try:
        return RunReport.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(f"no run at {run_dir}: report.json is missing, so the run did not finish") from None
    except ValidationError as error:
        raise BadInput(f"{path} is not a run report: {error.error_count()} faults") from None


def _incomparable(run_dir: Path, report: RunReport, manifest: dict) -> str | None:
    if report.app != manifest["app"]:
        return f"the run is of application {report.app}, the oracle of {manifest['app']}"
    for key in ("content_digest", "params"):
        ours, theirs = report.workload.get(key), manifest["workload"].get(key)
        if ours != theirs:
            return f"different workloads: {key} is {ours} of the run, {theirs} of the oracle"
    if report.code_digest != manifest["code_digest"]:
        return f"the application changed: code {report.code_digest} of the run, {manifest['code_digest']} of the oracle"
    if report.is_bound:
        return "the run is a reference bound (no_lock), not a result"
    if report.spec.get("order") == "none" and not manifest.get("unordered"):
        return "the run kept no order, and the oracle does not know what agrees without"
    if not (run_dir / "outputs").is_dir():
        return "the run kept no outputs: run it with --sink parquet"
    return None


# --- outputs ---------------------------------------------------------------------------------------------------------


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def _slices(paths: list[Path], columns: list[str]) -> Iterator[pa.Table]:
    """The rows in order, `_SLICE` at a time whatever the files and row groups, but for the last."""
    pending, rows = [], 0
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_SLICE, columns=columns):
                interruption.check()
                pending.append(batch)
                rows += batch.num_rows
                while rows >= _SLICE:
                    table = pa.Table.from_batches(pending)
                    yield table.slice(0, _SLICE)
                    pending, rows = table.slice(_SLICE).to_batches(), rows - _SLICE
    if rows:
        yield pa.Table.from_batches(pending)


def _table(paths: list[Path], columns: list[str] | None = None) -> pa.Table:
    """All rows of one or more files, which may have none; nothing is made of the names of the folders above."""
    tables = []
    for path in paths:
        with pq.ParquetFile(path) as file:
            table = file.read(columns)
        tables.append(table.select([name for name in columns or table.column_names if name in table.column_names]))
    return pa.concat_tables(tables)


def _rows(found: Diff, name: str, run_dir: Path, oracle_dir: Path) -> None:
    """Compares the rows in the folders of this name, in order."""
    ours, theirs = _parts(run_dir / name), _parts(oracle_dir / name)
    if not theirs:
        raise BadInput(f"{oracle_dir}: {name}/ is empty")
    found.outputs = sum(pq.read_metadata(path).num_rows for path in theirs)
    rows = sum(pq.read_metadata(path).num_rows for path in ours)
    if not ours:
        found.add(*_no_file(name, found.outputs))
        return
    columns = _columns(found, name, pq.read_schema(theirs[0]), pq.read_schema(ours[0]), ("seq", "sub"))
    if columns is None:
        return
    if rows == found.outputs:
        collected: list[tuple[list[Difference], int]] = []
        for expected, actual in zip(_slices(theirs, columns), _slices(ours, columns), strict=True):
            if _differing(expected["seq"], actual["seq"]).any() or _differing(expected["sub"], actual["sub"]).any():
                break
            collected.append(_values(name, expected, actual, ("seq", "sub")))
        else:
            for differences, count in collected:
                found.add(differences, count)
            return
    # Rows are missing, added or out of order: match them by (seq, sub).
    expected, actual = (_table(paths, columns) for paths in (theirs, ours))
    _matched(found, name, expected, actual, ("seq", "sub"))


def _no_file(name: str, rows: int) -> tuple[list[Difference], int]:
    """A run that ended has a file of these rows, even of none: it tells the columns."""
    return [Difference(name, "table", {}, None, f"{rows} rows", "no file")], max(1, rows)


def _unordered(found: Diff, run_dir: Path, oracle_dir: Path, columns: list[str]) -> None:
    """Compares these columns as multisets: how often each row is there, on either side."""
    ours, theirs = (
        [_table([path], columns) for path in _parts(folder / "outputs")] for folder in (run_dir, oracle_dir)
    )
    if not theirs:
        raise BadInput(f"oracle result {oracle_dir}: outputs/ is empty")
    found.outputs = sum(table.num_rows for table in theirs)
    if not ours:
        found.add(*_no_file("outputs", found.outputs))
        return
    if _columns(found, "outputs", theirs[0].schema, ours[0].schema, ()) != columns:
        return
    rows = pa.concat_tables([*theirs, *ours])
    sign = np.repeat([1, -1], [found.outputs, rows.num_rows - found.outputs])
    counted = rows.append_column("", pa.array(sign)).group_by(columns).aggregate([("", "sum")])
    for kind, side in (("missing", pc.greater), ("extra", pc.less)):
        wrong = counted.filter(side(counted["_sum"], 0)).sort_by([(name, "ascending") for name in columns])
        shown = []
        for position in range(min(wrong.num_rows, SHOWN)):
            row = _row(wrong, position, tuple(columns))
            times = {"times": abs(wrong["_sum"][position].as_py())}
            shown.append(Difference("outputs", kind, row, None, *((times,) if kind == "missing" else (None, times))))
        found.add(shown, int(np.abs(to_numpy(_whole(wrong["_sum"]))).sum()))


def _columns(found: Diff, table: str, expected: pa.Schema, actual: pa.Schema, keys: tuple) -> list[str] | None:
    """Columns both have with the same type; None when rows cannot even be named. Differences are noted."""
    faults, same = [], []
    for column in expected:
        kind = actual.field(column.name).type if column.name in actual.names else None
        if kind is None or not _same_type(kind, column.type):
            wanted = f"type {column.type}"
            given = f"type {kind}" if kind else "no such column"
            faults.append(Difference(table, "column", {}, column.name, wanted, given))
        else:
            same.append(column.name)
    for name in actual.names:
        if name not in expected.names:
            faults.append(Difference(table, "column", {}, name, "no such column", f"type {actual.field(name).type}"))
    found.add(faults, len(faults))
    return same if all(key in same for key in keys) else None


def _same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Equal but for the names and nullability of items in lists."""
    if pa.types.is_fixed_size_list(one) and pa.types.is_fixed_size_list(other):
        return one.list_size == other.list_size and _same_type(one.value_type, other.value_type)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _same_type(one.value_type, other.value_type)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return [f.name for f in one] == [f.name for f in other] and all(
            _same_type(a.type, b.type) for a, b in zip(one, other, strict=True)
        )
    return one == other


def _values(table: str, expected: pa.Table, actual: pa.Table, keys: tuple[str, ...]) -> tuple[list[Difference], int]:
    """Differences of rows that belong together, row by row; and how many rows differ."""
    rows, columns = np.zeros(expected.num_rows, bool), {}
    for name in expected.column_names:
        wrong = _differing(expected[name], actual[name])
        if wrong.any():
            rows |= wrong
            columns[name] = wrong
    found = []
    for position in np.flatnonzero(rows)[:SHOWN].tolist():
        row = {key: expected[key][position].as_py() for key in keys} or {"position": position}
        for name, wrong in columns.items():
            if wrong[position]:
                values = expected[name][position].as_py(), actual[name][position].as_py()
                found.append(Difference(table, "value", row, name, *values))
    return found, int(rows.sum())


def _matched(found: Diff, table: str, expected: pa.Table, actual: pa.Table, keys: tuple[str, ...]) -> None:
    """Differences of two tables whose rows do not line up: order, missing and extra rows, then values."""
    codes, ours = _codes([expected[k] for k in keys], [actual[k] for k in keys])
    late = np.flatnonzero(ours[1:] < ours[:-1]) + 1
    shown = []
    for position in late[:SHOWN].tolist():
        row, before = ({k: actual[k][p].as_py() for k in keys} for p in (position, position - 1))
        shown.append(Difference(table, "order", row, None, before))
    found.add(shown, len(late))
    order = np.argsort(ours, kind="stable")
    ours = ours[order]
    place = np.searchsorted(ours, codes)
    there = place < len(ours)
    there[there] = ours[place[there]] == codes[there]
    missing = np.flatnonzero(~there)
    shown = [
        Difference(table, "missing", _row(expected, p, keys), None, _rest(expected, p, keys))
        for p in missing[:SHOWN].tolist()
    ]
    found.add(shown, len(missing))
    again = np.zeros(len(ours), bool)
    again[1:] = ours[1:] == ours[:-1]
    known = np.isin(ours, codes)
    extra = order[again | ~known]
    shown = [
        Difference(table, "extra", _row(actual, p, keys), None, None, _rest(actual, p, keys))
        for p in extra[:SHOWN].tolist()
    ]
    found.add(shown, len(extra))
    common = np.flatnonzero(there)
    found.add(*_values(table, expected.take(common), actual.take(order[place[common]]), keys))


def _codes(expected: list, actual: list) -> tuple[np.ndarray, np.ndarray]:
    """One number per row on either side, in the order of the keys."""
    n = len(expected[0])
    total: np.ndarray | None = None
    for one, other in zip(expected, actual, strict=True):
        both = pa.chunked_array([*one.chunks, *other.chunks], one.type).combine_chunks()
        # Dense ranks: the order of the values, equal values alike.
        ordered = to_numpy(pc.rank(both, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
        total = ordered if total is None else total * (int(ordered.max(initial=0)) + 1) + ordered
    assert total is not None  # there is a key
    return total[:n], total[n:]


def _row(table: pa.Table, position: int, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: table[key][position].as_py() for key in keys}


def _rest(table: pa.Table, position: int, keys: tuple[str, ...]) -> dict[str, Any]:
    return {name: table[name][position].as_py() for name in table.column_names if name not in keys}


def _differing(expected: Any, actual: Any) -> np.ndarray:
    """Per row whether the values differ, bit by bit. Both have the same type and length; a null differs from all."""
    expected, actual = _whole(expected), _whole(actual)
    kind, n = expected.type, len(expected)
    nulls = np.zeros(n, bool)
    if actual.null_count:
        nulls = to_numpy(actual.is_null())
        if pa.types.is_nested(kind):
            return nulls | True
        actual = actual.fill_null(b"" if pa.types.is_binary(kind) else False if pa.types.is_boolean(kind) else 0)
    if pa.types.is_struct(kind):
        for one, other in zip(expected.flatten(), actual.flatten(), strict=True):
            nulls = nulls | _differing(one, other)
        return nulls
    if pa.types.is_fixed_size_list(kind):
        items = _differing(expected.flatten(), actual.flatten())
        return nulls | items.reshape(n, kind.list_size).any(axis=1)
    if pa.types.is_list(kind):
        lengths, others = (to_numpy(pc.list_value_length(a)) for a in (expected, actual))
        wrong = lengths != others
        alike = to_arrow(~wrong)
        items = _differing(expected.filter(alike).flatten(), actual.filter(alike).flatten())
        owner = np.repeat(np.flatnonzero(~wrong), lengths[~wrong])
        wrong[owner[items]] = True
        return wrong
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        wrong = nulls if expected.equals(actual) else to_numpy(pc.not_equal(expected, actual))
        return nulls | wrong
    if pa.types.is_boolean(kind):
        expected, actual = expected.cast(pa.uint8()), actual.cast(pa.uint8())
    one, other = to_numpy(expected), to_numpy(actual)
    word = np.dtype(f"u{one.dtype.itemsize}")
    return nulls | (np.ascontiguousarray(one).view(word) != np.ascontiguousarray(other).view(word))


def _whole(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return column.chunk(0)
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


# --- state and passes ------------------------------------------------------------------------------------------------


def _states(found: Diff, run_dir: Path, oracle_dir: Path, only: list[str] | None = None) -> None:
    theirs = {path.stem: path for path in (oracle_dir / "state").glob("*.parquet")}
    ours = {path.stem: path for path in (run_dir / "state").glob("*.parquet")}
    for name in sorted(theirs.keys() | ours.keys() if only is None else only):
        table = f"state {name}"
        if name not in theirs or name not in ours:
            words = ("no such table", "a table") if name not in theirs else ("a table", "no file")
            found.add([Difference(table, "table", {}, None, *words)], 1)
            continue
        expected, actual = _table([theirs[name]]), _table([ours[name]])
        found.states += expected.num_rows
        keys = ("key",) if "key" in expected.column_names else ()
        columns = _columns(found, table, expected.schema, actual.schema, keys)
        if columns is None:
            continue
        expected, actual = expected.select(columns), actual.select(columns)
        if expected.num_rows == actual.num_rows and not any(_differing(expected[k], actual[k]).any() for k in keys):
            found.add(*_values(table, expected, actual, keys))
        elif keys:
            _matched(found, table, expected, actual, keys)
        else:
            rows = (f"{expected.num_rows} rows", f"{actual.num_rows} rows")
            found.add([Difference(table, "table", {}, None, *rows)], 1)


def _samples(found: Diff, report: RunReport, manifest: dict, ordered: bool) -> None:
    """Every measured pass must have had the oracle's outputs, in order if there is one; and the state its digest."""
    for sample in report.samples:
        where = {"pass": f"{sample.kind} {sample.repetition}"}
        if sample.digest != manifest["output_digest"]:
            wrong = Difference("passes", "digest", where, "digest", manifest["output_digest"], sample.digest)
            found.add([wrong], 1)
        if ordered and not sample.in_order:
            found.add([Difference("passes", "digest", where, "order", "in order", "out of order")], 1)
    if report.state_digest != manifest["state_digest"]:
        wrong = Difference("passes", "digest", {}, "state_digest", manifest["state_digest"], report.state_digest)
        found.add([wrong], 1)


def _shown(value: Any) -> str:
    """A value as people read it, cut when it is long."""
    if isinstance(value, dict):
        text = ", ".join(f"{name} {_shown(v)}" for name, v in value.items())
    elif isinstance(value, list):
        text = f"[{', '.join(map(_shown, value))}]"
    elif isinstance(value, float):
        text = _double(value)
    elif isinstance(value, bytes):
        text = repr(value.decode()) if value.isascii() else repr(value)
    else:
        text = str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and not np.isfinite(value):
        return _double(value)
    return value


def _double(value: float) -> str:
    """A double's text, by which it can be told from any other: of a NaN that should not be there, the bits too."""
    [bits] = struct.unpack("<Q", struct.pack("<d", value))
    return f"nan (bits 0x{bits:016x})" if value != value and bits != NAN_BITS else repr(value)


def _apart(expected: Any, actual: Any) -> tuple[str, str]:
    """Two values that differ as texts that do: where only what is cut off does, the first items that differ."""
    texts = _shown(expected), _shown(actual)
    if texts[0] != texts[1] or not isinstance(expected, list) or not isinstance(actual, list):
        return texts
    for i, (one, other) in enumerate(zip(expected, actual, strict=False)):
        if _shown(one) != _shown(other):
            return f"{_shown(one)} at [{i}]", f"{_shown(other)} at [{i}]"
    return f"{len(expected)} items", f"{len(actual)} items"
