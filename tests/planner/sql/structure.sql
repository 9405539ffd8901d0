-- exact
SELECT education, count(*) AS n FROM adult GROUP BY education HAVING count(*) > 1000 ORDER BY n DESC

-- exact
SELECT education, count(*) AS n FROM adult GROUP BY education ORDER BY n DESC LIMIT 3

-- exact
SELECT education, count(*) AS n FROM adult GROUP BY education ORDER BY 2 DESC, 1 LIMIT 3 OFFSET 2

-- exact
SELECT education FROM adult GROUP BY education HAVING avg(hours) > 42 ORDER BY avg(hours)

-- exact
SELECT sex, count(*) FROM adult GROUP BY sex ORDER BY count(*) FETCH FIRST 1 ROW ONLY

-- exact
SELECT city, sum(wealth) AS w FROM visits GROUP BY city HAVING sum(lo) > 0 ORDER BY w DESC NULLS LAST

-- exact
SELECT active, count(*) FROM visits GROUP BY active ORDER BY active

-- exact
SELECT active, count(*) FROM visits GROUP BY active ORDER BY active DESC

-- exact
SELECT count(*) FROM adult HAVING count(*) > 10

-- exact
SELECT count(*) FROM adult HAVING count(*) > 1000000

SELECT count(*) FROM (SELECT age, sex FROM adult WHERE hours > 40) AS t WHERE age > 50

SELECT s, count(*) FROM (SELECT sex AS s, age * 2 AS twice FROM adult) AS t WHERE twice > 80 GROUP BY s

SELECT t.band, sum(t.h) FROM (SELECT age / 20 AS band, hours AS h FROM adult) t GROUP BY t.band

SELECT count(*) FROM (SELECT * FROM adult) AS t WHERE sex = 'Male'

SELECT count(*) FROM (SELECT * FROM (SELECT age + 1 AS a FROM adult) AS t WHERE a < 60) AS u WHERE a > 50

WITH t AS (SELECT age, sex FROM adult WHERE income = '>50K') SELECT sex, avg(age) FROM t GROUP BY sex

WITH t AS (SELECT age AS a FROM adult), u AS (SELECT a / 10 AS d FROM t WHERE a > 20) SELECT d, count(*) FROM u GROUP BY d

WITH t (x, y) AS (SELECT age, sex FROM adult) SELECT y, sum(x) FROM t GROUP BY y

-- exact
WITH n AS (SELECT sex, count(*) AS c FROM adult GROUP BY sex) SELECT sum(c), max(c), min(c) FROM n

-- exact
WITH n AS (SELECT sex, race, count(*) AS c FROM adult GROUP BY sex, race) SELECT sex, max(c), sum(c) FROM n GROUP BY sex

-- exact
WITH t AS (SELECT sex, hours FROM adult WHERE age > 30), n AS (SELECT sex, avg(hours) AS h FROM t GROUP BY sex), m AS (SELECT max(h) - min(h) AS gap FROM n) SELECT gap FROM m

-- exact
WITH a AS (SELECT sex, count(*) AS n FROM adult GROUP BY sex), b AS (SELECT sex, avg(age) AS m FROM adult GROUP BY sex) SELECT a.sex, n, m FROM a JOIN b ON a.sex = b.sex ORDER BY a.sex

-- exact
SELECT t.sex, t.n * 100.0 / u.n AS share FROM (SELECT sex, count(*) AS n FROM adult GROUP BY sex) AS t, (SELECT count(*) AS n FROM adult) AS u

-- exact
SELECT avg(n) FROM (SELECT city, count(*) AS n FROM visits WHERE city IN ('Oslo', 'Rome', 'Lima') GROUP BY city) AS t

-- exact
SELECT 'men' AS who, count(*) FROM adult WHERE sex = 'Male' UNION ALL SELECT 'women', count(*) FROM adult WHERE sex = 'Female'

-- exact
SELECT sex AS k, count(*) AS n FROM adult GROUP BY sex UNION ALL SELECT income, count(*) FROM adult GROUP BY income ORDER BY n

-- exact
SELECT sex FROM adult GROUP BY sex UNION SELECT income FROM adult GROUP BY income ORDER BY 1

-- exact
SELECT count(*) FROM adult UNION ALL SELECT 7

-- exact
SELECT sex FROM adult GROUP BY sex INTERSECT SELECT 'Male'

-- exact
SELECT sex FROM adult GROUP BY sex EXCEPT SELECT 'Male'

-- exact
SELECT sex, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS r FROM adult GROUP BY sex ORDER BY sex

-- exact
SELECT sex, income, count(*) AS n, sum(count(*)) OVER (PARTITION BY sex) AS of_sex FROM adult GROUP BY sex, income ORDER BY sex, income

