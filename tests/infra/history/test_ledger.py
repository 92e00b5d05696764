"""Appends to the chain of decisions all land, and readers notice any single change of it."""

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.history import ledger
from streaming_core.errors import BadInput
from streaming_core.regression.decisions import Decision, acknowledgements, chain, decisions, entry_digest, last_file
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import DECISIONS, parts
from streaming_core.storage import sha256_of
from tests.differential.streams import examine
from tests.support.draws import some

RUN = "20260105T020000Z-00000005"


def decided(number: int) -> dict:
    """The columns of one decision."""
    about = {"decision": "acknowledged", "decided_by": "ada", "why": f"reason {number}", "of_run": RUN}
    return about | {"cell": f"cell{number}", "decided_at": datetime(2026, 1, 5, 7, number, tzinfo=UTC)}


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Home:
    """Four appends of one, two, one and three entries. No test changes it."""
    home = Home(tmp_path_factory.mktemp("written"))
    numbers = iter(range(7))
    for count in (1, 2, 1, 3):
        ledger.append(home, [decided(next(numbers)) for _ in range(count)])
    return home


@pytest.fixture
def home(written, tmp_path) -> Home:
    """A copy of `written`, to change."""
    return copy(written, tmp_path / "copy")


def copy(home: Home, to: Path) -> Home:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(home.root, to)
    return Home(to)


def in_order(home: Home) -> list[Path]:
    """The files of the entries, oldest first."""
    return sorted(parts(home, "decisions"), key=lambda path: pq.read_table(path).column("entry").to_pylist())


def rewrite(part: Path, edit: Callable[[list[dict]], list[dict]]) -> None:
    rows = edit(pq.ParquetFile(part).read().to_pylist())
    pq.write_table(pa.Table.from_pylist(rows, schema=DECISIONS), part)


def test_entries_are_numbered_and_linked(written):
    rows = chain(written)
    assert [row["entry"] for row in rows] == list(range(1, 8))
    assert [row["why"] for row in rows] == [f"reason {number}" for number in range(7)]
    assert [row["previous"] for row in rows] == ["0" * 64, *(row["digest"] for row in rows[:-1])]
    # By hand: SHA-256 over the canonical JSON of the other columns.
    content = {name: value for name, value in rows[2].items() if name != "digest"}
    content["decided_at"] = "2026-01-05T07:02:00.000000+00:00"
    assert rows[2]["digest"] == sha256_of(content)
    assert json.loads(last_file(written).read_text()) == {"entry": 7, "digest": rows[-1]["digest"]}


def test_home_without_decisions_has_no_entries(tmp_path):
    assert decisions(Home(tmp_path)) == []


OTHER = {
    pa.string(): st.none() | st.text(max_size=70) | st.sampled_from(["0" * 64, "acknowledged", "withdrawn", RUN]),
    pa.int32(): st.none() | st.integers(0, 3),
    pa.int64(): st.none() | st.integers(-1, 9),
    pa.timestamp("us", tz="UTC"): st.none()
    | st.datetimes(timezones=st.just(UTC))
    | st.just(datetime(2026, 1, 5, 7, 0, 0, 1, tzinfo=UTC)),
}


@examine(150)
@given(entry=st.integers(0, 6), field=st.sampled_from(list(DECISIONS)), data=st.data())
@pytest.mark.slow
def test_changed_value_in_any_column_of_any_entry_is_refused(written, tmp_path_factory, entry, field, data):
    value = data.draw(OTHER[field.type])
    home = copy(written, tmp_path_factory.getbasetemp() / "changed")
    part, at = [(part, at) for part in in_order(home) for at in range(pq.read_metadata(part).num_rows)][entry]
    before = pq.read_table(part).column(field.name)[at].as_py()
    rewrite(part, lambda rows: [*rows[:at], rows[at] | {field.name: value}, *rows[at + 1 :]])
    if value == before:
        assert decisions(home) == decisions(written)
        return
    with pytest.raises(BadInput) as refused:
        decisions(home)
    assert str(part) in str(refused.value) or str(home.raw("decisions")) in str(refused.value)
    assert "\n" not in str(refused.value)


@examine(20)
@given(st.sets(st.integers(0, 6), min_size=1))
def test_removed_entries_are_refused_at_every_position(written, tmp_path_factory, removed):
    home = copy(written, tmp_path_factory.getbasetemp() / "removed")
    numbers = iter(range(7))
    for part in in_order(home):
        rewrite(part, lambda rows: [row for row in rows if next(numbers) not in removed])
    with pytest.raises(BadInput, match=rf"entry {min(removed) + 1}\b.* is missing; restore"):
        decisions(home)


