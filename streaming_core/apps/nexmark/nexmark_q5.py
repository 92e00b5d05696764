"""NEXMark query 5: the auctions with the most bids in the last ten seconds, every two seconds."""

from streaming_core.api import App, agg, sliding, tumbling
from streaming_core.generator import nexmark

app = App("nexmark_q5", params=nexmark.PARAMS, reads="NEXMark, query 5")
bids = nexmark.streams(app).bids
counts = bids.key_by("auction").window(sliding("10s", every="2s")).aggregate(num=agg.count())
counts.window(tumbling("2s")).top(1, by="num", ties=True).select("auction", "num").sink()
app.agrees_unordered("auction", "num")