-- exact
SELECT age / 10 AS d, sum(count(*)) OVER (ORDER BY age / 10) AS running FROM adult GROUP BY age / 10 ORDER BY d

-- exact
SELECT sex, 100.0 * count(*) / sum(count(*)) OVER () AS percent FROM adult GROUP BY sex

-- exact
SELECT sex, count(*) - lag(count(*)) OVER (ORDER BY sex) AS step FROM adult GROUP BY sex ORDER BY sex

-- exact
SELECT * FROM (SELECT education, count(*) AS n, row_number() OVER (ORDER BY count(*) DESC) AS r FROM adult GROUP BY education) AS t WHERE r <= 2 ORDER BY r

-- exact
SELECT sex, avg(avg(hours)) OVER () AS m FROM adult GROUP BY sex ORDER BY sex

-- exact
SELECT (SELECT count(*) FROM adult) AS a, (SELECT count(*) FROM visits) AS b

-- exact
SELECT count(*) AS n, (SELECT max(people) FROM regions) AS p FROM visits

-- exact
SELECT count(*) * 1.0 / (SELECT count(*) FROM adult) AS share FROM adult WHERE sex = 'Male'

-- exact
SELECT sex, count(*) FROM adult GROUP BY sex HAVING count(*) > (SELECT count(*) / 2 FROM adult)

-- exact
SELECT DISTINCT count(*) > 5 AS many FROM adult GROUP BY sex

-- exact
SELECT * FROM (SELECT count(*) AS n FROM adult) AS t

-- exact
SELECT count(*) FROM (SELECT sex, count(*) AS n FROM adult GROUP BY sex) AS t

-- exact
SELECT CASE WHEN count(*) > 100 THEN 'many' ELSE 'few' END AS size FROM adult

-- exact
SELECT coalesce(sum(lo), 0) AS a, nullif(count(*), 0) AS b, greatest(sum(lo), sum(hi)) AS c FROM visits

SELECT count(*) FROM adult AS a WHERE a.sex = 'Male'

SELECT a.* FROM (SELECT sex, count(*) AS n FROM adult GROUP BY sex) AS a

-- plain: SELECT count(*) FROM adult
SELECT count(*) FROM public.adult

SELECT COUNT(*) FROM Adult WHERE SEX = 'Male'

SELECT sex, count(*) FROM grown GROUP BY sex

SELECT g.sex, avg(g.hours) FROM grown AS g WHERE g.age < 50 GROUP BY g.sex

SELECT city, count(*), avg(edu) FROM warm GROUP BY city

-- exact
WITH w AS (SELECT city, count(*) AS n FROM warm GROUP BY city) SELECT max(n) FROM w

-- exact
SELECT r.region, t.n FROM (SELECT city, count(*) AS n FROM visits GROUP BY city) AS t JOIN regions r ON r.city = t.city WHERE t.n > 0 ORDER BY t.n

-- exact
SELECT count(*) FROM visits_synth UNION ALL SELECT count(*) FROM visits

-- exact
SELECT s.n - v.n AS gap FROM (SELECT count(*) AS n FROM visits_synth) AS s, (SELECT count(*) AS n FROM visits) AS v

-- exact
(SELECT count(*) FROM adult WHERE sex = 'Male') UNION ALL (SELECT count(*) FROM adult WHERE sex = 'Female') ORDER BY 1

-- exact
SELECT sex, count(*) FROM adult GROUP BY sex LIMIT 0

-- exact
SELECT count(*), sum(hours) FROM adult WHERE 1 = 0

SELECT count(*) FROM adult WHERE age > 30 LIMIT 10

-- exact
SELECT n FROM (SELECT count(*) AS n FROM adult UNION ALL SELECT count(*) FROM visits) AS t ORDER BY n

-- exact
WITH a AS (SELECT sex, count(*) AS n FROM adult GROUP BY sex) SELECT x.sex, y.n FROM a x JOIN a y ON x.sex = y.sex ORDER BY 1

-- exact
SELECT sum(n) FROM (SELECT DISTINCT sex, 1 AS n FROM adult) AS t

-- a name of WITH goes before a table of the policy
-- exact
WITH adult AS (SELECT 1 AS x) SELECT * FROM adult

WITH visits AS (SELECT age AS lo FROM adult) SELECT sum(lo) FROM visits

-- a column goes before an alias in GROUP BY, an alias before a column in ORDER BY
SELECT age / 10 AS age, count(*) FROM adult GROUP BY age

SELECT sex, race, income, count(*) FROM adult GROUP BY sex, ROLLUP (race), CUBE (income)

-- exact
-- plain: SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t (n, s)
VALUES (1, 'a'), (2, 'b')

-- exact
SELECT unnest(ARRAY[1, 2]) AS n, count(*) FROM adult
