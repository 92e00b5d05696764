"""NEXMark query 9: each auction with its winning bid."""

from streaming_core.api import App, global_window
from streaming_core.generator import nexmark

app = App("nexmark_q9", params=nexmark.PARAMS, reads="NEXMark, query 9")
_, auctions, bids = nexmark.streams(app)
columns = ("item_name", "description", "initial_bid", "reserve", "expires", "seller", "category", "extra")
items = auctions.select("ts", "id", *columns, start="ts")
offers = app.join(
    items,
    bids.select("ts", "auction", "bidder", "price", bid_ts="ts", bid_extra="extra"),
    on={"id": "auction"},
    ttl=None,
)
in_time = offers.filter(lambda offer: offer.start <= offer.bid_ts and offer.bid_ts <= offer.expires)
winners = in_time.key_by("id").window(global_window()).top(1, by="price")
winners.select("id", *columns, "bidder", "price", "bid_ts", "bid_extra", ts="start", auction="id").sink()
