"""NEXMark query 1: the price of each bid in euros."""

from typing import Literal

from streaming_core.api import App, Decimal, decimal
from streaming_core.generator import nexmark

app = App("nexmark_q1", params=nexmark.PARAMS, reads="NEXMark, query 1")
bids = nexmark.streams(app).bids
euros = Decimal[Literal[3]], lambda bid: decimal("0.908", 3) * bid.price
bids.select("auction", "bidder", "ts", "extra", price=euros).sink()
app.agrees_unordered("auction", "bidder", "ts", "extra", "price")
