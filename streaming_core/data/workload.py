"""Workloads: the generated events of one application, under an address, checked whenever they are read.

A workload is a folder. It holds events/part-*.parquet, one part per chunk, with ascending seq over all parts. The
writer adds manifest.json last, so a folder without it is no workload.

Three digests identify a workload:

- The address covers the request: application, parameters, events, seed, and the code of the generator.
- An import belongs to no application. Its address covers the records that it serves (`records`) and its content.
- The content digest covers the rows, and does not depend on the chunks.
- The digest of the manifest covers the whole manifest. Readers check it first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypedDict, TypeVar, cast

import numpy as np
import pyarrow as pa

from streaming_core import generator, interruption, storage
from streaming_core.apps import registry
from streaming_core.data.arrow import nothing, of_units, to_arrow, to_numpy, unit_type
from streaming_core.data.comparison import columns, unequal
from streaming_core.data.digest import add, digest_table, format_digest
from streaming_core.data.parts import Parts, part_path, write_file
from streaming_core.errors import BadInput, refusal
from streaming_core.generator.merge import merge
from streaming_core.language.acceptance import accept
from streaming_core.language.application import App
from streaming_core.language.sources import TAG, Sources
from streaming_core.language.tables import called
from streaming_core.storage import digest_of

CHUNK = 250_000  # events in a part
_SLICE = 1 << 15  # events of one call of a generator, so that its data stays in the cache
_AGAIN = 100  # events of a slice that the generator makes a second time
T = TypeVar("T")
Room = Callable[[int], int | None]  # after so many rows, the most rows of the next block; None: any number


class Part(TypedDict):
    """A file of a workload, relative to its folder."""

    file: str
    rows: int


class NewPart(Part):
    """A part that `write_part` has written, with its number and the digest of its rows."""

    index: int
    digest: str


class Records(TypedDict):
    """What an import must share with an application: the fields of its events, its streams, and their time."""

    fields: dict[str, str]
    streams: list[str]
    time: str | None
    sorted: bool


class _Sealed(TypedDict):
    address: str
    app: str | None  # None for an import, which serves each application with the same records
    params: dict[str, Any]
    events: int
    seed: int | None  # None for events that no generator made, as the version of the generator
    content_digest: str
    code_digest: str | None
    generator: str | None
    parts: list[Part]
    repeatable: bool
    digest: str


class Manifest(_Sealed, total=False):
    """The manifest of a workload. Imported events also have their records and origin, those of a live run `start`."""

    records: Records
    imported: dict[str, Any]
    start: int
    end: int


def _app(app: App | str) -> App:
    return app if isinstance(app, App) else registry.load(app)


def address(app: App | str, params: dict[str, Any], events: int, seed: int) -> str:
    """16 hex digits: digest of the request (parameters with their defaults) and of the code that generates.

    Raises:
        BadInput: The application is unknown or has no generator, or a parameter, an operator, `events` or `seed` is
            invalid.
    """
    app = _app(app)
    app.check_generator()
    values = app.bind(params)
    accept(app, values)
    if not 0 <= events < 1 << 40:
        raise BadInput(f"events must be between 0 and {(1 << 40) - 1}, got {events}")
    if not 0 <= seed < 1 << 63:
        raise BadInput(f"seed must be between 0 and 2^63-1, got {seed}")
    return digest_of(
        {
            "app": app.name,
            "params": values,
            "events": events,
            "seed": seed,
            "code": [registry.code_digest(app), generator.version()],
        }
    )


def schema(app: App | str, params: dict[str, Any]) -> pa.Schema:
    """Columns of the events: seq, then the event record's fields; nulls only in nullable ones."""
    app = _app(app)
    return app.event.resolve(app.bind(params)).arrow(("seq",))


def chunks(events: int) -> list[tuple[int, int]]:
    """(start, stop) of each part. A workload without events has one part too, because a part holds the columns."""
    return [(start, min(start + CHUNK, events)) for start in range(0, max(1, events), CHUNK)]


