"""NEXMark query 17: the bids and prices of each auction and day."""

from streaming_core.api import App, agg, date_text, text, tumbling
from streaming_core.generator import nexmark

app = App("nexmark_q17", params=nexmark.PARAMS, reads="NEXMark, query 17")
bids = nexmark.streams(app).bids


def is_low(bid):
    """Whether the price is below 100 dollars."""
    return bid.price < 10_000


def is_middle(bid):
    """Whether the price is between 100 and 10,000 dollars."""
    return 10_000 <= bid.price < 1_000_000


def is_high(bid):
    """Whether the price is at least 10,000 dollars."""
    return bid.price >= 1_000_000


columns = {
    "total_bids": agg.count(),
    "rank1_bids": agg.count(where=is_low),
    "rank2_bids": agg.count(where=is_middle),
    "rank3_bids": agg.count(where=is_high),
    "min_price": agg.min("price"),
    "max_price": agg.max("price"),
    "avg_price": agg.avg("price"),
    "sum_price": agg.sum("price"),
}
days = bids.key_by("auction").window(tumbling("1d")).aggregate(**columns, last=agg.last("ts"))
days.select("auction", *columns, day=(text, lambda row: date_text(row.last))).sink()
