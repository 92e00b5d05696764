"""BriskStream's published versions of WC and LR equal Lockstep's, and their selectivities match table 8."""

import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.run.way import Pinned
from tests.differential.case import Case
from tests.streaming_core.apps.test_lr import check_lr
from tests.streaming_core.generator import traffic
from tests.support import by_hand

# A road with valid reports only: then a vehicle reports every 30 s.
ROAD = {"seconds": 3_600, "veh_per_s": 2.0, "request_ratio": 0.01}


@pytest.mark.parametrize("params", [{}, {"skew": 1.0, "words": 3, "invalid_ratio": 0.2}])
def test_brisk_wc_equals_wc(params):
    (_, ours), (_, published) = by_hand.run_generated("wc", params), by_hand.run_generated("brisk_wc", params)
    assert published.outputs == ours.outputs
    assert published.dropped == ours.dropped
    assert (published.dropped > 0) == ("invalid_ratio" in params)


def test_the_parser_drops_the_lines_that_the_splitter_would_drop():
    result = by_hand.run_lines("brisk_wc", [b" a  b ", b"", b"   "])
    assert [output["word"] for output in result.outputs] == [b"a", b"b"]
    assert result.dropped == 1


def test_brisk_lr_equals_two_passes_over_an_example_by_hand():
    table = traffic.events()
    column = table.column_names.index("dir")
    straight = [0 if direction == 2 else direction for direction in table.column(column).to_pylist()]
    table = table.set_column(column, table.schema.field(column), pa.array(straight, table.schema.types[column]))
    result = by_hand.run(registry.load("brisk_lr"), {}, table)
    check_lr(table.to_pylist(), result, 40)
    assert {output["kind"] for output in result.outputs} == set(range(6))


def test_brisk_lr_equals_two_passes_over_a_generated_road():
    app = registry.load("brisk_lr")
    events = workload.generate_chunk(app, ROAD, 25_000, 3, 0, 25_000)
    result = by_hand.run(app, ROAD, events)
    check_lr(events.to_pylist(), result, 40)
    assert any(output["kind"] == 3 for output in result.outputs)


def test_brisk_lr_drops_reports_without_a_direction():
    events, result = by_hand.run_generated("brisk_lr", {**ROAD, "invalid_ratio": 0.1})
    assert result.dropped == sum(e["type"] == 0 and e["dir"] > 1 for e in events) > 0


# Outputs per input: 1 and .99 as they are, and what table 8 rounds to 0.
SELECTIVITIES = {
    "parse": (1.0, 1.0),
    "position_reports": (0.98, 1.0),
    "balance_requests": (0.0, 0.02),
    "expenditure_requests": (0.0, 0.02),
    "average_speed": (1.0, 1.0),
    "latest_velocity": (1.0, 1.0),
    "vehicle_count": (1.0, 1.0),
    "accident_detection": (0.0, 0.02),
    "accident_notification": (0.0, 0.02),
    "toll_notification": (0.98, 1.0),
    "account_balance": (0.0, 0.02),
}


@pytest.mark.slow
def test_brisk_lr_matches_the_selectivities_of_table_8():
    app = registry.load("brisk_lr")
    params = app.bind(ROAD)
    case = Case(app, params, workload.generate_chunk(app, params, 5_000, 3, 0, 5_000))
    tasks = {task.operator: task for task in case.check(Pinned(app="brisk_lr", threads=1)).tasks}
    for name, (low, high) in SELECTIVITIES.items():
        assert low <= tasks[name].rows_out / tasks[name].rows_in <= high, name
