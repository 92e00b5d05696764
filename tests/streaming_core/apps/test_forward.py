"""forward: every instance forwards every row, or the instances alternate, in order."""

import pytest

from streaming_core.apps import registry
from tests.streaming_core.apps.windows import run


@pytest.mark.parametrize(
    ("copies", "once"),
    [
        (8, True),
        *(
            pytest.param(*parallelism, marks=pytest.mark.slow)
            for parallelism in [(1, False), (1, True), (3, True), (8, False)]
        ),
    ],
)
def test_forward_emits_every_tweet(copies, once):
    events, result = run("forward", {"copies": copies, "once": once, "rate": 2_000.0})
    assert result.columns("seq", "sub", "ts", "instance", "user", "text") == [
        (e["seq"], 0 if once else i, e["ts"] + 1, i, e["user"], e["text"])
        for e in events
        for i in (range(copies) if not once else [e["seq"] % copies])
    ]
    assert len({e["ts"] for e in events}) < len(events)  # some come at one moment


@pytest.mark.slow
def test_streams_alternate():
    app = registry.load("forward")
    assert app.operator("forward").window.streams == (0, 1)
    even, odd = (operator.name for operator in app.operator("forward").inputs)
    assert (even, odd) == ("even", "odd")
    rows = [{"ts": 5, "user": i, "text": b"same time"} for i in range(5)]
    _, result = run("forward", {"copies": 2}, rows)
    assert result.columns("seq", "instance", "user") == [(i, k, i) for i in range(5) for k in range(2)]
