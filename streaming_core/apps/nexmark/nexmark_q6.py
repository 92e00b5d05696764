"""NEXMark query 6: the average price of a seller's latest eleven winning bids, at each of them."""

from typing import Literal

from streaming_core.api import App, Ring, f64, global_window, i64, record
from streaming_core.generator import nexmark

app = App("nexmark_q6", params=nexmark.PARAMS, reads="NEXMark, query 6")
_, auctions, bids = nexmark.streams(app)


@record
class Prices:
    """The latest prices of a seller."""

    latest: Ring[i64, Literal[11]]


@record
class Average:
    """A seller, and the average price of the latest auctions."""

    seller: i64
    price: f64


def average(winner, prices, out):
    """Take a winning bid into the average of its seller."""
    prices.latest.append(winner.price)
    total = 0
    for i in range(len(prices.latest)):
        total += prices.latest[i]
    out.emit(seller=winner.seller, price=total / len(prices.latest))


items = auctions.select("ts", "id", "seller", "expires", start="ts")
offers = app.join(items, bids.select("ts", "auction", "price", time="ts"), on={"id": "auction"}, ttl=None)
in_time = offers.filter(lambda offer: offer.start <= offer.time and offer.time <= offer.expires)
winners = in_time.key_by("id").window(global_window()).top(1, by="price")
aged = winners.select("ts", "seller", "price", age=(i64, lambda winner: -winner.time))
aged.key_by("seller").window(global_window()).top(1_000_000, by="age").key_by("seller").process(
    average, Prices, Average
).sink()
