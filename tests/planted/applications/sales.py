"""Sales of shops: totals and averages, with a report after every few sales."""

from collections import Counter

import numpy as np

from streaming_core.api import App, Param, i64, record, text, u8
from streaming_core.generator import Draws

app = App("sales", params={"every": Param(4, "sales of a shop from one report to the next", minimum=1, maximum=1000)})
p = app.params
MOST = 1 << 40


@record
class Sale:
    """A sale of a shop; a refund is negative."""

    ts: i64
    shop: u8
    cents: i64
    items: text


@record
class Shop:
    """The sales of a shop so far, and those since its last report."""

    sales: i64
    total: i64
    since: i64
    items: i64


@record
class Report:
    """A report: all sales, those since the last one, the total in whole euros, and the number of items."""

    shop: u8
    sales: i64
    since: i64
    euros: i64
    items: i64


def euros(cents):
    """The whole euros of an amount, towards zero."""
    return -(-cents // 100) if cents < 0 else cents // 100


def limited(cents):
    """An amount within the bounds of the till."""
    return min(max(cents, -MOST), MOST)


def sell(row, shop, out):
    """Add a sale, and report."""
    shop.sales += 1
    shop.since += 1
    shop.total = limited(shop.total + limited(row.cents))
    for item in row.items.split(","):
        if len(item) > 0:
            shop.items += 1
    if shop.since == p.every:
        out.emit(shop=row.shop, sales=shop.sales, since=shop.since, euros=euros(shop.total), items=shop.items)
        shop.since = 0


def close(shop, out):
    """Report the sales since the last report."""
    if shop.since > 0:
        out.emit(shop=0, sales=shop.sales, since=shop.since, euros=euros(shop.total), items=shop.items)


app.source(Sale).key_by("shop").process(sell, state=Shop, output=Report, flush=close).sink()


@app.generates
def sales(params, seed, start, stop):
    """Draw shops and amounts."""
    draws = Draws(seed, "sales", start, stop)
    items = [b",".join([b"cup"] * count) for count in draws.below(2, 3)]
    cents = draws.below(1, 1000) - 200
    return {"ts": np.arange(start, stop), "shop": draws.below(0, 5), "cents": cents, "items": items}


@app.property
def every_sale_is_reported_once(stream):
    """The reports of a shop add up to its sales."""
    assert sum(row["since"] for row in stream.rows) == len(stream.events)


@app.property
def totals_stay_in_bounds(stream):
    """A total is the sum of its sales, within the bounds of the till after each of them."""
    totals = {}
    for event in stream.events:
        total = totals.get(event["shop"], 0) + min(max(event["cents"], -MOST), MOST)
        totals[event["shop"]] = min(max(total, -MOST), MOST)
    assert {shop: row["total"] for shop, row in stream.state("sell").items()} == totals


@app.property
def refunds_mirror_sales(stream):
    """If every amount changes its sign, so does every total."""
    mirrored = stream.run([event | {"cents": -event["cents"]} for event in stream.events])
    assert [-row["euros"] for row in mirrored.rows] == [row["euros"] for row in stream.rows]


@app.property
def shops_do_not_share(stream):
    """A shop alone has the same totals."""
    left, right = stream.split("shop")
    assert left.state("sell") | right.state("sell") == stream.state("sell")


@app.property
def a_shop_reports_after_every_few_sales(stream):
    """The n-th sale of a shop has a report if n is a multiple of `every`."""
    sales, expected = Counter(), []
    for event in stream.events:
        sales[event["shop"]] += 1
        if sales[event["shop"]] % stream.params["every"] == 0:
            expected.append((event["shop"], sales[event["shop"]]))
    assert [(row["shop"], row["sales"]) for row in stream.rows[: len(expected)]] == expected
