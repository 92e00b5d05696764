"""The properties of applications hold on adversarial events, and on events that the search draws."""

from random import Random

import pytest

from streaming_core.apps import registry
from streaming_core.conformance import workloads
from streaming_core.search import scenario
from streaming_core.search.draws import draw
from tests.support.draws import some

STATED = [name for name in registry.names() if registry.load(name).properties]


@pytest.mark.parametrize("name", some(STATED, 4))
def test_properties_hold_on_adversarial_events(name):
    app = registry.load(name)
    for case in workloads.cases(app):
        if isinstance(case, workloads.Case):
            assert not list(scenario.broken(app, app.bind(case.params), case.events)), case.name


@pytest.mark.parametrize("name", some(STATED))
def test_properties_hold_on_drawn_events(name):
    app, random = registry.load(name), Random(7)
    for _ in range(4):
        drawn = draw(app, {}, random, [])
        assert not list(scenario.broken(app, app.bind(), drawn.events)), drawn.origin


def test_most_applications_state_a_property():
    assert len(STATED) >= 12
