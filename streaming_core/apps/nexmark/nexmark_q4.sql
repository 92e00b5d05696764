WITH winners AS (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires
    GROUP BY a.id, a.category
)
SELECT category, avg(final) AS final
FROM winners
GROUP BY category
