"""NEXMark query 18: the last bid of each person for each auction."""

from streaming_core.api import App, global_window
from streaming_core.generator import nexmark

app = App("nexmark_q18", params=nexmark.PARAMS, reads="NEXMark, query 18")
bids = nexmark.streams(app).bids
last = bids.key_by("bidder", "auction").window(global_window()).top(1, by="ts")
last.select("auction", "bidder", "price", "channel", "url", "ts", "extra").sink()
