"""Files that a user names, as a workload: every value in its field's type or kept aside with a reason, in one order."""

import bz2
import gzip
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from streaming_core.api import App
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.importing import events as importing
from streaming_core.importing import files

HEAD = '''"""Orders."""
from streaming_core.api import App, Array, Param, boolean, f64, i64, record, text, u8
app = App("orders", params={"k": Param(2, "items")})
@record
class Order:
    ts: i64
    size: u8
    price: f64
    paid: boolean
    name: text
    items: Array[u8, "k"]
@record
class Output:
    name: text
def same(row, out):
    out.emit(name=row.name)
app.source(Order).flat_map(same, Output).sink()
@app.generates
def events(params, seed, start, stop):
    return {}
'''
FIELDS = ["ts", "size", "price", "paid", "name", "items"]
GOOD = {"ts": "5", "size": "7", "price": "0.5", "paid": "true", "name": "an order", "items": "[1, 2]"}


@pytest.fixture
def orders(package: Path) -> App:
    (package / "orders.py").write_text(HEAD)
    return registry.load("orders")


def imported(app: App, out: Path, *named: Path, **options: Any) -> dict:
    request = importing.request(app, app.bind(), list(named), options.pop("mapping", {}), **options)
    return importing.run(request, out)


def rows(out: Path, app: App) -> list[dict]:
    """The events, read as any command reads them."""
    return [row for table in workload.read(out, app).blocks(1000) for row in table.to_pylist()]


def aside(out: Path) -> list[dict]:
    return Parts.of(out / "aside").read().to_pylist()


def csv_of(values: list[dict[str, str]], columns: list[str] = FIELDS) -> str:
    quoted = [['"' + row[name].replace('"', '""') + '"' if row[name] else "" for name in columns] for row in values]
    return "\n".join(",".join(line) for line in [columns, *quoted]) + "\n"


FRACTION = "ts is a time with a fraction of a unit (ms): declare a smaller one with App(..., time=)"
# A field, its text in the file, and the result: a value, or the reason for none.
VALUES: list[tuple[str, str, Any]] = [
    ("ts", "-9223372036854775808", -(1 << 63)),
    ("ts", "9223372036854775807", (1 << 63) - 1),
    ("ts", "9223372036854775808", "ts does not fit i64, which holds -9223372036854775808 to 9223372036854775807"),
    ("ts", "1" * 60, "ts does not fit i64, which holds -9223372036854775808 to 9223372036854775807"),
    ("ts", " +12 ", 12),
    ("ts", "12.00", 12),
    ("ts", "12.5", "ts is neither an integer nor a time"),
    ("ts", "1e3", "ts is neither an integer nor a time"),
    ("ts", "", "ts has no value"),
    ("ts", "soon", "ts is neither an integer nor a time"),
    ("ts", "1970-01-01", 0),
    ("ts", "1970-01-01T00:00:01Z", 1000),
    ("ts", "1970-01-01 01:00:00.250+01:00", 250),
    ("ts", "1970-01-01 00:00:02+00", 2000),
    ("ts", "1970-01-01T05:45:03+0545", 3000),
    ("ts", "2016-12-31T23:59:60Z", "ts is not a valid time"),
    ("ts", "1969-12-31T23:59:59.999", -1),
    (
        "ts",
        "1970-01-01T00:00:00.0005",
        FRACTION,
    ),
    (
        "ts",
        "1970-01-01T00:00:00.000000001",
        FRACTION,
    ),
    ("ts", "2026-02-30", "ts is not a valid time"),
    ("size", "255", 255),
    ("size", "256", "size does not fit u8, which holds 0 to 255"),
    ("size", "-1", "size does not fit u8, which holds 0 to 255"),
    ("price", "-.5e-3", -0.0005),
    ("price", "NaN", math.nan),
    ("price", "-Infinity", -math.inf),
    ("price", "+inf", math.inf),
    ("price", "-nan", math.nan),
    ("price", " +NaN ", math.nan),
    ("price", "1e999", "price does not fit f64"),
    ("price", "1d", "price is not a number"),
    ("price", "0x10", "price is not a number"),
    ("price", "1,5", "price is not a number"),
    ("paid", "FALSE", False),
    ("paid", "1", True),
    ("paid", "yes", "paid is not true, false, 1 or 0"),
    ("name", "", b""),
    ("name", 'two\nlines, and "quotes" é', 'two\nlines, and "quotes" é'.encode()),
    ("items", "[255,0]", [255, 0]),
    ("items", "[1]", "items does not have 2 items"),
    ("items", "[1, 256]", "items has an item that does not fit u8, which holds 0 to 255"),
    ("items", "[1, null]", "items has an item that has no value"),
    ("items", "1 2", "items is not a list"),
]


