"""The rows of a pipeline that branches and merges, calculated by hand."""

from streaming_core.oracle.interpreter import Interpreter
from tests.differential import branching


def test_one_event_matches_the_calculation_by_hand():
    oracle = Interpreter(branching.app.check(), {})
    event = branching.table(1).set_column(3, "value", [[7]]).set_column(2, "key", [[4]])
    outputs = oracle.process(event).to_pydict()
    # tally sees what twice made (keys 5 and 4), then the event (key 4), then its parity (key 1).
    totals = [(1, 14), (1, 21), (2, 21 * 3 + 7), (1, 1)]
    traced, state = [], 0
    for n, _ in totals:
        state = state * 5 + n
        traced.append((n, state))
    assert list(zip(outputs["n"], outputs["sum"], strict=True)) == traced + totals
    assert outputs["sub"] == list(range(8))