def generate_chunk(app: App | str, params: dict[str, Any], events: int, seed: int, start: int, stop: int) -> pa.Table:
    """Events start..stop-1 as a table of `schema`. The chunks of a workload do not change its rows.

    Raises:
        BadInput: A parameter is invalid, or the generator does not keep to its event record.
    """
    app = _app(app)
    params = app.bind(params)
    expected = schema(app, params)
    if not 0 <= start <= stop <= events:
        raise BadInput(f"the chunk must lie between 0 and {events}, got {start} to {stop}")
    batches, last = [], None
    for at in range(start, stop, _SLICE):
        interruption.check()
        upto = min(at + _SLICE, stop)
        batches.append(pa.RecordBatch.from_arrays(_arrays(app, params, seed, at, upto, expected), schema=expected))
        if "ts" in expected.names and app.delay is None:
            ts = to_numpy(batches[-1].column("ts"))
            if (ts[1:] < ts[:-1]).any() or (last is not None and ts[0] < last):
                raise BadInput(
                    f"generator of {app.name}: ts must not decrease, but does in events {at} to {upto - 1}; "
                    "declare app.source(..., delay=...) if it may"
                )
            last = ts[-1]
    return pa.Table.from_batches(batches, expected)


def reproducible_chunk(
    app: App | str, params: dict[str, Any], events: int, seed: int, start: int, stop: int
) -> pa.Table:
    """As `generate_chunk`, but run the generator again and compare the events.

    The second time it makes a part of the events alone. An event that depends on its slice then differs. The third time
    it makes all events in the same slices. An event that depends on more than parameters, seed and number then differs.

    Raises:
        BadInput: As `generate_chunk`; or the events differ, so that their results would not be comparable.
    """
    app = _app(app)
    events_once = generate_chunk(app, params, events, seed, start, stop)
    at = (start + stop) // 2
    for first, last in ((at, min(at + _AGAIN, stop)), (start, stop)):
        again = generate_chunk(app, params, events, seed, first, last)
        for name in again.column_names:
            part = events_once[name].slice(first - start, again.num_rows)
            wrong = np.flatnonzero(unequal(part, again[name])).tolist()  # as texts, NaN is NaN
            at_row = next((row for row in wrong if repr(part[row].as_py()) != repr(again[name][row].as_py())), None)
            if at_row is not None:
                raise BadInput(
                    f"generator of {app.name}: field {name} of event {first + at_row} differs when the generator makes "
                    f"events {first} to {last - 1} again. An event must depend only on the seed and its number; "
                    "use Draws of streaming_core.generator"
                )
    return events_once


def _arrays(app: App, params: dict[str, Any], seed: int, start: int, stop: int, expected: pa.Schema) -> list[pa.Array]:
    """The columns of events start..stop-1."""
    if app.streams is not None:
        return _merged(app, app.streams, params, seed, start, stop, expected)
    result = called(f"generator of {app.name}", app.generator, params, seed, start, stop)
    if not isinstance(result, dict):
        kind = type(result).__name__
        raise BadInput(f"generator of {app.name}: must return a dict of columns by name, got a {kind}")
    columns = {"seq": np.arange(start, stop)} | result
    if set(columns) != set(expected.names):
        fields = ", ".join(expected.names[1:])
        raise BadInput(f"generator of {app.name}: must return columns {fields}, got {', '.join(sorted(result))}")
    return [_column(columns[field.name], field, stop - start, app.name) for field in expected]


def _merged(
    app: App, streams: Sources, params: dict[str, Any], seed: int, start: int, stop: int, expected: pa.Schema
) -> list[pa.Array]:
    """The columns of events start..stop-1, which are rows of several streams."""
    merged = merge(app.name, streams.names, app.generators, app.delay is None)
    blocks, order = merged.rows(params, seed, start, stop)
    fields = list(expected)[1:]  # after seq
    parts: list[dict[str, pa.Array]] = []  # the rows of each stream, as columns of the events
    for number, (block, rows) in enumerate(blocks):
        name, places = streams.names[number], streams.columns[number]
        if not rows:
            continue
        if set(block) != set(places):
            columns = f"must return columns {', '.join(places)}, got {', '.join(sorted(block))}"
            raise BadInput(f"generator of {app.name}: stream {name}: {columns}")
        values = {places[field]: column for field, column in block.items()} | {TAG: np.full(rows, number)}
        parts.append(
            {
                field.name: _column(values[field.name], field, rows, f"{app.name}: stream {name}")
                if field.name in values
                else pa.repeat(absent(field), rows)
                for field in fields
            }
        )
    chosen = to_arrow(order)
    return [
        to_arrow(np.arange(start, stop)),
        *(pa.concat_arrays([part[field.name] for part in parts]).take(chosen) for field in fields),
    ]


