"""Tables in part files: reading in order, in slices across files, and refusing damaged parts."""

import itertools
import threading
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core import interruption
from streaming_core.data import parts
from streaming_core.data.parts import Parts, Writer, ahead, part_path, states, write_states
from streaming_core.errors import BadInput


def rows(start, stop):
    columns = pa.array(range(start, stop), pa.int64()), pa.array([b"x"] * (stop - start), pa.binary())
    return pa.table(columns, ["n", "text"])


@pytest.fixture
def folder(tmp_path):
    """Rows 0..99 in files and row groups of several sizes, one of them empty."""
    ends = [0, 7, 7, 60, 100]
    for number, (start, stop) in enumerate(pairwise(ends)):
        pq.write_table(rows(start, stop), part_path(tmp_path, number), row_group_size=11)
    return tmp_path


def numbers(tables):
    return [table["n"].to_pylist() for table in tables]


def test_parts_are_ordered_by_number(tmp_path):
    names = [part_path(tmp_path, number).name for number in (9, 99_999, 100_000)]
    assert names == ["part-00009.parquet", "part-99999.parquet", "part-100000.parquet"]
    for name in (*names, ".part-00000.parquet", "other.parquet"):
        (tmp_path / name).touch()
    assert [path.name for path in Parts.of(tmp_path).paths] == names


@pytest.mark.parametrize("size", [1, 7, 11, 64, 100, 1000])
@pytest.mark.parametrize("start", [0, 7, 13, 99, 100])
def test_slices_have_one_size_across_files(folder, size, start):
    table = Parts.of(folder)
    assert (table.rows, table.sizes, table.schema) == (100, [7, 0, 53, 40], rows(0, 0).schema)
    left = list(range(start, 100))
    assert numbers(table.slices(size, start=start)) == [left[at : at + size] for at in range(0, len(left), size)]


def test_only_requested_columns_are_read(folder):
    table = Parts.of(folder)
    assert next(table.slices(30, ["text", "n"])).column_names == table.read(["text", "n"]).column_names == ["text", "n"]
    assert table.read().equals(rows(0, 100))
    assert next(table.slices(30, [])).shape == (30, 0)


def test_a_signal_interrupts_reading_between_slices(folder, monkeypatch):
    slices = Parts.of(folder).slices(10)
    next(slices)
    monkeypatch.setattr(interruption, "_noted", lambda: 15)
    with pytest.raises(interruption.Interrupted):
        list(slices)


def test_a_writer_rolls_files_and_always_leaves_one(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART_ROWS", 10)
    with Writer(tmp_path / "a", rows(0, 0).schema) as writer:
        for at in range(0, 30, 6):
            writer.write(rows(at, at + 6))
        writer.cut()
        assert (writer.parts, Parts.of(tmp_path / "a").sizes) == (3, [12, 12, 6])
    with Writer(tmp_path / "a", rows(0, 0).schema, 2) as writer:
        writer.write(rows(24, 27))
    assert numbers(Parts.of(tmp_path / "a").slices(100)) == [list(range(27))]
    with Writer(tmp_path / "b", rows(0, 0).schema):
        pass
    assert Parts.of(tmp_path / "b").sizes == [0]


def test_a_writers_error_is_raised_and_ends_its_thread(tmp_path, monkeypatch):
    """A full disk at the second of many tables raises one error soon, and nothing follows."""
    tried = []

    def full(self, table):
        tried.append(table.num_rows)
        if len(tried) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Writer, "_write", full)

    def write():
        with Writer(tmp_path / "a", rows(0, 0).schema) as writer:
            for _ in range(20):
                writer.write(rows(0, 3))

    with pytest.raises(OSError, match="No space left"):
        write()
    assert 2 <= len(tried) <= 2 + parts.WAITING
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("writing")]
    with pytest.raises(KeyError), Writer(tmp_path / "b", rows(0, 0).schema):
        raise KeyError
    assert not list((tmp_path / "b").iterdir())


def test_reading_ahead_keeps_items_and_raises_errors_in_order():
    def items():
        yield from range(3)
        raise BadInput("damaged")

    numbers = []
    with pytest.raises(BadInput, match="damaged"):
        numbers.extend(ahead(items()))  # extend keeps earlier items
    assert numbers == [0, 1, 2]
    endless = ahead(itertools.count())
    assert [next(endless), next(endless)] == [0, 1]
    endless.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("reading")]


def test_every_final_table_has_a_file(tmp_path):
    write_states(tmp_path, {"b": rows(0, 3), "a": rows(0, 2)})
    (tmp_path / "state" / ".c.parquet").touch()
    assert {name: table.rows for name, table in states(tmp_path).items()} == {"a": 2, "b": 3}
    assert states(tmp_path / "nowhere") == {}


def missing(path):
    path.unlink()


def truncated(path):
    path.write_bytes(path.read_bytes()[:-20])


def of_other_columns(path):
    pq.write_table(rows(0, 1).select(["n"]), path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (missing, "{path} is missing"),
        (truncated, "cannot read {path}: "),
        (of_other_columns, "{path} must have the same columns as part-00000.parquet"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name(folder, damage, words):
    path = part_path(folder, 2)
    table = Parts(Parts.of(folder).paths)
    damage(path)
    with pytest.raises(BadInput) as refused:
        _ = table.rows
    assert str(refused.value).startswith(words.format(path=path))
    assert "\n" not in str(refused.value)
    with pytest.raises((BadInput, KeyError)):
        table.read(["n", "text"])


def test_reading_detects_damaged_pages(folder):
    path = part_path(folder, 2)
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)
    path.write_bytes(content)
    table = Parts.of(folder)
    assert table.rows == 100  # the footer is whole
    for read in (table.read, lambda: list(table.slices(10))):
        with pytest.raises(BadInput, match=f"^cannot read {path}: "):
            read()
