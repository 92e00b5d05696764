"""NEXMark query 7: the highest bids of each ten seconds."""

from streaming_core.api import App, tumbling
from streaming_core.generator import nexmark

app = App("nexmark_q7", params=nexmark.PARAMS, reads="NEXMark, query 7")
bids = nexmark.streams(app).bids
highest = bids.select("auction", "bidder", "price", "ts", "extra", time="ts").window(tumbling("10s"))
highest.top(1, by="price", ties=True).select("auction", "price", "bidder", "extra", ts="time").sink()
app.agrees_unordered("auction", "price", "bidder", "extra", "ts")
