"""NEXMark query 20: the bids for auctions of category 10, each with its auction."""

from streaming_core.api import App
from streaming_core.generator import nexmark

app = App("nexmark_q20", params=nexmark.PARAMS, reads="NEXMark, query 20")
_, auctions, bids = nexmark.streams(app)
bid = ("bidder", "price", "channel", "url")
item = ("item_name", "description", "initial_bid", "reserve", "expires", "seller", "category")
offers = app.join(
    bids.select("ts", "auction", *bid, bid_ts="ts", bid_extra="extra"),
    auctions.filter(lambda auction: auction.category == 10).select(
        "ts", "id", *item, auction_ts="ts", auction_extra="extra"
    ),
    on={"auction": "id"},
    ttl=None,
)
offers.select("auction", *bid, "bid_ts", "bid_extra", *item, "auction_ts", "auction_extra").sink()