def absent(field: pa.Field) -> pa.Scalar:
    """The value of a column in the rows of other streams."""
    return pa.scalar(None, field.type) if field.nullable else nothing(field.type)


def _column(values: Any, field: pa.Field, rows: int, app: str) -> pa.Array:
    """Convert a generator's column to Arrow and the declared type; reject values that do not fit.

    Its decimals are numbers of units.
    """
    kind = unit_type(field.type)
    try:
        if isinstance(values, pa.Array):
            column = values if values.type in (kind, field.type) else values.cast(kind)
        elif pa.types.is_fixed_size_list(field.type):
            values = np.asarray(values)
            if values.shape != (rows, field.type.list_size):
                raise BadInput(f"the shape must be {(rows, field.type.list_size)}, got {values.shape}")
            items = to_arrow(values.reshape(-1)).cast(kind.value_type)
            column = pa.FixedSizeListArray.from_arrays(items, type=kind)
        elif isinstance(values, np.ndarray) and values.dtype.kind != "O":
            column = to_arrow(values).cast(kind)
        else:
            column = pa.array(values, kind)
        column = column if column.type == field.type else of_units(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, BadInput, ValueError) as error:
        raise BadInput(f"generator of {app}: column {field.name}: {error}") from None
    if len(column) != rows or (column.null_count and not field.nullable):
        counts = f"got {len(column)} values with {column.null_count} nulls"
        raise BadInput(f"generator of {app}: column {field.name}: needs {rows} values without nulls, {counts}")
    return column


# --- writing ---------------------------------------------------------------------------------------------------------


def write_part(directory: Path, index: int, table: pa.Table) -> NewPart:
    """Write part `index` below `directory`, and return its entry for `seal`. Processes can write in any order."""
    path = part_path(Path(directory) / "events", index)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, table, use_dictionary=False, row_group_size=_SLICE * 2)
    rows, value = digest_table(table, ("seq",))
    return {"index": index, "file": f"events/{path.name}", "rows": rows, "digest": f"{value:016x}"}


def seal(
    directory: Path,
    app: App | str,
    params: dict[str, Any],
    events: int,
    seed: int,
    parts: Iterable[NewPart],
    repeatable: bool = False,
) -> Manifest:
    """Write the manifest of the parts in `directory`, and return it.

    Args:
        directory: The folder of the workload.
        app: The application.
        params: Its parameters.
        events: The number of events requested.
        seed: The seed requested.
        parts: The entries that `write_part` returned.
        repeatable: Whether `reproducible_chunk` made and checked all parts. The manifest says so.

    Raises:
        BadInput: the parts are not the chunks of `events`.
    """
    app = _app(app)
    params = app.bind(params)
    parts, (rows, value) = _joined(directory, parts)
    if rows != events:
        raise BadInput(f"workload {directory}: needs {events} events, but its parts hold {rows}")
    about = {
        "address": address(app, params, events, seed),
        "seed": seed,
        "generator": generator.version(),
        "repeatable": repeatable,
    }
    return _seal(Path(directory), app, params, parts, (rows, value), about)


def described(field: pa.Field) -> str:
    """The type of a column in words."""
    return f"{field.type} or null" if field.nullable else str(field.type)


def records(app: App, params: dict[str, Any]) -> Records:
    """What an import must share with an application: the fields of its events, its streams, and their time."""
    return {
        "fields": {field.name: described(field) for field in list(schema(app, params))[1:]},
        "streams": list(app.streams.names) if app.streams is not None else [],
        "time": app.time,
        "sorted": app.delay is None,
    }


def seal_import(
    directory: Path, app: App, params: dict[str, Any], parts: Iterable[NewPart], imported: dict[str, Any]
) -> Manifest:
    """Write the manifest of imported events, and return it. They serve each application with the same records.

    Args:
        directory: The folder of the workload.
        app: An application with these records.
        params: Its parameters, which may be sizes of arrays.
        parts: The entries that `write_part` returned.
        imported: The origin of the events, for the manifest's `imported`.
    """
    parts, total = _joined(directory, parts)
    serves = records(app, params)
    about = {
        "address": digest_of({"records": serves, "content": format_digest(*total)}),
        "seed": None,
        "generator": None,
        "repeatable": False,
        "records": serves,
        "imported": imported,
    }
    return _seal(Path(directory), None, {}, parts, total, about)


