"""An application with a property of each way to fail. It is no test, so pytest leaves its assertions as they are."""

from streaming_core.api import App, Decimal, Param, f64, i64, record, text, u8


@record
class Sale:
    ts: i64
    user: u8
    shop: text
    price: f64
    cents: Decimal[2]


@record
class Total:
    ts: i64
    user: u8
    price: f64
    n: i64


@record
class Sum:
    n: i64
    price: f64


def add(row, state, out):
    if row.price < 0.0 and row.ts > 3:
        out.drop()
    state.n += 1 if row.user != 9 else app.params.weight
    state.price += row.price
    for _ in range(state.n // 3):
        out.emit(ts=row.ts, user=row.user, price=state.price, n=state.n)


app = App("sales", params={"weight": Param(2)})
app.source(Sale).key_by("user").process(add, state=Sum, output=Total).sink()


def ties_may_change_places(stream):
    assert stream.permute_ties().rows == stream.rows


def by_message(stream):
    assert len(stream.events) < 3, f"{len(stream.events)} events\nare many"


def by_value(stream):
    return not stream.events


def by_test(stream):
    assert not stream.outputs


def by_fault(stream):
    return stream.events[0]["prize"]


def by_helper(stream):
    check(stream)


def check(stream):
    assert stream.dropped == 7


def by_comprehension(stream):
    limit = 5
    assert [limit for _ in stream.events] == []


def by_iterator(stream):
    events = iter(stream.events[:1])
    assert next(events) == 1
