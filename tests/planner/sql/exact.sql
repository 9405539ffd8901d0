-- exact
SELECT * FROM regions ORDER BY city

-- exact
SELECT r.city, t.tag FROM regions r JOIN tags t ON r.city = t.city ORDER BY 1, 2

-- exact
SELECT region, count(*), max(people) FROM regions GROUP BY region ORDER BY region

-- exact
SELECT city, row_number() OVER (ORDER BY people) AS r FROM regions ORDER BY r

-- exact
SELECT string_agg(tag, ',' ORDER BY tag) FROM tags

-- exact
SELECT count(*), min(lo), max(hi) FROM visits_synth

-- exact
SELECT city, lo FROM visits_synth ORDER BY city, lo, hi LIMIT 5

-- exact
SELECT r.city FROM regions r LEFT JOIN tags t ON r.city = t.city WHERE t.tag IS NULL ORDER BY 1

-- exact
SELECT r.city FROM regions r FULL JOIN tags t ON r.city = t.city WHERE EXISTS (SELECT 1 FROM tags WHERE tags.city = r.city) ORDER BY 1

-- names: ?column?
-- exact
SELECT 1

-- exact
SELECT 1 AS a, 'x' AS b, NULL AS c, true AS d, 1.5 AS e

-- exact
SELECT 7 / 2 AS a, -7 / 2 AS b, 7 % 3 AS c, 7.0 / 2 AS d

-- exact
SELECT upper('abc') AS a, length('äöü') AS b, coalesce(NULL, 3) AS c, date '2020-02-29' + 1 AS d

-- exact
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t (n, s) ORDER BY n

-- exact
SELECT 1 UNION ALL SELECT 2 ORDER BY 1

-- exact
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT sum(n) FROM t

-- exact
SELECT CASE WHEN 1 > 0 THEN 'yes' END AS a, ARRAY[1, 2] AS b

-- exact
SELECT people / 3 AS p FROM regions ORDER BY p