def seal_imported(
    directory: Path, app: App | str, params: dict[str, Any], parts: Iterable[NewPart], imported: dict[str, Any]
) -> Manifest:
    """As `seal_import`, for one application and its parameters (`bound`)."""
    app = _app(app)
    manifest = bound(directory, seal_import(directory, app, params, parts, imported), app, params)
    storage.write_json(Path(directory) / "manifest.json", manifest)
    return manifest


def bound(directory: Path, manifest: Manifest, app: App, params: dict[str, Any] | None = None) -> Manifest:
    """The manifest of an import as the workload of an application.

    Its address covers application, parameters and content, but not the code. A change of the application keeps it.

    Args:
        directory: The folder of the import.
        manifest: Its manifest. That of a workload stays as it is.
        app: The application.
        params: Its parameters that differ from the defaults.

    Raises:
        BadInput: The application has other records.
    """
    if manifest["app"] is not None:
        return manifest
    values = app.bind(params)
    serves, own = manifest["records"], records(app, values)
    if fault := _unlike(serves, own):
        raise BadInput(f"import {directory} does not fit {app.name}: {fault}; import the files for {app.name}")
    of = {"app": app.name, "params": values, "content": manifest["content_digest"]}
    binding = {"app": app.name, "params": values, "address": digest_of(of), "code_digest": registry.code_digest(app)}
    return cast(Manifest, storage.sealed({**manifest, **binding}))


def _unlike(serves: Mapping[str, Any], own: Mapping[str, Any]) -> str | None:
    """Why an import of these records does not fit an application; None if it does."""
    for name in {**own["fields"], **serves["fields"]}:
        kinds = [side["fields"].get(name, "absent") for side in (serves, own)]
        if kinds[0] != kinds[1]:
            return f"field {name} is {kinds[0]} in the import and {kinds[1]} in the application"
    for name in ("streams", "time"):
        if serves[name] != own[name]:
            return f"its {name} is {serves[name]}, but the application has {own[name]}"
    if own["sorted"] and not serves["sorted"] and "ts" in own["fields"]:
        return "its ts may go back, because it was imported with a delay, but the application declares none"
    return None


def _joined(directory: Path, parts: Iterable[NewPart]) -> tuple[list[NewPart], tuple[int, int]]:
    """The entries of all parts in order, and the number and digest of their rows."""
    parts = sorted(parts, key=lambda part: part["index"])
    if [part["index"] for part in parts] != list(range(len(parts))):
        numbers = ", ".join(str(part["index"]) for part in parts)
        raise BadInput(f"workload {directory}: the parts must have the numbers 0, 1, 2, ..., got {numbers}")
    total = (0, 0)
    for part in parts:
        total = add(total, (part["rows"], int(part["digest"], 16)))
    return parts, total


def _seal(
    directory: Path,
    app: App | None,
    params: dict[str, Any],
    parts: list[NewPart],
    total: tuple[int, int],
    about: dict[str, Any],
) -> Manifest:
    """Write the manifest: the facts in `about`, and those of every workload."""
    about = about | {
        "app": app and app.name,
        "params": params,
        "events": total[0],
        "content_digest": format_digest(*total),
        "code_digest": app and registry.code_digest(app),
        "parts": [Part(file=part["file"], rows=part["rows"]) for part in parts],
    }
    manifest = cast(Manifest, storage.sealed(about))
    storage.write_json(directory / "manifest.json", manifest)
    return manifest