@examine(20)
@given(st.permutations(range(7)))
def test_entries_in_another_order_are_refused(written, tmp_path_factory, order):
    """The numbers stay where they were, and the rest of the entries moves."""
    home = copy(written, tmp_path_factory.getbasetemp() / "moved")
    rows, numbers = chain(home), iter(range(7))
    for part in in_order(home):
        rewrite(part, lambda old: [rows[order[n]] | {"entry": n + 1} for n in (next(numbers) for _ in old)])
    if order == list(range(7)):
        assert decisions(home) == decisions(written)
        return
    first = next(n for n in range(7) if order[n] != n)
    with pytest.raises(BadInput, match=f"/part-0.parquet: entry {first + 1} was changed: "):
        decisions(home)


def test_duplicate_file_is_refused(home):
    part = in_order(home)[1]
    shutil.copytree(part.parent, part.parent.with_name("copy"))
    with pytest.raises(BadInput, match="entry 2 is there twice; restore"):
        decisions(home)


def test_entry_replaced_with_its_digest_breaks_the_next_link(home):
    forged = dict(chain(home)[0], why="another reason")
    forged["digest"] = entry_digest(forged)
    rewrite(in_order(home)[0], lambda rows: [forged])
    with pytest.raises(BadInput, match="entry 2 does not follow entry 1: it names another digest"):
        decisions(home)


def test_last_entry_replaced_with_its_digest_is_refused(home):
    forged = dict(chain(home)[-1], why="another reason")
    forged["digest"] = entry_digest(forged)
    part = in_order(home)[-1]
    rewrite(part, lambda rows: [*rows[:-1], forged])
    with pytest.raises(BadInput, match=f"{part}: entry 7 is not the one that _last.json names"):
        decisions(home)


@pytest.mark.parametrize("length", [0, 4, 100, -1])
def test_truncated_file_is_refused(home, length):
    part = in_order(home)[-1]
    part.write_bytes(part.read_bytes()[:length])
    with pytest.raises(BadInput, match=f"^cannot read {part}: "):
        decisions(home)


def test_append_to_a_damaged_chain_writes_nothing(home):
    rewrite(in_order(home)[0], lambda rows: [rows[0] | {"why": "x"}])
    before = {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()}
    with pytest.raises(BadInput, match="entry 1 was changed"):
        ledger.append(home, [decided(8)])
    assert {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()} == before


def test_append_changes_no_earlier_file(home):
    before = {path: path.read_bytes() for path in parts(home, "decisions")}
    ledger.append(home, [decided(8)])
    assert {path: path.read_bytes() for path in before} == before
    assert len(decisions(home)) == 8


def _append(root: str, writer: int, start) -> None:
    start.wait()
    for number in range(10):
        ledger.append(Home(root), [decided(number) | {"decided_by": f"writer {writer}"}] * 2)


@pytest.mark.slow
def test_concurrent_appends_of_two_processes_both_land(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(2)
    writers = [spawn.Process(target=_append, args=(str(tmp_path), writer, start)) for writer in range(2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        chain(Home(tmp_path))  # a reader in between never refuses
    assert [writer.exitcode for writer in writers] == [0, 0]
    by_writer: dict[str, list[Decision]] = {}
    for decision in decisions(Home(tmp_path)):
        by_writer.setdefault(decision.decided_by, []).append(decision)
    for entries in by_writer.values():
        assert [entry.decided_at for entry in entries] == [
            decided(n)["decided_at"] for n in range(10) for _ in range(2)
        ]
    assert len(by_writer) == 2


def _die_in(root: str, function: str, at: int) -> None:
    calls = iter(range(10))
    real = getattr(os, function)

    def kill(*arguments, **options):
        if next(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    setattr(os, function, kill)
    ledger.append(Home(root), [decided(7), decided(8)])


@pytest.mark.parametrize("is_first", some([True, False]))
@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_killed_append_is_atomic_and_the_next_one_lands(tmp_path, written, function, is_first):
    spawn = multiprocessing.get_context("fork")
    lengths = set()
    for at in range(10):
        home = Home(tmp_path / str(at)) if is_first else copy(written, tmp_path / str(at))
        before = len(decisions(home))
        writer = spawn.Process(target=_die_in, args=(str(home.root), function, at))
        writer.start()
        writer.join(60)
        count = len(decisions(home))
        assert count in (before, before + 2)
        lengths.add(count - before)
        ledger.append(home, [decided(9)])
        assert [row["entry"] for row in chain(home)] == list(range(1, count + 2))
        if writer.exitcode == 0:
            break
        assert writer.exitcode == -signal.SIGKILL
    else:
        pytest.fail(f"an append calls os.{function} more than ten times")
    assert lengths == {0, 2}


def test_last_entry_of_a_cell_counts_whatever_its_time(tmp_path):
    early = decided(1) | {"why": "second", "decided_at": decided(1)["decided_at"] - timedelta(days=1)}
    ledger.append(Home(tmp_path), [decided(1)])
    ledger.append(Home(tmp_path), [early])
    assert [acknowledgement.why for acknowledgement in acknowledgements(Home(tmp_path)).values()] == ["second"]
