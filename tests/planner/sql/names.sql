-- The names are those that PostgreSQL 18 gives.

-- names: count; sum; avg; ?column?; count
SELECT count(*), sum(lo), avg(hi), count(*) + 1, count(DISTINCT city) FROM visits

-- names: count; ?column?; count; avg; round
SELECT (count(*)), -count(*), count(*)::int, CAST(avg(lo) AS numeric), round(avg(lo)) FROM visits

-- names: stddev; variance; var_pop; stddev_pop; var_samp; stddev_samp
SELECT stddev(lo), variance(lo), var_pop(lo), stddev_pop(lo), var_samp(lo), stddev_samp(lo) FROM visits

-- names: case; ?column?; coalesce; count
SELECT CASE WHEN count(*) > 5 THEN 1 ELSE 0 END, count(*) > 5, coalesce(sum(lo), 0), count(*) FILTER (WHERE vip) FROM visits

-- names: lo; High One; N; summe
SELECT lo, hi AS "High One", count(*) AS "N", sum(lo) AS SUMME FROM visits WHERE lo < 3 AND hi < 4 GROUP BY lo, hi

-- names: upper; count
SELECT upper(city), count(*) FROM visits GROUP BY upper(city)

-- names: ?column?; count
SELECT lo / 5, count(*) FROM visits GROUP BY lo / 5

-- names: extract; date_trunc; count
-- plain: SELECT extract(year FROM joined)::float, date_trunc('year', joined), count(*) FROM visits GROUP BY 1, 2
SELECT extract(year FROM joined), date_trunc('year', joined), count(*) FROM visits GROUP BY 1, 2

-- names: count; one
SELECT (SELECT count(*) FROM visits), (SELECT 1 AS one)

-- names: education-num; Mixed Case; count
SELECT "education-num", "Mixed Case", count(*) FROM visits WHERE lo = 1 GROUP BY 1, 2

-- names: least; greatest; nullif; abs; sqrt
SELECT least(count(*), 5), greatest(sum(lo), 1), nullif(count(*), 0), abs(sum(lo)), sqrt(count(*)) FROM visits

-- names: ?column?; ?column?; ?column?; ?column?; ?column?; ?column?; ?column?; ?column?; ?column?
SELECT 1, 'a', NULL, true, 1 + 1, 'a' || 'b', NOT true, 3 IN (1, 2), CURRENT_DATE = CURRENT_DATE

-- names: city; rank; sum
SELECT city, rank() OVER (ORDER BY count(*) DESC), sum(count(*)) OVER () FROM visits WHERE city IN ('Oslo', 'Rome', 'Lima') GROUP BY city

-- names: n
SELECT count(*) AS n FROM visits UNION ALL SELECT count(*) AS m FROM adult

-- names: vip; vip; count
SELECT vip::text, vip::int, count(*) FROM visits GROUP BY vip

-- names: seen; city; count
SELECT seen::date, city::varchar, count(*) FROM visits WHERE seen < '2020-01-03' GROUP BY 1, 2

-- names: city; count
SELECT t.* FROM (SELECT city, count(*) FROM visits WHERE city < 'P' AND city <> 'Bonn' GROUP BY city) AS t

-- names: count; b; ?column?
SELECT *, 1 FROM (SELECT count(*), count(*) AS b FROM visits) AS t

-- names: case; count
SELECT CASE vip WHEN true THEN city END, count(*) FROM visits GROUP BY 1

-- names: substring; count
SELECT substring(city FROM 1 FOR 1), count(*) FROM visits GROUP BY 1

-- names: city; count
SELECT CASE WHEN vip THEN 'x' ELSE city END, count(*) FROM visits GROUP BY 1

-- names: sum; case
SELECT CASE WHEN count(*) > 3 THEN 1 ELSE sum(lo) END, CASE WHEN count(*) > 3 THEN 1 ELSE sum(lo) + 1 END FROM visits

-- names: int4; int8; numeric; bool; float4; float8; text; date
SELECT 1::int, CAST(1 + 1 AS bigint), '1'::numeric, 1::boolean, 1.5::real, 2::float8, 'a'::text, date '2020-01-01'

-- names: exists; max; ?column?; array
SELECT EXISTS (SELECT 1 FROM regions), (SELECT max(people) FROM regions), (SELECT people + 1 FROM regions LIMIT 1), ARRAY[1, 2]

-- names: count
-- plain: SELECT count(*) FROM visits
SELECT count FROM (SELECT count(*) FROM visits) AS t

-- names: sum; count
-- plain: SELECT sum(lo), count(*) FROM visits
WITH n AS (SELECT sum(lo), count(*) FROM visits) SELECT sum, n.count FROM n

-- names: count; count
SELECT * FROM (SELECT count(*), count(temp) FROM visits) AS t

-- names: column1; column2
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t

-- names: count "it"; Ünï
SELECT count(*) AS "count ""it""", sum(lo) AS "Ünï" FROM visits

-- names: position; count
SELECT position('o' IN city), count(*) FROM visits GROUP BY 1

-- names: ?column?; ?column?; ?column?; ?column?
SELECT count(*) BETWEEN 1 AND 3, count(*) IS NULL, count(*) IN (1), city LIKE 'a' FROM visits GROUP BY city

-- names: grouping; city; count
SELECT grouping(city), city, count(*) FROM visits WHERE city < 'P' AND city <> 'Bonn' GROUP BY ROLLUP (city)

-- names: percentile_cont; mode; min; bool_and
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY people), mode() WITHIN GROUP (ORDER BY region), min(city), bool_and(capital) FROM regions

-- names: btrim; ltrim; replace; concat; to_char; count
SELECT trim(city), ltrim(city, 'O'), replace(city, 'a', 'b'), concat(city, '!'), to_char(seen, 'YYYY'), count(*) FROM visits WHERE city = 'Oslo' AND seen < '2020-01-01 05:00:00' GROUP BY city, seen

-- names: ?column?; ?column?; ?column?; ?column?; ?column?
SELECT -1, +1, 1 - 2, 2 ^ 3, 5 % 2

-- names: a; count
SELECT count(*) + 0 AS a, count(*) FROM visits ORDER BY a

-- names: lo; count
-- plain: SELECT lo, count(*) FROM visits WHERE lo = 3 GROUP BY lo
SELECT v.lo, v.count FROM (SELECT lo, count(*) FROM visits GROUP BY lo) AS v WHERE v.lo = 3