def write(
    app: App | str,
    params: dict[str, Any],
    events: int,
    seed: int,
    out_dir: Path,
    tables: Iterable[pa.Table] | None = None,
    progress: Callable[[int], None] = lambda events: None,
) -> Manifest:
    """Write a whole workload to `out_dir`, unless the folder holds it already; return its manifest.

    Args:
        app: The application.
        params: Its parameters.
        events: The number of events.
        seed: The seed of every draw.
        out_dir: A folder that is new, empty, or holds the same workload.
        tables: The chunks in order, made elsewhere and unchecked; None generates and checks them one by one here.
        progress: Receives the number of events generated so far, after each chunk.

    Raises:
        BadInput: The request is invalid, or `out_dir` holds something else or is not writable.
        CommandFailed: The disk is full, or fails; nothing stays.
    """
    app, out_dir = _app(app), Path(out_dir)
    requested = address(app, params, events, seed)
    with storage.held(out_dir):
        if out_dir.exists() and (not out_dir.is_dir() or any(out_dir.iterdir())):
            if not (out_dir / "manifest.json").exists():
                raise BadInput(f"{out_dir} exists and is not a workload; choose a new or empty folder")
            manifest = read_manifest(out_dir)
            if manifest["address"] != requested:
                addresses = f"{manifest['address']}, requested {requested}"
                raise BadInput(f"{out_dir} holds another workload ({addresses}); choose a new folder")
            return manifest
        repeatable = tables is None
        try:
            with storage.appearing(out_dir) as temporary:
                chunked = tables if tables is not None else _checked(app, params, events, seed, progress)
                parts = [write_part(temporary, i, table) for i, table in enumerate(chunked)]
                seal(temporary, app, params, events, seed, parts, repeatable)
        except OSError as error:
            raise refusal(error, f"cannot write workload {out_dir}") from None
    return read_manifest(out_dir)


def _checked(
    app: App, params: dict[str, Any], events: int, seed: int, progress: Callable[[int], None]
) -> Iterator[pa.Table]:
    """The chunks in order, each generated twice."""
    for start, stop in chunks(events):
        yield reproducible_chunk(app, params, events, seed, start, stop)
        progress(stop)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the workload in `directory`.

    Raises:
        BadInput: The manifest is missing or damaged, or was changed after it was written.
    """
    return cast(Manifest, storage.read_manifest(directory, "workload", set(_Sealed.__annotations__), "generate"))


@dataclass(frozen=True)
class Source:
    """Events of an application, in order, in the parts that a manifest lists: a workload, or a recording."""

    directory: Path
    manifest: Mapping[str, Any]
    app: App

    kind: ClassVar[str]
    leading: ClassVar[tuple[str, ...]]  # columns before the event's own
    consecutive: ClassVar[bool]  # whether seq counts the rows; else it does not decrease

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the rows."""
        return self.app.event.resolve(self.manifest["params"]).arrow(self.leading)

    @property
    def parts(self) -> Parts:
        """The files in the folder, whether or not the manifest lists them."""
        return Parts([storage.below(self.directory, *part["file"].split("/")) for part in self.manifest["parts"]])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(part["rows"] for part in self.manifest["parts"])

    @property
    def end(self) -> int:
        """The seq of the end of the stream."""
        return self.manifest.get("end", self.rows)

    @property
    def start(self) -> int:
        """The seq of the first event, if seq counts the rows; 0 except for a micro-batch."""
        return self.manifest.get("start", 0)

    def check_parts(self) -> None:
        """Raise BadInput unless all parts exist, with the right columns and numbers of rows."""
        for path, entry in zip(self.parts.paths, self.manifest["parts"], strict=True):
            part = Parts([path])
            if wrong := columns(str(path), self.schema, part.schema):
                raise BadInput(wrong[0].lines()[0])
            if part.schema.names != self.schema.names:
                names, expected = ", ".join(part.schema.names), ", ".join(self.schema.names)
                raise BadInput(f"{path}: the columns must be {expected}, got {names}")
            if part.rows != entry["rows"]:
                raise BadInput(f"{path} must have {entry['rows']} rows, got {part.rows}")

    def blocks(self, rows_per_block: int) -> Iterator[pa.Table]:
        """The rows in order, `rows_per_block` in each table except the last.

        Raises:
            BadInput: A part is damaged, rows are missing or out of order, or the rows have another digest than the
                manifest.
        """
        return (table for table, _ in self.read_on((0, 0), rows_per_block, lambda table: (table, self.hashes(table))))

    def hashes(self, table: pa.Table) -> int:
        """The sum of the hashes of rows."""
        return digest_table(table, self.leading)[1]

    def read_on(
        self,
        read: tuple[int, int],
        rows_per_block: int,
        decode: Callable[[pa.Table], tuple[T, int]],
        room: Room = lambda _: None,
        reading: Callable[[Iterable[pa.Table]], Iterable[pa.Table]] = iter,
    ) -> Iterator[tuple[T, tuple[int, int]]]:
        """Return the rows after those that were read, decoded.

        Args:
            read: The number of rows that were read, and the sum of their hashes.
            rows_per_block: Rows that are decoded together.
            decode: Makes a block of some rows, and returns it with the sum of their hashes.
            room: Limits the block behind a number of rows.
            reading: `ahead` reads files in a thread of its own.

        Yields:
            Each block, with `read` at its end.

        Raises:
            BadInput: As for `blocks`. The manifest's digest covers the rows read before as well.
        """
        before, known = self.start + read[0] - 1, read[0] % rows_per_block
        for block in reading(self.parts.slices(rows_per_block, start=read[0] - known)):
            block, known = block.slice(known), 0
            while block.num_rows:
                table = block.slice(0, room(read[0])).cast(self.schema)
                block = block.slice(table.num_rows)
                seq = to_numpy(table.column("seq"))
                steps = np.diff(seq, prepend=before)
                wrong = np.flatnonzero(steps != 1 if self.consecutive else steps < 0)
                if len(wrong):
                    at = int(wrong[0])
                    position = f"seq {seq[at]} comes after {seq[at - 1] if at else before}"
                    raise BadInput(f"{self.kind} {self.directory}: the rows are out of order: {position}")
                decoded, value = decode(table)
                before, read = int(seq[-1]), add(read, (table.num_rows, value))
                yield decoded, read
        if (digest := format_digest(*read)) != self.manifest["content_digest"]:
            raise BadInput(
                f"{self.kind} {self.directory}: the rows were changed after they were written: "
                f"digest {digest}, expected {self.manifest['content_digest']}"
            )


