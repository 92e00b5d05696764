"""NEXMark query 19: the ten highest bids for each auction."""

from streaming_core.api import App, global_window, i64
from streaming_core.generator import nexmark

app = App("nexmark_q19", params=nexmark.PARAMS, reads="NEXMark, query 19")
bids = nexmark.streams(app).bids
timed = bids.select("auction", "bidder", "price", "channel", "url", "ts", "extra", time="ts")
best = timed.key_by("auction").window(global_window()).top(10, by="price")
best.select(
    "auction", "bidder", "price", "channel", "url", "extra", ts="time", rank_number=(i64, lambda bid: bid.rank + 1)
).sink()
