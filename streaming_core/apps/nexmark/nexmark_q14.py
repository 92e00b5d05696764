"""NEXMark query 14: bids of a middle price in euros, with the time of day and a number of letters."""

from streaming_core.api import App, hour, i64, text
from streaming_core.generator import nexmark

app = App("nexmark_q14", params=nexmark.PARAMS, reads="NEXMark, query 14")
bids = nexmark.streams(app).bids


def time_of_day(bid):
    """Name the time of day of a bid."""
    now = hour(bid.ts)
    if 8 <= now <= 18:
        return "dayTime"
    return "nightTime" if now <= 6 or now >= 20 else "otherTime"


def count_c(bid):
    """Count the letters c of the text of a bid."""
    n = 0
    for i in range(len(bid.extra)):
        n += bid.extra[i : i + 1] == "c"
    return n


middle = bids.filter(lambda bid: 1_000_000_000 < 908 * bid.price < 50_000_000_000)
middle.select(
    "auction",
    "bidder",
    "ts",
    "extra",
    price=(i64, lambda bid: 908 * bid.price),
    bid_time_type=(text, time_of_day),
    c_counts=(i64, count_c),
).sink()
