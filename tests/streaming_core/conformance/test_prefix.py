"""conformance/prefix.py: the smallest number of events with a difference."""

import itertools

import pytest

from streaming_core.conformance.prefix import Prefix, smallest

EVENTS = 1_000


class Engine:
    """An engine that is wrong from a number of events on, and records its runs."""

    def __init__(self, first):
        self.first, self.ran = first, []

    def __call__(self, events):
        self.ran.append(events)
        return events >= self.first


@pytest.mark.parametrize("first", [0, 1, 2, 499, 999, 1_000])
@pytest.mark.parametrize("guess", [None, 0, 1, 700, 999, 1_000])
def test_search_finds_the_smallest_prefix_from_any_guess(first, guess):
    engine = Engine(first)
    assert smallest(engine, EVENTS, guess, 60) == Prefix(first, True)
    assert len(engine.ran) <= 13


def test_a_right_guess_takes_two_runs():
    engine = Engine(401)
    assert smallest(engine, EVENTS, 400, 60).events == 401
    assert engine.ran == [401, 400]


def test_a_stream_without_events_is_run_again():
    assert smallest(Engine(0), 0, None, 60) == Prefix(0, True)


def test_no_run_begins_after_the_time_limit():
    clock = itertools.count(0, 25).__next__
    engine = Engine(1)
    assert smallest(engine, EVENTS, None, 60, clock) == Prefix(249, False)
    assert engine.ran == [499, 249]


def test_an_engine_that_succeeds_on_a_repeat_is_unsteady():
    assert smallest(lambda events: False, EVENTS, 10, 60) == Prefix(EVENTS, True, is_steady=False)
