WITH gaps AS (
    SELECT bidder, ts, ts >= lag(ts, 1, ts) OVER bids + 10000 AS is_first
    FROM bid
    WINDOW bids AS (PARTITION BY bidder ORDER BY ts)
), numbers AS (
    SELECT bidder, ts, sum(is_first::int) OVER (PARTITION BY bidder ORDER BY ts) AS number
    FROM gaps
)
SELECT bidder, count(*) AS bid_count, min(ts) AS start, max(ts) + 10000 AS "end"
FROM numbers
GROUP BY bidder, number
