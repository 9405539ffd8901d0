-- 0A000: adult AS a
SELECT count(*) FROM adult AS a JOIN adult AS b ON a.age = b.age

-- 0A000: adult AS a
SELECT count(*) FROM adult AS a, adult AS b

-- 0A000: adult
SELECT count(*) FROM adult JOIN visits ON adult.age = visits.lo

-- 0A000: adult AS a
SELECT count(*) FROM adult AS a JOIN (SELECT lo FROM visits) AS v ON a.age = v.lo

-- 0A000: n FROM visits GROUP BY lo) AS v
SELECT count(*) FROM adult AS a JOIN (SELECT lo, count(*) AS n FROM visits GROUP BY lo) AS v ON a.age = v.lo

-- 0A000: v
WITH v AS (SELECT lo, count(*) AS n FROM visits GROUP BY lo) SELECT count(*) FROM adult AS a JOIN v ON a.age = v.lo

-- 0A000: regions AS r ON v.city = r.city
SELECT count(*) FROM visits AS v RIGHT JOIN regions AS r ON v.city = r.city

-- 0A000: regions AS r ON v.city = r.city
SELECT count(*) FROM visits AS v FULL JOIN regions AS r ON v.city = r.city

-- 0A000: visits AS v ON v.city = r.city
SELECT count(*) FROM regions AS r LEFT JOIN visits AS v ON v.city = r.city

-- 0A000: 10
SELECT count(*) FROM visits TABLESAMPLE BERNOULLI (10)

-- 0A000: 10) REPEATABLE (1
SELECT count(*) FROM visits TABLESAMPLE SYSTEM (10) REPEATABLE (1)

-- 0A000: lo FROM visits AS v) AS t
SELECT * FROM regions AS r, LATERAL (SELECT lo FROM visits AS v) AS t

-- 0A000: count(*) AS n FROM visits AS v WHERE v.city = r.city) AS t
SELECT r.city, t.n FROM regions AS r CROSS JOIN LATERAL (SELECT count(*) AS n FROM visits AS v WHERE v.city = r.city) AS t

-- 0A000: r.city
SELECT r.city, (SELECT count(*) FROM visits AS v WHERE v.city = r.city) FROM regions AS r

-- 0A000: r.city
SELECT * FROM regions AS r WHERE EXISTS (SELECT 1 FROM visits AS v WHERE v.city = r.city)

-- 0A000: age
SELECT count(*) FROM adult WHERE age > (SELECT avg(age) FROM adult)

-- 0A000: noisegate.budget
SELECT count(*) FROM noisegate.budget, adult

-- 0A000: count(*) FROM noisegate.releases
SELECT count(*) FROM adult WHERE age > (SELECT count(*) FROM noisegate.releases)

-- 0A000: count(DISTINCT v.lo
SELECT count(DISTINCT v.lo) FROM visits AS v JOIN tags AS t ON v.city = t.city

-- 0A000: median(v.lo
SELECT median(v.lo) FROM visits AS v JOIN tags AS t ON v.city = t.city

-- 42501: adult
WITH RECURSIVE t AS (SELECT age FROM adult UNION ALL SELECT age + 1 FROM t) SELECT count(*) FROM t

-- 0A000: t
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT count(*) FROM adult, t
