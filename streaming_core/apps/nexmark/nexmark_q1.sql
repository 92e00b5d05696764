SELECT auction, bidder, ts, extra, 908 * price AS price
FROM bid
