SELECT auction, bidder, ts, extra, 908 * price AS price,
    CASE WHEN hour(make_timestamp(ts * 1000)) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(make_timestamp(ts * 1000)) <= 6 OR hour(make_timestamp(ts * 1000)) >= 20 THEN 'nightTime'
        ELSE 'otherTime' END AS bid_time_type,
    len(extra) - len(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 908 * price > 1000000000 AND 908 * price < 50000000000
