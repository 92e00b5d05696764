SELECT auction, price, bidder, extra, ts
FROM bid
QUALIFY price = max(price) OVER (PARTITION BY floor(ts / 10000))