class Workload(Source):
    """An open workload. It has a manifest, and its parts are complete and have the right columns."""

    manifest: Manifest
    kind, leading, consecutive = "workload", ("seq",), True


def check_request(
    directory: Path, manifest: Manifest, app: App, params: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Check the application and the parameters of a workload.

    Args:
        directory: The folder of the workload.
        manifest: Its manifest.
        app: The application that the workload must belong to.
        params: The parameters that it must have; None accepts any.

    Returns:
        The parameters of the workload.

    Raises:
        BadInput: The workload has another application or other parameters.
    """
    if manifest["app"] != app.name:
        raise BadInput(f"workload {directory} belongs to application {manifest['app']}, not to {app.name}")
    values = app.bind(manifest["params"])
    if params is not None:
        requested = app.bind(params)
        if name := next((name for name in requested if requested[name] != values[name]), None):
            raise BadInput(
                f"workload {directory} has {name}={values[name]}, but the request has {name}={requested[name]}; "
                "generate a workload with that parameter"
            )
    return values


def read(
    directory: Path, app: App | str | None = None, params: dict[str, Any] | None = None, whole: bool = True
) -> Workload:
    """Open the workload in `directory`.

    Args:
        directory: The folder of the workload.
        app: The application that it must belong to; None accepts any.
        params: The parameters that it must have, as far as they differ from the defaults; None accepts any.
        whole: Whether a workload must begin at event 0. That of a live run may have lost its first events.

    Raises:
        BadInput: The manifest is missing, the application or a parameter is another one, or a part is damaged. Or the
            first events are missing.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    if whole and (start := manifest.get("imported", {}).get("start")):
        raise BadInput(
            f"workload {directory} begins at event {start}: `lockstep follow --keep` dropped the events before, so its "
            "result cannot be computed"
        )
    if app is None:
        app = manifest["app"]
    if app is None:
        raise BadInput(f"{directory} is an import, which belongs to no application: name one")
    app = _app(app)
    manifest = bound(directory, manifest, app, params)
    values = check_request(directory, manifest, app, params)
    workload = Workload(directory, {**manifest, "params": values}, app)
    workload.check_parts()
    if (total := sum(part["rows"] for part in manifest["parts"])) != manifest["events"]:
        raise BadInput(f"workload {directory} must have {manifest['events']} events, got {total}")
    return workload