def test_every_csv_value_is_read_or_set_aside_with_a_reason(orders, tmp_path):
    file, out = tmp_path / "orders, and: more+é.csv", tmp_path / "w"
    file.write_text(csv_of([GOOD | {field: text} for field, text, _ in VALUES]))
    manifest = imported(orders, out, file)
    fits = [(field, value) for field, _, value in VALUES if not isinstance(value, str)]
    events = rows(out, orders)
    assert [row["seq"] for row in events] == list(range(len(fits)))
    good = {"ts": 5, "size": 7, "price": 0.5, "paid": True, "name": b"an order", "items": [1, 2]}
    wanted = sorted((good | {field: value} for field, value in fits), key=lambda row: row["ts"])
    assert [repr({name: row[name] for name in FIELDS}) for row in events] == [repr(row) for row in wanted]
    kept = [(number, field, text, why) for number, (field, text, why) in enumerate(VALUES, 1) if isinstance(why, str)]
    assert [(row["_row"], row["_reason"]) for row in aside(out)] == [(number, why) for number, _, _, why in kept]
    for row, (_, field, text, _) in zip(aside(out), kept, strict=True):
        assert (row["_file"], {name: row[name] or "" for name in FIELDS}) == (str(file), GOOD | {field: text})
    imported_part = manifest["imported"]
    assert (imported_part["rows"], sum(reason["rows"] for reason in imported_part["aside"])) == (len(VALUES), len(kept))
    first = next(
        reason for reason in imported_part["aside"] if reason["reason"] == "ts is neither an integer nor a time"
    )
    assert (first["rows"], first["file"], first["row"]) == (3, str(file), 7)
    assert sorted(path.name for path in out.iterdir()) == ["aside", "events", "manifest.json"]


def test_parquet_columns_keep_their_types(package, tmp_path):
    (package / "orders.py").write_text(HEAD.replace('items")}', 'items")}, time="ns"'))
    orders = registry.load("orders")
    file, out = tmp_path / "orders.parquet", tmp_path / "w"
    table = pa.table(
        {
            "When": pa.array([2_000_000_001, 1_000_000_000, None, 3_000_000_000], pa.timestamp("ns", "UTC")),
            "size": pa.array([1e2, 2.5, 3, 4]),
            "price": pa.array([-0.0, 1, 2, 0.1], pa.float32()),
            "paid": [True] * 4,
            "name": pa.array([b"\xff", b"b", b"c", b"d"], pa.binary()),
            "items": pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], pa.list_(pa.int32(), 2)),
        }
    )
    pq.write_table(table, file)
    imported(orders, out, file, mapping={"ts": "When"})
    events = rows(out, orders)
    assert [(row["ts"], row["size"], row["name"], row["items"]) for row in events] == [
        (2_000_000_001, 100, b"\xff", [1, 2]),
        (3_000_000_000, 4, b"d", [7, 8]),
    ]
    assert [math.copysign(1, events[0]["price"]), events[1]["price"]] == [-1.0, float(np.float32(0.1))]
    assert [(row["_row"], row["_reason"]) for row in aside(out)] == [
        (2, "size is neither an integer nor a time"),
        (3, "ts has no value"),
    ]


def test_ties_keep_the_order_of_files_and_rows(orders, tmp_path, monkeypatch):
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "_ignored").write_text("no data")
    names = [f"{i}" for i in range(900)]
    parts = {"b.csv": names[:300], "c.csv.bz2": names[300:600], "sub/a.csv": names[600:]}
    for file, held in parts.items():
        content = csv_of([GOOD | {"ts": str(int(name) % 3), "name": name} for name in held]).encode()
        (folder / file).write_bytes(bz2.compress(content) if file.endswith(".bz2") else content)
    wanted = sorted(names, key=lambda name: int(name) % 3)
    addresses = set()
    for batch in ("4", "7"):
        out = tmp_path / f"w{batch}"
        monkeypatch.setattr(files, "BATCH_ROWS", int(batch))
        # The same rows in the same order: the address is of nothing else.
        named = [folder] if batch == "4" else [folder / "b.csv", folder / "c.csv.bz2", folder / "sub"]
        addresses.add(imported(orders, out, *named)["address"])
        assert [row["name"].decode() for row in rows(out, orders)] == wanted
        assert not (out / "aside").exists()
    assert len(addresses) == 1


