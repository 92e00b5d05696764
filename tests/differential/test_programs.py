"""Random transactions, as programs in events, executed in random ways; and planted faults to detect."""

import functools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differential import programs
from tests.differential.faulty import FAULTS, Faulty, lost_dependency, right
from tests.differential.streams import Stream, Subject, Way, examine, streams, ways

LONGEST = 1 + 8 * programs.STEP
# Of each plan's tables the rows: the fewest there can be, more of them than threads, and tables of different sizes.
ROWS = {"tidy": (3, 2, 1), "joint": (1, 1, 1), "late": (40, 9, 5)}


def encode(stream: Stream) -> pa.Table:
    """The first byte is an event's code, the others are its program; each round names other rows."""
    drawn = stream.events
    if not stream.fails:
        drawn = [event.replace(bytes([programs.FAILS]), b"\xfe") for event in drawn]
    n = len(drawn) * stream.rounds
    columns = {
        "seq": np.arange(n),
        "code": [event[0] for event in drawn] * stream.rounds,
        "span": np.full(n, stream.span),
        "shift": np.repeat(np.arange(stream.rounds), len(drawn)),
        "program": [event[1:] for event in drawn] * stream.rounds,
    }
    schema = programs.Event.resolve({}).arrow(("seq",))
    arrays = [pa.array(columns[name], kind) for name, kind in zip(schema.names, schema.types, strict=True)]
    return pa.table(arrays, schema=schema)


@functools.cache
def subject(plan: str, rows: tuple[int, ...]) -> Subject:
    return Subject(programs.APPS[plan], dict(zip(("accounts", "shelves", "tallies"), rows, strict=True)), encode)


def examine_all(subjects: list[tuple], examples: int) -> None:
    seen = dict.fromkeys(("passes", "accepted", "rejected", "dropped", "failed"), 0)

    @given(subjects=st.sampled_from(subjects), stream=streams(1, LONGEST), ways=ways())
    @examine(examples)
    def agree(subjects, stream, ways):
        expected = subject(*subjects).agrees(stream, ways)
        seen["passes"] += len(ways)
        seen["failed"] += expected.failed is not None
        seen["rejected"] += expected.rejected
        seen["dropped"] += expected.dropped
        seen["accepted"] += len(stream.events) * stream.rounds - expected.rejected - expected.dropped

    agree()
    # A comparison of nothing is not a pass.
    assert seen["passes"] > examples
    assert seen["failed"] >= examples // 100
    assert min(seen["accepted"], seen["rejected"], seen["dropped"]) > examples // 4, seen


@pytest.mark.slow
@pytest.mark.parametrize("plan", list(ROWS))
def test_programs_equal_the_oracle_in_full(plan):
    examine_all([(plan, rows) for rows in ROWS.values()], 5000)


# --- the test of the test -------------------------------------------------------------------------------------------


ALONE = Way((("executor", "transactional"),), threads=1, punctuation=1, batch=1, block=1, idle="yield")


def search(carry_out, examples: int) -> list[Stream]:
    """The streams that reveal the fault of such an engine; the last one is the smallest."""
    of = "tidy", ROWS["tidy"]
    sound, failing = subject(*of), []
    faulty = Faulty(sound.app, sound.params, carry_out)

    @given(stream=streams(1, LONGEST))
    @examine(examples)
    def agree(stream):
        try:
            sound.agrees(stream, [ALONE], lambda events, way: sound.interpreted(events, faulty))
        except AssertionError:
            failing.append(stream)
            raise

    try:
        agree()
    except AssertionError:
        assert failing
    return failing


@pytest.mark.slow
def test_search_accepts_an_engine_without_a_fault():
    assert search(right, 50) == []


@pytest.mark.parametrize("fault", sorted(FAULTS, key=lambda fault: fault is lost_dependency))
@pytest.mark.slow
def test_search_finds_a_fault_and_shrinks_it_to_a_few_events(fault):
    smallest = search(fault, 300)[-1]
    assert len(smallest.events) * smallest.rounds <= 3, smallest
    steps = [len(event) // programs.STEP for event in smallest.events]
    assert sum(steps) <= 6, smallest
