"""Locks that one process has alone, or several share. Threads stand for processes: `flock` treats both alike."""

import itertools
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_core.regression.home import Home
from streaming_core.regression.lock import SharedLock, hold, of_home, of_host, of_warehouse, signature
from tests.support.waiting import wait_for

PATIENCE = 20


@pytest.fixture
def locks(tmp_path):
    """Makes objects for one lock."""
    return lambda: SharedLock(tmp_path / "lock", "the host")


def owners(lock):
    return [holder["owner"] for holder in lock.holders()]


@pytest.mark.parametrize(("first", "second"), [*itertools.product((False, True), repeat=2)])
def test_only_sharers_have_the_lock_at_once(locks, first, second):
    a, b = locks(), locks()
    assert a.take(signature("a"), first)
    assert b.take(signature("b"), second) == (first and second)
    assert owners(locks()) == (["a", "b"] if first and second else ["a"])
    a.leave()
    assert b.take(signature("b"), second) or (first and second)
    assert owners(locks()) == ["b"]
    b.leave()
    assert locks().holders() == []


def test_waiting_process_goes_before_later_sharers(locks):
    a, alone, late = locks(), locks(), locks()
    assert a.take(signature("a"), True)
    assert not alone.take(signature("cell"))
    assert not late.take(signature("late"), True), "it would keep the waiting process out for ever"
    assert late.waiting(True).startswith("waiting: the host is in use by cell on ")
    a.leave()
    assert not late.take(signature("late"), True)
    assert alone.take(signature("cell"))
    assert not late.take(signature("late"), True)
    alone.leave()
    assert late.take(signature("late"), True)
    late.leave()


def test_process_that_gives_up_leaves_the_queue(locks):
    a, alone, late = locks(), locks(), locks()
    assert a.take(signature("a"), True)
    assert not alone.take(signature("cell"))
    alone.leave()
    assert late.take(signature("late"), True)
    a.leave()
    late.leave()


def test_line_names_the_run_of_everyone_ahead(locks):
    run = "20260101T000000Z-00000000"
    a, b = locks(), locks()
    assert a.take(signature("run_oracle", run=run), True)
    assert b.take(signature(run), True)
    line = locks().waiting()
    assert f"run_oracle of run {run} on " in line
    assert f", run {run} on " in line
    assert locks().waiting(shared=True) == "", "it would get in"
    a.leave()
    b.leave()
    assert locks().waiting() == ""


# A step: an actor of four takes the lock alone, shares it, or leaves it.
STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("alone", "share", "leave"))), max_size=30)


@settings(deadline=None)
@given(STEPS)
def test_any_sequence_keeps_out_all_others_than_sharers(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("lock") / "lock"
    actors = [SharedLock(path, "it") for _ in range(4)]
    has: dict[int, str] = {}  # by actor, how it has the lock
    waits: dict[int, str] = {}  # by actor, how it wants the lock
    for number, step in steps:
        if step == "leave":
            actors[number].leave()
            has.pop(number, None)
            waits.pop(number, None)
        elif number not in has:
            step = waits.get(number, step)
            if actors[number].take(signature(str(number)), step == "share"):
                has[number] = step
                waits.pop(number, None)
            else:
                waits[number] = step
        assert "alone" not in has.values() or len(has) == 1
        assert sorted(owners(SharedLock(path, "it"))) == sorted(map(str, has))
    for actor in actors:
        actor.leave()
    assert SharedLock(path, "it").take(signature("the last"))


def test_two_runs_that_measure_take_turns(locks):
    """A run that waits comes next, however soon the other one wants the lock again."""
    waiter, other = locks(), locks()
    assert waiter.take(signature("cell"))
    for first, second in [(waiter, other), (other, waiter)] * 5:
        assert not second.take(signature("cell"))
        first.leave()
        assert not first.take(signature("cell"))
        assert second.take(signature("cell"))


@pytest.mark.parametrize("shared", [False, True])
def test_killed_holder_leaves_the_lock_and_its_signature(tmp_path, locks, shared):
    program = (
        "import sys; from pathlib import Path\n"
        "from streaming_core.regression.lock import *\n"
        f"with hold(SharedLock(Path({str(tmp_path / 'lock')!r}), 'it'), 'build', {shared}, server='s'):\n"
        "    print('has it', flush=True); input()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"has it\n"
    assert owners(locks()) == ["build"]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: locks().holders() == [], PATIENCE)
    lock = locks()
    with hold(lock, "next"):
        assert lock.remains.get("server") == (None if shared else "s")
    with hold(lock, "a third"):
        assert lock.remains == {}, "the second left it in order"


def test_wait_says_one_line_for_each_change_and_ends_with_a_check(locks):
    lines, a = [], locks()
    assert a.take(signature("a"))

    def check() -> None:
        if lines:
            raise InterruptedError

    with pytest.raises(InterruptedError), hold(locks(), "b", say=lines.append, check=check):
        raise AssertionError("it has the lock")
    assert len(lines) == 1
    a.leave()
    assert locks().take(signature("c")), "it left the queue"


def test_locks_of_home_warehouse_and_host_are_independent(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(tmp_path / "host.lock"))
    home = Home(tmp_path / "home")
    with (
        hold(of_home(home), "a", shared=True),
        hold(of_host(), "a", shared=True),
        hold(of_warehouse(home), "a"),
        hold(of_home(home), "b", shared=True),
        hold(of_host(), "b", shared=True),
    ):
        assert [len(lock.holders()) for lock in (of_home(home), of_host(), of_warehouse(home))] == [2, 2, 1]
        assert not of_warehouse(home).take(signature("b"))
