SELECT auction, bidder, price, channel, url, ts, extra
FROM bid
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY ts DESC, seq) = 1
