WITH winners AS (
    SELECT a.id, a.seller, b.price, b.ts
    FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.seq) = 1
)
SELECT seller,
    avg(price) OVER (PARTITION BY seller ORDER BY ts, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS price
FROM winners
