"""The row counts of the tasks of executor pinned match the rows in the pipeline."""

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.run.way import Pinned
from tests.differential.case import Case

SMALL = {
    "wc": {"vocabulary": 5},
    "fd": {"entities": 3, "invalid_ratio": 0.05},
    "lr": {"seconds": 300, "veh_per_s": 0.05, "request_ratio": 0.3},
    "wordcount": {"vocabulary": 5, "advance": 3_000, "size": 7_000},
    "scalejoin": {"keys": 5, "domain": 300, "size": 9_001},
}
EVENTS = 2000
WAYS = [
    *(
        (name, n, {"channel": channel})
        for name in ("wc", "fd", "lr")
        for channel in ("gate", "scalegate", "merge_sort")
        for n in (1, 2)
    ),
    *(
        (name, n, {"parallelism": by})
        for name in ("wordcount", "scalejoin")
        for by in ("vsn", "vsn_esg", "sn")
        for n in (1, 2)
    ),
    ("wc", 2, {"plan": {"source": [0, 1, 1], "split": [1], "count": [0, 0, 1]}}),
]


@pytest.fixture(scope="module")
def cases():
    cases_by_name = {}
    for name, chosen in SMALL.items():
        app = registry.load(name)
        params = app.bind(chosen)
        cases_by_name[name] = Case(app, params, workload.generate_chunk(app, params, EVENTS, 3, 0, EVENTS))
    return cases_by_name


@pytest.mark.parametrize(("name", "threads", "way"), WAYS, ids=str)
@pytest.mark.slow
def test_every_emitted_row_is_consumed(cases, name, threads, way):
    case = cases[name]
    sample = case.check(Pinned(app=name, threads=threads, batch=64, **way))
    operators = {operator.name: operator for operator in case.app.operators[1:-1]}

    def rows(operator, role, end):
        return [getattr(task, f"rows_{end}") for task in sample.tasks if (task.operator, task.role) == (operator, role)]

    def put_out(inputs):
        # The report calls the task that distributes events "source", whatever its name in the application.
        of = [(o.name, "operator") if o.name in operators else ("source", "source") for o in inputs]
        return sum(sum(rows(operator, role, "out")) for operator, role in of)

    assert sum(rows("source", "source", "out")) == EVENTS
    for operator in operators.values():
        there = put_out(operator.inputs)
        taken = rows(operator.name, "operator", "in")
        if operator.kind == "windowed":
            # As published, every replica sees every row and finds its keys. The replicas of a join share all rows, too.
            # Else each takes the rows that are handed on to it.
            parallelism = way["parallelism"]
            handed_on = sum(rows(operator.name, "keys", "out"))
            assert sum(rows(operator.name, "keys", "in")) == (0 if parallelism == "vsn_esg" else there)
            is_shared = parallelism == "vsn_esg" or (parallelism == "vsn" and len(operator.inputs) > 1)
            assert taken == [there] * len(taken) if is_shared else sum(taken) == handed_on
        else:
            assert sum(taken) == there
    assert sum(rows("sink", "sink", "in")) == put_out(case.app.operators[-1].inputs)
    for task in sample.tasks:
        assert (task.batches > 0) == (task.rows_in > 0) == bool(task.execute_quantiles)
        assert task.execute_quantiles == sorted(task.execute_quantiles)
