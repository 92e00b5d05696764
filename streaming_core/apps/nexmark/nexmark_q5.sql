WITH hops AS (
    SELECT auction, unnest(range(first, first + 10000, 2000)) AS window_end
    FROM (SELECT auction, floor(ts / 2000)::BIGINT * 2000 + 2000 AS first FROM bid)
), counts AS (
    SELECT auction, window_end, count(*) AS num
    FROM hops
    GROUP BY auction, window_end
)
SELECT auction, num
FROM counts
QUALIFY num = max(num) OVER (PARTITION BY window_end)
