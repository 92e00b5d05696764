SELECT auction, bidder, price, ts, extra
FROM bid
