"""Every application's invariants hold on a right result, and each of them finds a wrong one."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.validate_outputs import invariant_query
from streaming_core import workload
from streaming_core.apps import registry
from tests.unit import by_hand

PARAMS = {
    "gs": {"n_items": 50, "invalid_ratio": 0.05},
    "sl": {"n_items": 20, "invalid_ratio": 0.05},
    "wc": {"vocabulary": 30, "words": 4, "invalid_ratio": 0.05},
    "fd": {"entities": 20, "window": 3, "threshold_e4": 9300, "invalid_ratio": 0.05},
    "sd": {"devices": 3, "window": 20, "spike_ratio": 0.05, "invalid_ratio": 0.05},
}
EVENTS = 400


def first(rows, which):
    return next(row for row in rows if which(row))


def set_first(rows, which, **fields):
    first(rows, which).update(fields)


def lose(rows, which=lambda row: True):
    rows.remove(first(rows, which))


def move_money(state):
    """One account gains what no other loses."""
    state[3]["balance"] += 1


MONEY = "money only moves: every balance ends as all began, plus what was accepted for it, minus what was taken from it"

# (application, invariant that must speak up, what is done to outputs and states)
WRONG = [
    (
        "gs",
        "one output of its kind for each valid event, none for others; a write sums up nothing",
        lambda o, s: lose(o),
    ),
    ("gs", "a record ends with its newest write, or as it began", lambda o, s: s["state_items"][7].update(value=-1)),
    ("gs", "a read sums up the newest earlier writes", lambda o, s: set_first(o, lambda r: r["is_read"], total=5)),
    (
        "gs",
        "one output of its kind for each valid event, none for others; a write sums up nothing",
        lambda o, s: set_first(o, lambda r: not r["is_read"], is_read=True),
    ),
    (
        "gs",
        "one output of its kind for each valid event, none for others; a write sums up nothing",
        lambda o, s: set_first(o, lambda r: not r["is_read"], mixed=1),
    ),
    ("sl", "one output of its kind for each valid event, none for others", lambda o, s: o.append(dict(o[0], sub=1))),
    ("sl", MONEY, lambda o, s: move_money(s["state_accounts"])),
    ("sl", MONEY, lambda o, s: move_money(s["state_assets"])),
    ("sl", MONEY, lambda o, s: set_first(o, lambda r: r["kind"] == 1 and r["ok"], ok=False)),
    ("sl", "no balance is ever negative", lambda o, s: set_first(o, lambda r: r["kind"] == 1, dst_acct=-1)),
    ("sl", "no balance is ever negative", lambda o, s: s["state_assets"][2].update(balance=-1)),
    (
        "sl",
        "deposits are accepted, and transfers just when their sources had enough",
        lambda o, s: set_first(o, lambda r: r["kind"] == 0, ok=False),
    ),
    (
        "sl",
        "deposits are accepted, and transfers just when their sources had enough",
        lambda o, s: set_first(o, lambda r: r["kind"] == 1 and r["ok"], ok=False),
    ),
    (
        "sl",
        "deposits are accepted, and transfers just when their sources had enough",
        lambda o, s: set_first(o, lambda r: r["kind"] == 1 and not r["ok"], ok=True),
    ),
    (
        "sl",
        "one output of its kind for each valid event, none for others",
        lambda o, s: set_first(o, lambda r: r["kind"] == 1, kind=0),
    ),
    ("wc", "the n-th sighting of a word is counted n", lambda o, s: set_first(o, lambda r: r["n"] == 2, n=1)),
    ("wc", "a sentence gives one output per word", lambda o, s: lose(o, lambda r: r["sub"] == 3)),
    ("wc", "a word's final count is its number of outputs", lambda o, s: s["state_count"][4].update(n=1)),
    ("wc", "a word's final count is its number of outputs", lambda o, s: lose(s["state_count"])),
    ("fd", "one signal, of its entity, for each valid transaction, none for others", lambda o, s: lose(o)),
    (
        "fd",
        "one signal, of its entity, for each valid transaction, none for others",
        lambda o, s: o[5].update(entity=b"E999999999"),
    ),
    ("fd", "no score before an entity's window is full", lambda o, s: o[0].update(score=1)),
    ("fd", "a score lies between 0 and 1", lambda o, s: o[9].update(score=(1 << 32) + 1)),
    (
        "fd",
        "every outlier scores at least what any other does",
        lambda o, s: set_first(o, lambda r: r["outlier"], outlier=False),
    ),
    ("sd", "one output, of its device, for each valid reading, none for others", lambda o, s: lose(o)),
    ("sd", "one output, of its device, for each valid reading, none for others", lambda o, s: o[5].update(device=99)),
    (
        "sd",
        "an average lies between the least and the greatest value of its device so far",
        lambda o, s: o[50].update(average=3_000_000),
    ),
    (
        "sd",
        "every spike is relatively further from its average than anything else",
        lambda o, s: max(o, key=lambda r: abs(r["value"] - r["average"]) / r["average"]).update(spike=False),
    ),
    ("sd", "a device's final sum is the sum of its window", lambda o, s: s["state_moving_average"][0].update(total=1)),
]


@pytest.fixture(scope="module")
def right():
    """Application -> its events and a right result."""
    found = {}
    for name, params in PARAMS.items():
        app = registry.load(name)
        events = workload.generate_chunk(app, params, EVENTS, 4, 0, EVENTS)
        found[name] = (app, events, by_hand.run(app, params, events))
    return found


def write(folder, events, outputs, states):
    """The files an invariant reads; view -> path."""
    folder.mkdir()
    views = {}
    for name, table in {"events": events, "outputs": outputs, **states}.items():
        views[name] = folder / f"{name}.parquet"
        pq.write_table(table, views[name])
    return views


def violations(spark, queries):
    """(subject, invariant) -> number of violating rows, of those that have any, in one Spark job."""
    rows = spark.sql(" UNION ALL ".join(queries)).toArrow().to_pylist()
    return {(row["subject"], row["invariant"]): row["found"] for row in rows}


def test_invariants_hold_on_right_results(spark, right, tmp_path):
    queries = []
    for index, (name, (app, events, result)) in enumerate(right.items()):
        views = write(tmp_path / name, events, result.output_table(), result.state_tables())
        assert result.outputs
        assert result.dropped
        queries += [invariant_query(sql, label, index, views) for label, sql in app.invariants.items()]
    assert queries
    assert violations(spark, queries) == {}


def test_each_invariant_finds_what_it_is_for(spark, right, tmp_path):
    assert {(name, label) for name, label, _ in WRONG} == {
        (name, label) for name, (app, _, _) in right.items() for label in app.invariants
    }
    queries = []
    for index, (name, label, damage) in enumerate(WRONG):
        app, events, result = right[name]
        outputs, states = result.output_table(), result.state_tables()
        rows, state_rows = outputs.to_pylist(), {key: table.to_pylist() for key, table in states.items()}
        damage(rows, state_rows)
        outputs = pa.Table.from_pylist(rows, outputs.schema)
        states = {key: pa.Table.from_pylist(state_rows[key], table.schema) for key, table in states.items()}
        views = write(tmp_path / str(index), events, outputs, states)
        queries.append(invariant_query(app.invariants[label], label, index, views))
    found = violations(spark, queries)
    silent = [(name, label) for index, (name, label, _) in enumerate(WRONG) if (index, label) not in found]
    assert silent == []


def test_violating_rows_can_be_shown(spark, right, tmp_path):
    app, events, result = right["sl"]
    rows = result.output_table().to_pylist()
    rows[0]["ok"] = False
    outputs = pa.Table.from_pylist(rows, result.output_table().schema)
    views = write(tmp_path / "x", events, outputs, result.state_tables())
    label = "deposits are accepted, and transfers just when their sources had enough"
    [row] = spark.sql(invariant_query(app.invariants[label], label, 0, views)).toArrow().to_pylist()
    assert json.loads(row["row"])["seq"] == 0
