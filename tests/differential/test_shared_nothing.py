"""Replicas of windowed operators that share nothing: rows are copied, and states as keys change owners."""

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.run.way import Pinned
from tests.differential.case import Case
from tests.support.draws import some


def swapped(operators, replicas, events, every):
    """Move all keys to each replica in turn, and to all replicas, again and again."""
    shares = [*([replica] for replica in range(replicas)), list(range(replicas)), list(reversed(range(replicas)))]
    return [
        {"event": event, "owners": dict.fromkeys(operators, shares[turn % len(shares)])}
        for turn, event in enumerate(range(0, events, every))
    ]


WINDOWED = [name for name in registry.names() if registry.load(name).kind == "windowed"]


@pytest.mark.parametrize("name", some(WINDOWED))
def test_applications_equal_the_interpreter_for_every_key_owner(name):
    app = registry.load(name)
    params = app.bind({"keys": 20} if name in ("scalejoin", "hedge") else {})
    events = 400
    case = Case(app, params, workload.generate_chunk(app, params, events, 5, 0, events))
    operators = [operator.name for operator in app.operators if operator.kind == "windowed"]
    for threads in (1, 2, 3):
        for every in (events, 31):
            how = {"threads": threads, "batch": 16, "schedule": swapped(operators, threads, events, every)}
            shared = case.check(Pinned(app=name, **how), 100)
            apart = case.check(Pinned(app=name, **how, parallelism="sn"), 100)
            history = [(at.event, at.replicas, at.moved) for at in apart.reconfigurations]
            assert history == [(at.event, at.replicas, at.moved) for at in shared.reconfigurations]
            assert {at.bytes for at in shared.reconfigurations} == {0}
            published = case.check(Pinned(app=name, **how, parallelism="vsn_esg"), 100)
            assert [(at.event, at.replicas, at.moved, at.bytes) for at in published.reconfigurations] == [
                (*change, 0) for change in history
            ]
