"""NEXMark query 15: the bids, bidders and auctions of each day, by three ranks of prices."""

from streaming_core.api import App, agg, date_text, text, tumbling
from streaming_core.generator import nexmark

app = App("nexmark_q15", params=nexmark.PARAMS, reads="NEXMark, query 15")
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
    "total_bidders": agg.count_distinct("bidder"),
    "rank1_bidders": agg.count_distinct("bidder", where=is_low),
    "rank2_bidders": agg.count_distinct("bidder", where=is_middle),
    "rank3_bidders": agg.count_distinct("bidder", where=is_high),
    "total_auctions": agg.count_distinct("auction"),
    "rank1_auctions": agg.count_distinct("auction", where=is_low),
    "rank2_auctions": agg.count_distinct("auction", where=is_middle),
    "rank3_auctions": agg.count_distinct("auction", where=is_high),
}
days = bids.window(tumbling("1d")).aggregate(**columns, last=agg.last("ts"))
days.select(*columns, day=(text, lambda row: date_text(row.last))).sink()