def test_torn_row_is_kept_unchanged(orders, tmp_path):
    file, out = tmp_path / "orders.csv", tmp_path / "w"
    good = b'1,2,3,true,x,"[1,2]"'
    lines = {
        1: (",".join(FIELDS).encode(), None),
        2: (good, None),
        3: (good + b",more", "the row has 7 columns instead of 6"),
        4: (b"1,2", "the row has 2 columns instead of 6"),
        5: (good, None),
        6: (b'1,2,3,true,"a \xff",', "the line is not UTF-8"),
        7: (b'1,2,3,true,"a"b,', "text follows a closing quote, or a closing quote before it is missing"),
        8: (b'1,2,3,true,"two\r\nlines",,', "the row has 7 columns instead of 6"),
        10: (b'1,2,3,true,"never closed', "a closing quote is missing"),
    }
    file.write_bytes(b"".join(content + b"\r\n" for content, _ in lines.values()))
    manifest = imported(orders, out, file)
    assert (manifest["events"], manifest["imported"]["rows"]) == (2, 8)
    assert [(row["_line"], row["_raw"], row["_reason"]) for row in aside(out)] == [
        (line, *lines[line]) for line in (3, 4, 6, 7, 8, 10)
    ]
    assert [row["_row"] for row in aside(out)] == [2, 3, 5, 6, 7, 8]


PLAIN = "".join([";".join(FIELDS) + "\n", *(f"{i};7;0.5;true;order {i};[1,2]\n" for i in range(1000))])
QUOTED = csv_of([GOOD | {"ts": str(i)} for i in range(1000)])


@pytest.mark.parametrize(
    ("text", "separator", "whole", "damaged", "reason"),
    [
        (PLAIN, ";", ";order 4;", ';"order 4;', "a closing quote is missing"),
        (QUOTED, ",", '[1, 2]"', "[1, 2]", "text follows a closing quote, or a closing quote before it is missing"),
    ],
)
def test_open_quote_swallows_no_other_row(orders, tmp_path, text, separator, whole, damaged, reason):
    """Whether it is never closed, or by a quote of the next row."""
    lines = text.splitlines(keepends=True)
    assert whole in lines[5]
    lines[5] = lines[5].replace(whole, damaged)
    file, out = tmp_path / "orders.csv", tmp_path / "w"
    file.write_text("".join(lines))
    manifest = imported(orders, out, file, separator=separator)
    assert (manifest["events"], manifest["imported"]["rows"]) == (999, 1000)
    (kept,) = aside(out)
    assert (kept["_row"], kept["_line"], kept["_reason"]) == (5, 6, reason)
    assert kept["_raw"].decode() == lines[5].rstrip("\n")
    assert [row["ts"] for row in rows(out, orders)] == [i for i in range(1000) if i != 4]


def test_manifest_has_samples_of_rows_set_aside(orders, tmp_path):
    file, out = tmp_path / "orders.csv", tmp_path / "out"
    lines = [
        ",".join(FIELDS),
        '6,7,0.5,true,an order,"[1, 2]"',
        '5,7,0.5,true,"<b>,[1 2]',
        "5,7,0.5,true,\xff\x00,[1 2]",
    ]
    lines += [*["1,1"] * 4, "2,2," + "x" * 400]
    file.write_bytes("\n".join(lines).encode("latin-1"))
    aside = {reason["reason"]: reason for reason in imported(orders, out, file)["imported"]["aside"]}
    quote, torn = aside["a closing quote is missing"], aside["the row has 2 columns instead of 6"]
    assert [sample["text"] for sample in quote["samples"]] == ['5,7,0.5,true,"<b>,[1 2]']
    (bytes_,) = aside["the line is not UTF-8"]["samples"]
    assert bytes_["text"].encode("utf-8", "surrogateescape") == b"5,7,0.5,true,\xff\x00,[1 2]"
    assert (torn["rows"], [sample["row"] for sample in torn["samples"]]) == (4, [4, 5, 6])
    (long,) = aside["the row has 3 columns instead of 6"]["samples"]
    assert (len(long["text"]), long["is_cut"], long["line"]) == (importing.SAMPLE_CHARACTERS, True, 9)


