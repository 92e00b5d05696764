"""NEXMark query 2: the prices of the bids for one auction in 123."""

from streaming_core.api import App
from streaming_core.generator import nexmark

app = App("nexmark_q2", params=nexmark.PARAMS, reads="NEXMark, query 2")
bids = nexmark.streams(app).bids
bids.filter(lambda bid: bid.auction % 123 == 0).select("auction", "price").sink()
app.agrees_unordered("auction", "price")
