"""NEXMark query 0: all bids, as they are."""

from streaming_core.api import App
from streaming_core.generator import nexmark

app = App("nexmark_q0", params=nexmark.PARAMS, reads="NEXMark, query 0")
bids = nexmark.streams(app).bids
bids.select("auction", "bidder", "price", "ts", "extra").sink()