def test_json_lines_become_events_as_written_or_are_set_aside(orders, tmp_path):
    file, out = tmp_path / "orders.jsonl.gz", tmp_path / "w"

    def line(ts, name, more=""):
        return f'{{"ts": {ts}, "size": 7, "price": 1, "paid": true, "items": [1, 2.0], "an odd `name`": {name}{more}}}'

    events = {
        line(1, '"a\\r\\nb"'): (1, b"a\r\nb"),
        line(2, "1.50").replace('"price": 1', '"price": NaN'): (2, b"1.50"),
        line(3, "12345678901234567890123.000"): (3, b"12345678901234567890123.000"),
        line(9, '"x"', ', "more": {"a": 1, "a": 2}'): (9, b"x"),
        line("9007199254740993.0", '"\\ud83d\\ude00"'): (9007199254740993, "\U0001f600".encode()),
    }
    wrong = {
        line(5, '"\\ud800"'): "a text contains half a surrogate pair (\\ud800 to \\udfff), which is not a character",
        line(6, '"a", "an odd `name`": "b"'): "the object has the key an odd `name` twice",
        line(7, '{"a": 1}'): "an odd `name` is a list or an object instead of a value",
        line(8, "[1]"): "an odd `name` is a list or an object instead of a value",
        line(10, "[" * 100_000 + "]" * 100_000): "the line is not a JSON object",
        line(11, '"x"') + " x": "the line is not a JSON object",
        "{no json": "the line is not a JSON object",
        line(12, '"x"').replace('"size": 7', '"size": null'): "size has no value",
        line(13, '"x"').replace('"price": 1', '"price": 1e999'): "price does not fit f64",
        '{"ts": 1, "an odd `name`": "\udcff"}': "the line is not UTF-8",
        '{"ts": 1}': "size has no value",
    }
    lines = [text.encode("utf-8", "surrogateescape") for text in (*events, "", *wrong)]
    file.write_bytes(gzip.compress(b"\xef\xbb\xbf" + b"\r\n".join(lines) + b"\r\n"))
    manifest = imported(orders, out, file, mapping={"name": "an odd `name`"})
    assert (manifest["events"], manifest["imported"]["rows"]) == (5, 16)
    assert [(row["ts"], row["name"]) for row in rows(out, orders)] == [*events.values()]
    assert [math.isnan(row["price"]) for row in rows(out, orders)] == [False, True, False, False, False]
    assert [(row["_line"], row["_row"], row["_reason"]) for row in aside(out)] == [
        (number + 7, number + 6, reason) for number, reason in enumerate(wrong.values())
    ]
    assert [row["_raw"] for row in aside(out)] == lines[6:]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet_text_outside_utf8_is_set_aside(orders, tmp_path, kind):
    file, out = tmp_path / "orders.parquet", tmp_path / "w"
    names = pa.array([b"a", b"\xff\xfe", b"c"], pa.binary())
    wrong = pa.Array.from_buffers(pa.string(), 3, names.buffers())
    if pa.types.is_dictionary(kind):
        wrong = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), wrong)
    elif kind == pa.large_string():
        wrong = pa.Array.from_buffers(kind, 3, names.cast(pa.large_binary()).buffers())
    table = {"ts": [1, 2, 3], "size": [1] * 3, "price": [1.0] * 3, "paid": [True] * 3, "items": [[1, 2]] * 3}
    pq.write_table(pa.table(table | {"name": wrong}), file)
    imported(orders, out, file)
    assert [row["name"] for row in rows(out, orders)] == [b"a", b"c"]
    assert [(r["_row"], r["_raw"], r["_reason"]) for r in aside(out)] == [(2, b"\xff\xfe", "name is not UTF-8")]


