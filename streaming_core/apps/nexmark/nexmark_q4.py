"""NEXMark query 4: the average price of the winning bids of each category."""

from streaming_core.api import App, agg, global_window
from streaming_core.generator import nexmark

app = App("nexmark_q4", params=nexmark.PARAMS, reads="NEXMark, query 4")
_, auctions, bids = nexmark.streams(app)
items = auctions.select("ts", "id", "category", "expires", start="ts")
offers = app.join(items, bids.select("ts", "auction", "price", time="ts"), on={"id": "auction"}, ttl=None)
in_time = offers.filter(lambda offer: offer.start <= offer.time and offer.time <= offer.expires)
winners = in_time.key_by("id", "category").window(global_window()).aggregate(final=agg.max("price"))
averages = winners.key_by("category").window(global_window()).aggregate(final=agg.avg("final"))
averages.select("category", "final").sink()
