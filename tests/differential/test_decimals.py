"""Decimals against Python's decimal module, in all ways: literals, texts, fields of every role, aggregates and keys."""

import random
from decimal import Decimal as Exact
from decimal import localcontext

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import (
    App,
    Array,
    Counter,
    Decimal,
    Map,
    Queue,
    Ring,
    Set,
    agg,
    decimal,
    decimal_text,
    i64,
    record,
    text,
    tumbling,
    u8,
)  # fmt: skip
from streaming_core.data import workload
from streaming_core.data.comparison import in_memory
from streaming_core.errors import BadInput
from streaming_core.language.decimals import units_of
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec
from tests.differential.case import Case
from tests.support.draws import some

LOW, HIGH = -(1 << 63), (1 << 63) - 1


@record
class Event:
    ts: i64
    key: u8
    price: Decimal[2]
    fee: Decimal[4] | None
    few: Array[Decimal[1], 2]
    units: i64


@record
class Answer:
    price: Decimal[5]
    half: Decimal[3]
    fee: Decimal[4] | None
    few: Array[Decimal[1], 2]
    texts: text
    whole: Decimal[0]


@record
class Row:
    price: Decimal[2]
    fee: Decimal[4] | None


@record
class State:
    total: Decimal[2]
    least: Decimal[2] | None
    rows: Queue[Row]
    seen: Set[Decimal[2]]
    fees: Map[Decimal[2], Decimal[4]]
    times: Counter[Decimal[2]]
    latest: Ring[Decimal[2], 2]


@record
class Total:
    price: Decimal[2]
    total: Decimal[2]
    least: Decimal[2] | None