def test_lossy_import_fails(orders, tmp_path, monkeypatch):
    file, numbered = tmp_path / "orders.csv", importing._numbered
    file.write_text(csv_of([GOOD] * 3))
    monkeypatch.setattr(importing, "_numbered", lambda *at: (table.slice(1) for table in numbered(*at)))
    with pytest.raises(CommandFailed, match="the import read 3 rows, but wrote 2 events and set 0 rows aside"):
        imported(orders, tmp_path / "w", file)
    assert not (tmp_path / "w").exists()


def test_parquet_of_every_type_is_read(orders, tmp_path):
    file, out = tmp_path / "orders.parquet", tmp_path / "w"
    columns = {
        "ts": pa.array([1, 2, 3], pa.duration("s")),
        "size": pa.array([1, 2.5, 3], pa.float16()),
        "price": pa.array([Decimal("1.50")] * 3, pa.decimal256(50, 2)),
        "paid": pa.array([True] * 3),
        "name": pa.array([bytes(15) + bytes([i]) for i in range(3)], pa.uuid()),
        "items": pa.array([[1, 2], [1, 2], [1, None]], pa.large_list(pa.uint64())),
        "time": pa.array([1, 2, 3], pa.time64("ns")),
        "nested": pa.array([{"a": [1]}] * 3),
        "map": pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int8())),
        "word": pa.array(["a", "b", "a"]).dictionary_encode(),
        "nothing": pa.nulls(3),
        "_row": [7] * 3,
        "Ts": [7] * 3,
        "": [7] * 3,
    }
    pq.write_table(pa.table(columns), file)
    (_, (sample,)) = (reason["samples"] for reason in imported(orders, out, file)["imported"]["aside"])
    assert json.loads(sample["text"])["size"] == "2.5"
    assert (sample["row"], sample["line"], sample["is_cut"]) == (2, None, False)
    uuid = "00000000-0000-0000-0000-00000000000"
    (event,) = rows(out, orders)
    assert [event[name] for name in FIELDS] == [1, 1, 1.5, True, f"{uuid}0".encode(), [1, 2]]
    first, second = aside(out)
    assert (first["_row"], first["_reason"], first["size"]) == (2, "size is neither an integer nor a time", "2.5")
    names = ["name", "items", "time", "nested", "map", "word", "nothing", "__row", "Ts", ""]
    kept = [f"{uuid}2", "[1, null]", "00:00:00.000000003", '{"a": [1]}', '[["k", 1]]', "a", None, "7", "7", "7"]
    assert [second[name] for name in names] == kept


def test_application_without_ts_keeps_the_order_of_its_events(package, tmp_path):
    (package / "plain.py").write_text(HEAD.replace("orders", "plain").replace("    ts: i64\n", ""))
    app, file = registry.load("plain"), tmp_path / "plain.csv"
    file.write_text(csv_of([GOOD | {"name": name} for name in "cab"], FIELDS[1:]))
    imported(app, tmp_path / "w", file)
    assert [row["name"] for row in rows(tmp_path / "w", app)] == [b"c", b"a", b"b"]


REFUSED = [
    ({"a.csv": csv_of([GOOD])}, ["nosuch.csv"], {}, "{0}/nosuch.csv does not exist"),
    ({"in/.hidden": ""}, ["in"], {}, "folder {0}/in has no files"),
    ({"a.xlsx": ""}, ["a.xlsx"], {}, "{0}/a.xlsx: the name of a file must end in one of .parquet, .csv, .tsv,"),
    ({"a.parquet.gz": ""}, ["a.parquet.gz"], {}, "the name of a file must end in one of "),
    ({"a": ""}, ["a"], {}, "the name of a file must end in one of "),
    ({"a.csv": csv_of([GOOD])}, ["a.csv", "a.csv"], {}, "a.csv is in the list twice: name each file once"),
    ({"a.csv": csv_of([GOOD]), "b.json": ""}, ["a.csv", "b.json"], {}, "import files of one kind at a time"),
    ({"a.csv": ""}, ["a.csv"], {}, "a.csv has no column names: its first line must contain them"),
    ({"a.csv": "ts,ts\n"}, ["a.csv"], {}, "a.csv has two columns named 'ts': rename one"),
    ({"a.csv": csv_of([GOOD]), "b.csv": "ts\n"}, ["a.csv", "b.csv"], {}, "b.csv and {0}/a.csv have different columns"),
    ({"a.csv": "Ts,size\n"}, ["a.csv"], {}, "its columns: Ts, size. Name the right one with --map ts=Ts"),
    ({"a.csv": "ts,size,price,paid,name\n"}, ["a.csv"], {}, "no column 'items' for the field items (u8s)"),
    ({"a.csv": "1,2,3,true,x\n"}, ["a.csv"], {}, "the column names, but looks like a row: 1, 2, 3, true, x"),
    ({"a.csv": "ts;size\n"}, ["a.csv"], {}, "its only column is 'ts;size': name the character between the columns"),
    ({"a.csv": csv_of([GOOD])}, ["a.csv"], {"separator": ";;"}, "--separator ';;': give one character"),
    ({"a.csv": csv_of([GOOD])}, ["a.csv"], {"mapping": {"weight": "size"}},
     "--map weight=...: the events of orders have no field 'weight'; fields: ts, size, price, paid, name, items"),
    ({"a.csv.gz": "no gzip"}, ["a.csv.gz"], {}, "a.csv.gz cannot be read: Not a gzipped file"),
    ({"a.parquet": "no parquet"}, ["a.parquet"], {}, "a.parquet cannot be read: "),
]  # fmt: skip


