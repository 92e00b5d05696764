"""Records of text files: each byte is in one record, and written CSV is read back unchanged."""

import csv
import io
import random

import pytest

from streaming_core.importing.records import csv_records, decoded, json_records

ALPHABET = [b"a", b"1", b",", b'"', b"\n", b"\r\n", b"\r", b" ", b"\xc3\xa9", b"\xff", b"\xef\xbb\xbf", b"\x00"]


def drawn(seed: int, length: int = 200) -> bytes:
    draw = random.Random(seed)
    return b"".join(draw.choice(ALPHABET) for _ in range(length))


def without_breaks(data: bytes) -> bytes:
    return data.replace(b"\r", b"").replace(b"\n", b"")


@pytest.mark.parametrize("seed", range(200))
def test_every_byte_of_a_file_is_in_one_record(seed):
    data = drawn(seed)
    records = list(csv_records(decoded(io.BytesIO(b"x,y\n" + data)), ",", 2))
    assert without_breaks(b"".join(record.raw for record in records)) == without_breaks(data)
    assert all((record.values is None) != (record.reason is None) for record in records)
    lines = io.TextIOWrapper(io.BytesIO(b"x,y\n" + data), "latin-1", newline="").readlines()
    for record in records:
        assert "".join(lines[record.line - 1 :]).encode("latin-1").startswith(record.raw)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("seed", range(50))
def test_csv_round_trip_keeps_values(seed, end):
    values = [drawn(seed * 100 + i, 12).decode("utf-8", "ignore") for i in range(60)]
    rows = [["x", "y", "z"], *(values[i : i + 3] for i in range(0, 60, 3))]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
    records = list(csv_records(decoded(io.BytesIO(text.getvalue().encode())), ",", 3))
    assert [record.values for record in records] == rows[1:]


@pytest.mark.parametrize("seed", range(50))
def test_every_nonempty_json_line_is_a_record(seed):
    data = drawn(seed)
    lines = [line.rstrip("\r\n") for line in decoded(io.BytesIO(data))]
    raw = [record.raw.decode("utf-8", "surrogateescape") for record in json_records(decoded(io.BytesIO(data)), [], {})]
    first = lines[0].removeprefix("\ufeff") if lines else ""
    assert raw == [line for i, line in enumerate(lines) if (first if i == 0 else line).strip()]
