SELECT DISTINCT p.id, p.name, floor(p.ts / 10000)::BIGINT * 10000 AS ts
FROM person p JOIN auction a ON a.seller = p.id AND floor(a.ts / 10000) = floor(p.ts / 10000)