@pytest.mark.parametrize(("contents", "named", "options", "message"), REFUSED)
def test_invalid_import_is_refused_before_a_row_is_read(contents, named, options, message, orders, tmp_path):
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(BadInput) as refused:
        importing.request(orders, orders.bind(), [tmp_path / name for name in named], **{"mapping": {}} | options)
    assert message.format(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


# --- several streams --------------------------------------------------------------------------------------------------

STREAMS = '''"""Trades."""
from streaming_core.api import App, Array, boolean, f64, i64, record, text, u8
app = App("trades")
@record
class Bid:
    ts: i64
    who: text
    price: i64
    parts: Array[u8, 2]
@record
class Ask:
    ts: i64
    price: f64
    who: text
    is_last: boolean
@record
class Tick:
    ts: i64
@record
class Output:
    ts: i64
def bid(row, out):
    out.emit(ts=row.ts)
def ask(row, out):
    out.emit(ts=row.ts)
def tick(row, out):
    out.emit(ts=row.ts)
bids, asks, ticks = app.sources(Bid, Ask, Tick)
bids.flat_map(bid, Output).union(asks.flat_map(ask, Output), ticks.flat_map(tick, Output)).sink()
def events(params, seed, start, stop):
    return {}
app.generates(events, events, events)
'''


def written(table: pa.Table, file: Path) -> None:
    """The table as a file of the kind that its name says."""
    if file.suffix == ".parquet":
        pq.write_table(table, file)
    elif file.suffix == ".csv":
        pa_csv.write_csv(table, file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


@pytest.mark.parametrize("seed", range(6))
def test_streams_are_merged_by_ts_then_stream_then_file_then_row(seed, package, tmp_path):
    """Held against sorting them by hand, with files of every kind, many equal ts, and rows in any order.

    Every other time `ts` may go back, and the highest `ts` of the stream so far stands for it.
    """
    is_delayed = seed % 2 == 1
    delayed = "app.sources(Bid, Ask, Tick, delay=5)" if is_delayed else "app.sources(Bid, Ask, Tick)"
    (package / "trades.py").write_text(STREAMS.replace("app.sources(Bid, Ask, Tick)", delayed))
    app, rng = registry.load("trades"), np.random.default_rng(seed)
    wanted, named, aside_rows = [], {}, 0
    for number, name in enumerate(("Bid", "Ask", "Tick")):
        named[name] = tmp_path / name
        named[name].mkdir()
        mark = -5
        suffix = rng.choice([".parquet", ".csv", ".jsonl"] if name != "Bid" else [".parquet", ".jsonl"])
        for part in range(int(rng.integers(1, 4))):
            count = int(rng.choice([1, 5, 300]))
            ts = rng.integers(-5, 5, count)
            who = [f"{name} {part} {i} é" for i in range(count)]
            columns: dict[str, Any] = {"at" if name == "Tick" else "ts": ts, "more": who}
            if name == "Bid":
                prices, parts = rng.integers(-9, 9, count), rng.integers(0, 256, (count, 2)).tolist()
                columns |= {"who": who, "price": prices, "parts": pa.array(parts, pa.list_(pa.uint8()))}
            elif name == "Ask":
                columns |= {"price": rng.normal(size=count), "name": who, "is_last": rng.random(count) < 0.5}
            table = pa.table(columns)
            written(table, named[name] / f"{part}{suffix}")
            for i, row in enumerate(table.to_pylist()):
                zeros = {"who": b"", "Bid_price": 0, "parts": [0, 0], "Ask_price": 0.0, "is_last": False}
                event = zeros | {"ts": int(ts[i]), "stream": number}
                if name == "Bid":
                    event |= {"who": who[i].encode(), "Bid_price": row["price"], "parts": row["parts"]}
                elif name == "Ask":
                    event |= {"who": who[i].encode(), "Ask_price": row["price"], "is_last": row["is_last"]}
                mark = max((mark, event["ts"])) if is_delayed else event["ts"]
                wanted.append(((mark, number, part, i), event))
        if suffix == ".jsonl":
            aside_rows += 1
            with open(named[name] / f"{part}{suffix}", "a") as file:
                file.write("no json\n")
    mapping = {"Tick.ts": "at", "Ask.who": "name"}
    request = importing.request(app, app.bind(), named, mapping)
    manifest = importing.run(request, tmp_path / "w")
    wanted.sort(key=lambda row: row[0])
    events = rows(tmp_path / "w", app)
    assert events == [{"seq": seq} | event for seq, (_, event) in enumerate(wanted)]
    about = manifest["imported"]
    assert (about["rows"], sum(reason["rows"] for reason in about["aside"])) == (len(wanted) + aside_rows, aside_rows)
    assert (about["map"]["Tick.ts"], about["map"]["Ask.who"], about["map"]["Bid.who"]) == ("at", "name", "who")
    assert about["files"] == [file for name in ("Bid", "Ask", "Tick") for file in about["streams"][name]]


def test_rows_set_aside_have_a_table_per_stream(tmp_path):
    app, out = registry.load("scalejoin"), tmp_path / "w"
    (tmp_path / "left.csv").write_text("ts,x,y\n5,1,0.5\n,2,1\n6,2,2,2\n")
    (tmp_path / "right.jsonl").write_text('{"ts": 5, "a": 1, "b": 2, "c": 3, "d": 1}\n{"ts": 4}\n')
    request = importing.request(app, app.bind(), {"Left": tmp_path / "left.csv", "Right": tmp_path / "right.jsonl"}, {})
    about = importing.run(request, out)["imported"]
    assert [(row["ts"], row["stream"], row["x"], row["a"]) for row in rows(out, app)] == [(5, 0, 1, 0), (5, 1, 0, 1)]
    left, right = (Parts.of(out / "aside" / name).read().to_pylist() for name in ("Left", "Right"))
    assert [(Path(row["_file"]).name, row["_row"], row["_reason"]) for row in left] == [
        ("left.csv", 2, "ts has no value"),
        ("left.csv", 3, "the row has 4 columns instead of 3"),
    ]
    assert [(Path(row["_file"]).name, row["_row"], row["_raw"]) for row in right] == [("right.jsonl", 2, b'{"ts": 4}')]
    assert {(Path(reason["file"]).name, reason["row"], reason["samples"][0]["text"]) for reason in about["aside"]} == {
        ("left.csv", 2, ",2,1"),
        ("left.csv", 3, "6,2,2,2"),
        ("right.jsonl", 2, '{"ts": 4}'),
    }
    # Damaged files are named, whichever stream they belong to.
    table = pa.table({"ts": range(1000), "a": range(1000), "b": range(1000), "c": range(1000), "d": [True] * 1000})
    pq.write_table(table, tmp_path / "right.parquet")
    whole = (tmp_path / "right.parquet").read_bytes()
    (tmp_path / "right.parquet").write_bytes(whole[:4] + bytes(2000) + whole[2004:])
    named = {"Left": tmp_path / "left.csv", "Right": tmp_path / "right.parquet"}
    with pytest.raises(BadInput, match=r"right\.parquet cannot be read: it is damaged"):
        importing.run(importing.request(app, app.bind(), named, {}), tmp_path / "w2")


def test_damaged_or_empty_import_leaves_nothing(orders, tmp_path):
    whole = csv_of([GOOD | {"name": f"{i:x}" * 40} for i in range(20_000)]).encode()
    cut, empty, out = tmp_path / "cut.csv.gz", tmp_path / "empty.csv", tmp_path / "out" / "w"
    empty.write_text(csv_of([]))
    cut.write_bytes(gzip.compress(whole + np.random.default_rng(1).bytes(1 << 22))[: 1 << 21])
    with pytest.raises(BadInput, match=r"cut\.csv\.gz cannot be read: it is damaged, or its name has the wrong ending"):
        imported(orders, out, cut)
    with pytest.raises(BadInput, match=r"empty\.csv: none of 0 rows is an event of orders$"):
        imported(orders, out, empty)
    assert list(out.parent.iterdir()) == []
    out.mkdir()
    (out / "there").touch()
    with pytest.raises(BadInput, match="already exists: choose another name, or remove it first"):
        imported(orders, out, empty)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_missing_values_of_nullable_fields_are_null(kind, package, tmp_path):
    head = HEAD.replace("size: u8", "size: u8 | None").replace("price: f64", "price: f64 | None")
    (package / "orders.py").write_text(
        head.replace("paid: boolean", "paid: boolean | None").replace("text\n    items", "text | None\n    items")
    )
    app, file = registry.load("orders"), tmp_path / f"orders.{kind}"
    full = {"ts": 5, "size": 7, "price": 0.5, "paid": True, "name": "an order", "items": [1, 2]}
    some = [full, *({**full, name: None} for name in ("size", "price", "paid", "name"))]
    if kind == "csv":
        texts = [{name: "" if row[name] is None else GOOD[name] for name in FIELDS} for row in some]
        file.write_text(csv_of(texts))
    elif kind == "jsonl":
        file.write_text("".join(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in some))
    else:
        pq.write_table(pa.Table.from_pylist(some), file)
    manifest = imported(app, tmp_path / "out", file)
    assert manifest["records"]["fields"]["size"] == "uint8 or null"
    expected = [{**row, "name": row["name"] and row["name"].encode(), "seq": seq} for seq, row in enumerate(some)]
    assert rows(tmp_path / "out", app) == [{name: row[name] for name in ["seq", *FIELDS]} for row in expected]
    assert not (tmp_path / "out" / "aside").exists()


DECIMALS = [
    ("12.34", Decimal("12.34")),
    ("-0.050", Decimal("-0.05")),
    ("7", Decimal("7.00")),
    ("1e-2", Decimal("0.01")),
    ("92233720368547758.07", Decimal("92233720368547758.07")),
    ("92233720368547758.08", "price does not fit Decimal[2], which holds 64 bits of units"),
    ("0.005", "price has more than 2 digits after the point"),
    ("1970-01-01", "price is not a decimal number"),
    ("nan", "price is not a decimal number"),
]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_decimals_are_read_exactly_or_set_aside_with_a_reason(kind, package, tmp_path):
    head = HEAD.replace("price: f64", "price: Decimal[2] | None").replace("Array,", "Array, Decimal,")
    (package / "orders.py").write_text(head)
    app, file = registry.load("orders"), tmp_path / f"orders.{kind}"
    values = [*DECIMALS[: 7 if kind == "parquet" else None], ("", None)]  # the last ones are no Parquet decimals
    full = {"ts": 5, "size": 7, "paid": True, "name": "an order", "items": [1, 2]}
    if kind == "csv":
        file.write_text(csv_of([GOOD | {"price": text} for text, _ in values]))
    elif kind == "jsonl":
        texts = [text if value and isinstance(value, Decimal) else json.dumps(text or None) for text, value in values]
        file.write_text("".join(f'{json.dumps(full)[:-1]}, "price": {text}}}\n' for text in texts))
    else:
        prices = pa.array([Decimal(text) if text else None for text, _ in values], pa.decimal128(38, 3))
        pq.write_table(pa.Table.from_pylist([full] * len(values)).append_column("price", prices), file)
    manifest = imported(app, tmp_path / "out", file, tolerance=1.0)
    assert manifest["records"]["fields"]["price"] == "decimal128(19, 2) or null"
    read = [row["price"] for row in rows(tmp_path / "out", app)]
    assert read == [value for _, value in values if not isinstance(value, str)]
    reasons = [value for _, value in values if isinstance(value, str)]
    assert [row["_reason"] for row in aside(tmp_path / "out")] == reasons
