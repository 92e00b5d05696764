"""Counters of loads from memory nodes. Page faults stand in for the loads, because every machine counts them."""

import mmap
import threading

import pytest

from streaming_core.run.energy import Spent
from streaming_core.run.node_loads import EVENTS, Counters

PAGE_FAULTS = (1, 2)  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS
PAGES = 64


@pytest.fixture
def counters():
    counting = Counters([PAGE_FAULTS, PAGE_FAULTS])
    if counting.why:
        pytest.skip(counting.why)
    yield counting
    counting.close()


def touch(pages: int) -> None:
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1


def test_events_of_later_threads_count_too(counters):
    before = counters.read()
    thread = threading.Thread(target=touch, args=(PAGES,))
    thread.start()
    thread.join()
    after = counters.read()
    assert after.loads - before.loads >= PAGES
    assert after.misses - before.misses >= PAGES


def test_only_events_of_the_counted_blocks_are_spent(counters):
    spent = Spent(None, counters=counters)
    touch(100 * PAGES)
    for _ in range(2):
        with spent.counting():
            touch(PAGES)
    assert 2 * PAGES <= spent.node_loads.loads < 100 * PAGES


def test_machine_without_such_counters_gives_the_reason():
    counters = Counters([(3, 0xFFFFFF)])
    assert counters.why.startswith("this machine does not count loads from memory nodes: ")
    assert counters.read() is None
    assert Spent(None, counters=counters).node_loads is None


def test_events_are_those_that_linux_calls_node_loads_and_misses():
    """include/uapi/linux/perf_event.h: the node is cache 6, reading operation 0, access result 0, and miss result 1."""
    assert EVENTS == ((3, 0x000006), (3, 0x010006))
