"""Engines that take turns at random programs, and at every application, end with the oracle's result.

Each test runs some programs in a process of its own (`relay.py`). The numbers of resumes, and of events that were lost,
are printed at the end of the pytest run (`tests/conftest.py`).
"""

import itertools
import sys

import pytest

from streaming_core.apps import registry
from tests.differential import relay
from tests.differential.test_campaign import LIMIT, watch

CHUNK = 3  # programs of a test
CHUNKS = [(kind, at) for kind, count in relay.PROGRAMS.items() for at in range(0, count, CHUNK)]
# One of each kind; they have windows, joins and texts in state. test_faults.py has quick dataflows.
QUICK = [("windowed", 4), ("transaction", 0)]


def check(tmp_path, record_property, kind, *names):
    command = [sys.executable, "-m", "tests.differential.relay", kind, *map(str, names)]
    counts, failures = watch(command, LIMIT, tmp_path)
    record_property("relay", {"kind": kind, **counts})
    assert not failures, "\n\n".join(failures)
    return counts


@pytest.mark.parametrize(("kind", "number"), QUICK)
def test_program_resumed_in_other_ways_equals_the_oracle(kind, number, tmp_path, record_property):
    counts = check(tmp_path, record_property, kind, number, "0..8")
    assert counts["races"] == 8
    assert counts["resumes"] > 2 * 8


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "start"), CHUNKS)
def test_random_programs_resumed_in_other_ways_equal_the_oracle(kind, start, tmp_path, record_property):
    stop = min(start + CHUNK, relay.PROGRAMS[kind])
    counts = check(tmp_path, record_property, kind, f"{start}..{stop}")
    assert counts["programs"] == stop - start


@pytest.mark.slow
@pytest.mark.parametrize("name", [*registry.names(), *itertools.chain(*map(registry.names, registry.SUITES))])
def test_application_resumed_in_other_ways_equals_the_oracle(name, tmp_path, record_property):
    assert check(tmp_path, record_property, "app", name)["resumes"] > relay.RACES


def test_relay_is_long_enough():
    assert sum(relay.PROGRAMS.values()) >= 60
