"""NEXMark query 11: the number of bids in each session of a person, which ends after ten seconds without a bid."""

from streaming_core.api import App, agg, session
from streaming_core.generator import nexmark

app = App("nexmark_q11", params=nexmark.PARAMS, reads="NEXMark, query 11")
bids = nexmark.streams(app).bids
sessions = bids.key_by("bidder").window(session("10s")).aggregate(bid_count=agg.count(), start=agg.first("ts"))
sessions.select("bidder", "bid_count", "start", end="ts").sink()
