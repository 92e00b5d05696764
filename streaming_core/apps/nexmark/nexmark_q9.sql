SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.ts, a.expires, a.seller, a.category, a.extra,
    b.auction, b.bidder, b.price, b.ts AS bid_ts, b.extra AS bid_extra
FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires
QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts, b.seq) = 1
