"""NEXMark query 1: the price of each bid in euros, in thousandths of a cent."""

from streaming_core.api import App, i64
from streaming_core.generator import nexmark

app = App("nexmark_q1", params=nexmark.PARAMS, reads="NEXMark, query 1")
bids = nexmark.streams(app).bids
bids.select("auction", "bidder", "ts", "extra", price=(i64, lambda bid: 908 * bid.price)).sink()
app.agrees_unordered("auction", "bidder", "ts", "extra", "price")