def convert(row, out):
    words = decimal_text(row.price, 2) + " " + decimal_text(row.units, 18 if row.key else 0)
    out.emit(row, price=decimal("0.908", 3) * row.price, half=row.price * 5, texts=words, whole=row.price // 100)


def keep(row, state, out):
    state.total += row.price
    state.rows.append(price=row.price, fee=row.fee)
    state.seen.add(row.price)
    state.fees.put(row.price, 17)
    state.times.add(row.price, 1)
    state.latest.append(row.price)
    if state.least is None or row.price < state.least:
        state.least = row.price
    if row.price == decimal("-0.05", 2):
        state.least = None
    out.emit(price=row.price, total=state.total, least=state.least)


def application(kind):
    app = App(kind)
    events = app.source(Event)
    match kind:
        case "converted":
            events.flat_map(convert, Answer).sink()
        case "keyed":
            events.key_by("price").process(keep, State, Total).sink()
        case "windows":
            events.key_by("key").window(tumbling(10)).aggregate(
                total=agg.sum("price"), mean=agg.avg("price"), least=agg.min("fee"), most=agg.max("price"),
                first=agg.first("fee"), last=agg.last("price"), kinds=agg.count_distinct("price"),
            ).sink()  # fmt: skip
        case "top":
            events.select("ts", "key", "price", "fee").key_by("key").window(tumbling(10)).top(2, by="price").sink()
        case "values":
            events.key_by("key").window(tumbling(10)).top_k("price", 2).sink()
    app.generates(lambda params, seed, start, stop: {})
    return app


def exact(units, scale):
    """So many units, exactly."""
    with localcontext() as context:
        context.prec = 60
        return Exact(units).scaleb(-scale)


def table(seed, events=200):
    r = random.Random(seed)
    columns = {name: [] for name in ("ts", "key", "price", "fee", "few", "units")}
    for n in range(events):
        columns["ts"].append(n // 4)
        columns["key"].append(r.randrange(3))
        columns["price"].append(exact(r.choice((-5, 0, 5, 1234, r.randrange(-1000, 1000), r.randrange(10**15))), 2))
        columns["fee"].append(r.choice((None, exact(r.randrange(-(10**6), 10**6), 4))))
        columns["few"].append([exact(r.randrange(-99, 99), 1), Exact("0.1")])
        columns["units"].append(r.choice((LOW, HIGH, 0, -1, r.randrange(LOW, HIGH), r.randrange(-100, 100))))
    schema = Event.resolve({}).arrow(("seq",))
    return pa.Table.from_pydict({"seq": [*range(events)], **columns}, schema)


def converted(row):
    """What `convert` emits, in Python's decimals."""
    price = row["price"]
    texts = f"{price:f} {exact(row['units'], 18 if row['key'] else 0):f}".encode()
    whole = price.to_integral_value("ROUND_FLOOR")
    return (Exact("0.908") * price, price / 2, row["fee"], row["few"], texts, whole)


def test_values_are_those_of_pythons_decimals():
    events = table(1)
    outputs = Interpreter(application("converted"), {}).process(events)
    assert outputs.schema.field("price").type == pa.decimal128(19, 5)
    rows = [tuple(row.values())[2:] for row in outputs.to_pylist()]
    assert rows == [converted(row) for row in events.to_pylist()]


def test_states_have_decimals_in_every_container():
    events = table(2, 30)
    oracle = Interpreter(application("keyed"), {})
    outputs = oracle.process(events).to_pylist()
    total, state = {}, {row["key"]: row for row in oracle.state()["keep"].to_pylist()}
    for row, output in zip(events.to_pylist(), outputs, strict=True):
        total[row["price"]] = total.get(row["price"], 0) + row["price"]
        assert (output["price"], output["total"]) == (row["price"], total[row["price"]])
        assert output["least"] == (None if row["price"] == Exact("-0.05") else row["price"])
    for price, value in total.items():
        kept, rows = state[int(price * 100)], [row for row in events.to_pylist() if row["price"] == price]
        assert (kept["total"], kept["seen"]) == (value, [price])
        assert kept["rows"] == [{"price": price, "fee": row["fee"]} for row in rows]
        assert kept["fees"] == [{"key": price, "value": Exact("0.0017")}]
        assert kept["times"] == [{"key": price, "value": len(rows)}]
        assert kept["latest"] == [price] * min(2, len(rows))


def test_aggregates_have_the_type_of_the_field():
    events, oracle = table(3), Interpreter(application("windows"), {})
    outputs = pa.concat_tables([oracle.process(events), oracle.finish(events.num_rows)])
    assert [str(outputs.schema.field(name).type) for name in ("total", "mean", "least")] == [
        "decimal128(19, 2)", "double", "decimal128(19, 4)",
    ]  # fmt: skip
    windows = {}
    for row in events.to_pylist():
        windows.setdefault((row["ts"] // 10 * 10 + 10, row["key"]), []).append(row)
    assert outputs.num_rows == len(windows)
    for output in outputs.to_pylist():
        rows = windows[output["ts"], output["key"]]
        prices, fees = [row["price"] for row in rows], [row["fee"] for row in rows if row["fee"] is not None]
        assert output["total"] == sum(prices)
        assert output["mean"] == float(int(sum(prices) * 100)) / (float(len(prices)) * 100.0)
        assert (output["least"], output["most"]) == (min(fees, default=None), max(prices))
        assert (output["first"], output["last"]) == (fees[0] if fees else None, prices[-1])
        assert output["kinds"] == len({*prices})


KINDS = ("keyed", "converted", "windows", "top", "values")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_loop_equals_the_interpreter(kind):
    case = Case(application(kind), {}, table(4))
    loop = Loop(case.app, {})
    outputs = pa.concat_tables([loop.process(case.events.tables[0]), loop.finish(case.events.rows)])
    compare(kind, case.outputs, outputs, "outputs")
    for name, state in loop.state().items():
        compare(kind, case.state[name], state, name)
    assert case.outputs.schema.equals(outputs.schema)


@pytest.mark.parametrize("kind", some(KINDS))
def test_engine_equals_the_interpreter(kind):
    case = Case(application(kind), {}, table(4))
    for executor, declared in ENGINE_EXECUTORS.items():
        if case.app.kind in declared.application_kinds:
            case.check(RunSpec.parse({"app": kind, "executor": executor, "threads": 2, "batch": 16}), 60)


LITERALS = (
    "0.908",
    "-0.05",
    "12",
    "12.",
    ".5",
    "+7.50",
    "1e-3",
    "1.5E2",
    "0",
    "-0",
    "000.1000",
    "92233720368547758.07",
)


@pytest.mark.parametrize("literal", LITERALS)
def test_units_are_those_of_pythons_decimal(literal):
    for scale in range(19):
        value = Exact(literal) * 10**scale
        if value == int(value) and LOW <= value <= HIGH:
            assert units_of(literal, scale) == decimal(literal, scale) == value
            words = f"{exact(int(value), scale):f}"
            assert decimal_text(int(value), scale) == words
            assert units_of(words, scale) == value
        else:
            assert isinstance(units_of(literal, scale), str)


@pytest.mark.parametrize(
    ("literal", "scale", "reason"),
    [
        ("0.908", 2, "'0.908' has more than 2 digits after the point"),
        ("1e-9999", 18, "has more than 18 digits"),
        ("1e9999", 2, "does not fit Decimal[2]"),
        ("92233720368547758.08", 2, "does not fit Decimal[2]"),
        ("9" * 5000, 0, "does not fit Decimal[0]"),
        ("one", 2, "'one' is not a decimal number"),
        (".", 2, "'.' is not a decimal number"),
        ("1_0", 2, "is not a decimal number"),
        ("\u0661", 2, "is not a decimal number"),
        ("1", 19, "the scale must be between 0 and 18, got 19"),
    ],
)
def test_literals_that_do_not_fit_are_refused(literal, scale, reason):
    with pytest.raises(BadInput, match=r"^.*$") as refusal:
        decimal(literal, scale)
    assert reason in str(refusal.value)


def test_generators_make_units():
    app = App("generated")
    app.source(Event).sink()
    app.generates(
        lambda params, seed, start, stop: {
            "ts": np.arange(start, stop),
            "key": np.zeros(stop - start, np.uint8),
            "price": np.arange(start, stop) - 1,
            "fee": [None, 25, -1][: stop - start],
            "few": np.array([[12, -3]] * (stop - start)),
            "units": np.arange(start, stop),
        }
    )
    rows = workload.generate_chunk(app, {}, 3, 1, 0, 3).to_pylist()
    assert [row["price"] for row in rows] == [Exact("-0.01"), Exact("0.00"), Exact("0.01")]
    assert [row["fee"] for row in rows] == [None, Exact("0.0025"), Exact("-0.0001")]
    assert rows[0]["few"] == [Exact("1.2"), Exact("-0.3")]


def test_differences_are_shown_as_decimals():
    sides = [pa.table({"seq": [0], "sub": [0], "p": pa.array([value], pa.decimal128(19, 9))}) for value in (1, 0)]
    [difference] = in_memory("outputs", *sides).differences
    assert difference.words() == ["p: expected 1.000000000, got 0.000000000"]
