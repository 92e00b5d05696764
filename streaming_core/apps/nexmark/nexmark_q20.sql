SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts AS bid_ts, b.extra AS bid_extra,
    a.item_name, a.description, a.initial_bid, a.reserve, a.ts AS auction_ts, a.expires, a.seller, a.category,
    a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10
