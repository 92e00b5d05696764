"""NEXMark query 23: the bids of people who also sell, with the person and each of their auctions."""

from streaming_core.api import App
from streaming_core.generator import nexmark

app = App("nexmark_q23", params=nexmark.PARAMS, reads="NEXMark, query 23")
people, auctions, bids = nexmark.streams(app)
bid = ("price", "channel", "url")
person = ("name", "email_address", "credit_card", "city", "state")
item = ("item_name", "description", "initial_bid", "reserve", "expires", "category")
offers = app.join(
    bids.select("ts", "bidder", *bid, bid_extra="extra"),
    people.select("ts", "id", *person, person_extra="extra"),
    on={"bidder": "id"},
    ttl=None,
)
sales = app.join(
    offers,
    auctions.select("ts", "seller", *item, auction_ts="ts", auction_extra="extra"),
    on={"bidder": "seller"},
    ttl=None,
)
own = ("bid_extra", "person_extra", "auction_extra", "auction_ts")
sales.select("bidder", *bid, *person, *item, *own, person_id="bidder", seller="bidder").sink()
