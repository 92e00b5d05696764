SELECT auction, price, bidder, extra, ts
FROM bid
QUALIFY price = max(price) OVER (PARTITION BY ts // 10000)
