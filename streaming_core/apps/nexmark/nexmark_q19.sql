SELECT auction, bidder, price, channel, url, ts, extra,
    row_number() OVER (PARTITION BY auction ORDER BY price DESC, seq) AS rank_number
FROM bid
QUALIFY rank_number <= 10
