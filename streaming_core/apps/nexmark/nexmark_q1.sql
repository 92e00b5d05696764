SELECT auction, bidder, ts, extra, 0.908 * price AS price
FROM bid
