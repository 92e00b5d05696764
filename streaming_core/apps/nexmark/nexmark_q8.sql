SELECT DISTINCT p.id, p.name, p.ts // 10000 * 10000 AS ts
FROM person p JOIN auction a ON a.seller = p.id AND a.ts // 10000 = p.ts // 10000
