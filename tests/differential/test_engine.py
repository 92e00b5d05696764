"""The engine against the interpreter: every application and way of executing, cut in different ways."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core.api import App, boolean, f64, i64, record, text
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import RunFailed
from streaming_core.kernels.program import compile_app
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks, block_size
from streaming_core.run.way import ENGINE_EXECUTORS, UNORDERED_CHANNELS, Pooled, RunSpec, Transactional
from tests.differential.case import CUTS, Case, Events, pairwise, strategies
from tests.support.draws import some

EVENTS = 3000
# All threads meet several times at a punctuation, and eight of them on few cores wait for the scheduler each time. So
# many intervals are enough to show a fault of an interval.
INTERVALS = 300
# The smallest key spaces an application allows: the most conflicts.
SMALL = {
    "gs": {"n_items": 10, "gen_parts": 1, "index": "hash"},
    "sl": {"n_items": 2, "partitioned": False, "index": "hash"},
    "wc": {"vocabulary": 5, "skew": 1.2},
    "fd": {"entities": 3, "invalid_ratio": 0.05},
    "sd": {"devices": 2, "window": 7, "invalid_ratio": 0.05},
    "ob": {"n_items": 20, "gen_parts": 1, "bid_length": 3, "unauth_ratio": 0.05, "invalid_ratio": 0.05,
     "index": "hash"},
    "tp": {"segments": 2, "vehicles": 400, "window": 1, "flagged": True, "invalid_ratio": 0.05, "index": "insert"},
    "tb": {"n_flights": 2, "n_hotels": 1, "invalid_ratio": 0.05},
    "fx": {"n_accounts": 3, "n_currencies": 2, "quote_ratio": 0.3, "invalid_ratio": 0.05},
    "q1": {"items": 60, "threshold": 1, "limit": 20, "events_per_day": 10_000, "invalid_ratio": 0.05},
    "q2": {"items": 30, "users": 40, "emit_every": 500, "limit": 7, "width": 5, "invalid_ratio": 0.05},
    "q3": {"items": 40, "users": 30, "limit": 4, "invalid_ratio": 0.05},
    "q4": {"users": 30, "invalid_ratio": 0.05},
    "q15": {"items": 60, "stores": 10, "events_per_day": 1_000, "invalid_ratio": 0.05},
    "pos_rep": {"seconds": 120, "veh_per_s": 0.05, "request_ratio": 0.3, "invalid_ratio": 0.05},
    "new_seg": {"seconds": 120, "veh_per_s": 0.05, "request_ratio": 0.3, "invalid_ratio": 0.05, "purge": 31},
    "lr": {"seconds": 900, "veh_per_s": 0.05, "request_ratio": 0.3, "invalid_ratio": 0.05},
    "wordcount": {"vocabulary": 5, "advance": 3_000, "size": 7_000},
    "hashtag": {"hashtags": 3, "advance": 3_000, "size": 7_000},
    "scalejoin": {"keys": 5, "domain": 300, "size": 9_001},
    "hedge": {"keys": 5, "size": 301, "invalid_ratio": 0.05},
}  # fmt: skip
ROAD = {"input": "linear_road", "seconds": 600, "veh_per_s": 5.0, "segments": 90, "invalid_ratio": 0.05}
LARGE = {
    "gs": {"theta": 1.2, "summation": False},
    "sl": {"theta": 0.0, "init_balance": 100},
    "ob": {"theta": 1.2, "init_qty": 5},
    "tp": ROAD,
}
# Few keys, events that name a key twice, invalid events, transactions over all partitions, many rejections. Records as
# large as in the paper, and its three transactions of toll processing.
FEW = {
    "gs": {"n_items": 500, "gen_parts": 7, "mp_ratio": 1.0, "duplicates": True, "invalid_ratio": 0.05, "payload": 15},
    "sl": {"n_items": 200, "gen_parts": 7, "duplicates": True, "invalid_ratio": 0.05, "payload": 11},
    "ob": {"n_items": 200, "gen_parts": 7, "duplicates": True, "unauth_ratio": 0.05, "invalid_ratio": 0.05,
     "payload": 4},
    "tp": {"segments": 30, "vehicles": 3000, "invalid_ratio": 0.05, "separate": True, "payload": 8},
    "tb": {"n_flights": 50, "n_hotels": 20, "seats": 20, "invalid_ratio": 0.05},
    "fx": {"n_accounts": 100, "n_currencies": 10, "quote_ratio": 0.3, "invalid_ratio": 0.05},
}  # fmt: skip


def few(theta):
    return {name: {**params, "theta": theta} for name, params in FEW.items()}


KEYS = {"small": SMALL, "large": LARGE, "hot": few(1.2), "warm": few(0.6), "even": few(0.0)}


@pytest.fixture(scope="module")
def cases():
    """A function that returns the case of an application with keys of a kind; each is interpreted once."""
    cases_by_name, programs = {}, {}

    def case(name, kind, events=EVENTS):
        if (name, kind, events) not in cases_by_name:
            app = registry.load(name)
            params = app.bind(KEYS[kind].get(name, {}))
            # How events are drawn is none of the operators' business: such parameters need no other kernels.
            key = name, *((n, v) for n, v in params.items() if n not in ("theta", "invalid_ratio"))
            if key not in programs:
                programs[key] = compile_app(app, params)
            table = workload.generate_chunk(app, params, events, 7, 0, events)
            cases_by_name[name, kind, events] = Case(app, params, table, programs[key])
        return cases_by_name[name, kind, events]

    return case


def applications(executor):
    """Names of those that run on it."""
    return [
        name for name in registry.names() if registry.load(name).kind in ENGINE_EXECUTORS[executor].application_kinds
    ]


def kinds_of(name):
    return [kind for kind in KEYS if name in KEYS[kind]]


def few_kinds_of(name):
    """The kinds of keys of the quick tests: each kind needs a compilation, and many keys rarely conflict."""
    return [kind for kind in kinds_of(name) if kind != "large"]


def ways():
    """Every application on every choice of strategies that is a result."""
    return [
        (name, strategy)
        for executor in ENGINE_EXECUTORS
        for name in applications(executor)
        for strategy in strategies(executor, registry.load(name))
    ]


def label(value):
    return "-".join(str(v) for v in value.values()) if isinstance(value, dict) else None


# Transactions with reads of other rows and with conditions, state by key, and windows of one and two streams. Each
# application takes seconds to compile.
FEW_APPLICATIONS = ("fd", "scalejoin", "sl", "wordcount")
# A scheme has the strategies that go with it: each such choice is one value. Every two values of these axes meet here,
# all of them in the full test below. `kind` counts the kinds of keys that an application has, again and again.
TRANSACTIONAL = {
    "strategy": tuple(range(len(strategies("transactional")))),
    "name": tuple(applications("transactional")),
    "kind": tuple(range(len(KEYS))),
    "threads": (1, 2, 3, 8),
    "cut": CUTS,
}


def rows(axes):
    """Rows of the axes that pair all values of few applications with small keys; with the slow tests, those of all."""
    few = {"name": tuple(name for name in axes["name"] if name in FEW_APPLICATIONS) or axes["name"][:1]}
    if "kind" in axes:
        few["kind"] = axes["kind"][:1]
    every = [pytest.param(*pair, marks=pytest.mark.slow) for pair in enumerate(pairwise(axes))]
    return [*enumerate(pairwise(axes | few)), *every]


@pytest.mark.parametrize(("number", "way"), rows(TRANSACTIONAL), ids=label)
def test_every_pair_of_scheme_options_equals_the_interpreter(cases, number, way):
    name, kinds = way["name"], few_kinds_of(way["name"])
    punctuation, batch, block = way["cut"]
    strategy = strategies("transactional")[way["strategy"]]
    spec = RunSpec.parse(
        {"app": name, "threads": way["threads"], "punctuation": punctuation, "batch": batch, **strategy}
    )
    events = min(EVENTS, INTERVALS * punctuation)
    cases(name, kinds[way["kind"] % len(kinds)], events).check(spec, min(block, events // 3))


# Strategies of dataflow executors are free to combine: every two choices meet here, all of them in the full test below.
CUT = {"threads": (1, 2, 3, 8), "batch": (1, 7, 256)}
ORDERED = tuple(
    channel for channel in ENGINE_EXECUTORS["pinned"].axes()["channel"] if channel not in UNORDERED_CHANNELS
)
WINDOWED = [name for name in applications("pinned") if registry.load(name).kind == "windowed"]
ROWS = [name for name in applications("pinned") if name not in WINDOWED]
AGREEING = [name for name in ROWS if registry.load(name).unordered]  # windows need events in order
CHOICES = {
    "pooled": {"executor": ("pooled",), "name": applications("pooled"),
     **{axis: values for axis, values in ENGINE_EXECUTORS["pooled"].axes().items() if axis != "partitioning"},
     "queue": ("lanes", "hybrid-hash", "hybrid-range", "partitioned-range", "shared-hash"), **CUT},
    "pinned": {"executor": ("pinned",), "name": ROWS, "channel": ORDERED, **CUT},
    "pinned with windows": {"executor": ("pinned",), "name": WINDOWED,
     "parallelism": ENGINE_EXECUTORS["pinned"].axes()["parallelism"], **CUT},
    "pinned without order": {"executor": ("pinned",), "name": AGREEING, "channel": tuple(sorted(UNORDERED_CHANNELS)),
     **CUT},
    "morsel": {"executor": ("morsel",), "name": applications("morsel"), **CUT},
    "morsel without order": {"executor": ("morsel",), "name": AGREEING, "order": ("none",), **CUT},
}  # fmt: skip


@pytest.mark.parametrize(("number", "way"), [row for axes in CHOICES.values() for row in rows(axes)], ids=label)
def test_every_pair_of_options_equals_the_interpreter(cases, number, way):
    name = way["name"]
    _, _, block = CUTS[number % len(CUTS)]
    queue, _, partitioning = (way.get("queue") or "").partition("-")
    how = way | {"queue": queue or None, "partitioning": partitioning or None}
    spec = RunSpec.parse({"app": name, **{axis: value for axis, value in how.items() if axis != "name"}})
    for kind in few_kinds_of(name):
        cases(name, kind, EVENTS if name != "wc" else EVENTS // 10).check(spec, block)


@pytest.mark.parametrize("axes", [TRANSACTIONAL, *CHOICES.values()], ids=["transactional", *CHOICES])
def test_pairwise_rows_cover_every_pair_of_options(axes):
    rows = [set(row.items()) for row in pairwise(axes)]
    for a, b in itertools.combinations(axes, 2):
        for pair in itertools.product(axes[a], axes[b]):
            assert any({(a, pair[0]), (b, pair[1])} <= row for row in rows), (a, b, pair)
    # No more than twice as many as the two longest axes need.
    most, next_most = sorted((len(values) for values in axes.values()), reverse=True)[:2]
    assert most * next_most <= len(rows) <= 2 * most * next_most


# Each choice of strategies with each thread count. Kinds of keys, punctuations, batches and idle strategies take turns.
# A thread that spins or yields to seven others on few cores is slow.
IDLES = ("yield", "park", "spin")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name", "strategy"), [(n, *way) for n, way in enumerate(ways())], ids=label)
def test_every_way_equals_the_interpreter(cases, number, name, strategy):
    kinds = kinds_of(name)
    for turn, threads in enumerate((1, 2, 3, 8), number):
        kind, idle = kinds[turn // len(CUTS) % len(kinds)], IDLES[turn % len(IDLES)] if threads < 8 else "park"
        punctuation, batch, block = CUTS[turn % len(CUTS)]
        punctuation = punctuation if strategy["executor"] == "transactional" else 500  # others have none
        spec = RunSpec.parse(
            {"app": name, "threads": threads, "punctuation": punctuation, "batch": batch, "idle": idle, **strategy}
        )
        events = min(EVENTS if name != "wc" else EVENTS // 10, INTERVALS * punctuation)
        cases(name, kind, events).check(spec, min(block, events // 3))


def check_the_longest_interval(case, strategy, threads):
    """A whole interval of 100,000 events, and some after it."""
    spec = RunSpec.parse({"app": case.app.name, "threads": threads, "punctuation": 100_000, "idle": "park", **strategy})
    assert case.events.rows > spec.punctuation
    case.check(spec, block_size(spec))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", strategies("transactional"), ids=label)
@pytest.mark.parametrize("name", applications("transactional"))
def test_interval_of_100_000_events_equals_the_interpreter_in_full(cases, name, strategy):
    for kind, threads in itertools.product(("hot", "even"), (1, 2, 3, 8)):
        check_the_longest_interval(cases(name, kind, 100_700), strategy, threads)


@pytest.mark.parametrize("name", ["gs", "sl", "ob", "tp", "tb"])
@pytest.mark.slow
def test_dummy_work_changes_no_result(name):
    app = registry.load(name)
    table = workload.generate_chunk(app, SMALL[name], 500, 7, 0, 500)
    plain = Case(app, app.bind(SMALL[name]), table)
    heavy = Case(app, app.bind(SMALL[name] | {"work": 9}), table)
    assert heavy.expected == plain.expected
    heavy.check(Transactional(app=name, threads=2))


@pytest.mark.parametrize("idle", some(["park", "spin", "yield"], 2))
@pytest.mark.parametrize(("name", "executor"), [("sl", "transactional"), ("fd", "pooled")])
def test_idle_strategies_and_pinning_change_no_result(cases, name, executor, idle):
    spec = RunSpec.parse({"app": name, "executor": executor, "threads": 2, "idle": idle, "pin": True})
    cases(name, "small").check(spec)


@pytest.mark.parametrize(("name", "executor"), [("sl", "transactional"), ("wc", "pooled")])
def test_open_loop_source_changes_no_result(cases, name, executor):
    case = cases(name, "small")
    sample = case.check(RunSpec.parse({"app": name, "executor": executor, "threads": 2}), rate=100_000.0)
    assert sample.end_to_end is not None
    assert sample.end_to_end.p50 <= sample.end_to_end.p99 <= sample.end_to_end.max
    # The last event arrives at (n - 1) / rate: no clock can be faster.
    assert sample.seconds >= (case.events.rows - 1) / 100_000.0


# Of each kind of application one is written quickly, and one with long texts.
WRITTEN = ("sl", "fd", "wordcount")


@pytest.mark.parametrize("keys", ["small", pytest.param("large", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in WRITTEN)) for name in registry.names()]
)
def test_parquet_files_hold_the_rows_of_the_interpreter_in_order(cases, name, keys, tmp_path):
    case = cases(name, keys)
    executor = next(
        executor.name() for executor in ENGINE_EXECUTORS.values() if case.app.kind in executor.application_kinds
    )
    case.check(RunSpec.parse({"app": name, "executor": executor, "threads": 2}), sink="parquet", folder=tmp_path)
    written = pa.concat_tables([pq.read_table(p) for p in sorted((tmp_path / "outputs").glob("*.parquet"))])
    assert written.equals(case.outputs)
    for table, expected in case.state.items():
        assert pq.read_table(tmp_path / "state" / f"{table}.parquet").equals(expected)


@pytest.mark.parametrize("name", some(sorted(applications("transactional"), key=lambda name: name != "sl")))
def test_bound_is_memory_safe_and_counts_every_event(cases, name):
    case = cases(name, "small")
    for threads in (1, 2, 8):
        spec = Transactional(app=name, scheme="no_lock", threads=threads)
        sample, _, _ = one_pass.run(spec, case.program, Blocks(case.events, case.program, 1000))
        assert sample.outputs == len(case.outputs)


@pytest.mark.slow
def test_bound_does_not_corrupt_containers(cases):
    """Transactions interleave in any order, but each enters its vehicle into a set once."""
    case = cases("tp", "hot")
    _, state, _ = one_pass.run(
        Transactional(app="tp", scheme="no_lock", threads=8), case.program, Blocks(case.events, case.program, 1000)
    )
    sets, expected = (tables["presence"] for tables in (state, case.state))
    assert sets["count"] == expected["count"]
    for vehicles, same in zip(sets["vehicles"].to_pylist(), expected["vehicles"].to_pylist(), strict=True):
        assert sorted(vehicles) == sorted(same)


# --- applications of the tests' own ---------------------------------------------------------------------------------


@record
class Event:
    ts: i64
    key: i64
    value: i64
    line: text


@record
class Out:
    key: i64
    total: i64
    half: f64
    flag: boolean


@record
class Total:
    n: i64
    total: i64


def event_table(values, keys=None):
    n = len(values)
    columns = [np.arange(n), np.arange(n), keys if keys is not None else np.zeros(n, np.int64), values]
    lines = pa.array([b"x" * (int(v) % 3) for v in values], pa.binary())
    arrays = [pa.array(c, pa.int64()) for c in columns] + [lines]
    schema = Event.resolve({}).arrow(("seq",))
    return pa.Table.from_arrays(arrays, schema=schema)


def divides(row, state, out):
    state.total += 100 // row.value
    out.emit(key=row.key, total=state.total, half=0.0, flag=True)


def failing():
    app = App("failing")
    app.source(Event).key_by("key").process(divides, state=Total, output=Out).sink()
    app.generates(lambda *arguments: {})
    return app


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_failed_operator_names_itself_the_event_and_the_reason(threads):
    values = np.ones(1000, np.int64)
    values[[640, 900]] = 0
    app = failing()
    program = compile_app(app, {})
    blocks = Blocks(Events([event_table(values, np.arange(1000) % 7)]), program, 1000)
    with pytest.raises(RunFailed) as failed:
        one_pass.run(Pooled(app="failing", threads=threads), program, blocks)
    message = str(failed.value)
    assert "operator divides failed at event 640" in message
    assert "ZeroDivisionError: division by zero" in message


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_events(cases):
    """Ten times the events through the same blocks: what the process holds stays within a few blocks, whatever they
    pass through."""
    import resource

    case = cases("fd", "large")
    table = case.events.tables[0]
    axes = ENGINE_EXECUTORS["pooled"].axes()
    specs = [
        Pooled(app="fd", threads=3, queue=queue, reorder=reorder)
        for queue, reorder in itertools.product(axes["queue"], axes["reorder"])
    ]

    def peak(times):
        repeated = Events([table] * times)
        for spec in specs:
            one_pass.run(spec, case.program, Blocks(repeated, case.program, 1000, keep=0))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    small = peak(20)
    assert peak(200) - small < 20 * 1024  # KiB
