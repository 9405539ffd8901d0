-- 42501: adult
SELECT * FROM adult

-- 42501: adult
SELECT age FROM adult WHERE age = 90

-- 42501: adult
SELECT * FROM adult LIMIT 1

-- 42501: adult
TABLE adult

-- 42501: adult
FROM adult

-- 42601: adult
SELECT FROM adult

-- 42501: adult
SELECT 1 FROM adult

-- 42501: adult AS a
SELECT a.* FROM adult AS a

-- 42501: adult
SELECT age, count(*) OVER () FROM adult

-- 42501: adult
SELECT row_number() OVER () FROM adult

-- 42501: visits
SELECT sum(lo) OVER (PARTITION BY city) FROM visits

-- 42501: adult
SELECT lag(age) OVER (ORDER BY age) FROM adult

-- 0A000: row_number() OVER (ORDER BY age
SELECT count(*) FROM (SELECT age, row_number() OVER (ORDER BY age) AS r FROM adult) AS t WHERE r < 10

-- 42501: adult
SELECT age FROM adult ORDER BY count(*) OVER ()

-- 42501: adult
SELECT sex, count(*) FROM adult GROUP BY sex UNION ALL SELECT sex, age FROM adult

-- 42501: adult
SELECT count(*) FROM adult UNION SELECT age FROM adult

-- 42501: adult
SELECT age FROM adult EXCEPT SELECT 17

-- 42501: adult
SELECT 17 INTERSECT SELECT age FROM adult

-- 42501: visits
SELECT count(*) FROM (SELECT lo FROM visits UNION ALL SELECT hi FROM visits) AS t

-- 42501: adult) AS t
SELECT * FROM (SELECT * FROM adult) AS t

-- 42501: t
WITH t AS (SELECT * FROM adult) SELECT * FROM t

-- 42501: u
WITH t AS (SELECT age FROM adult), u AS (SELECT age FROM t WHERE age > 80) SELECT age + 1 FROM u

-- 42501
SELECT * FROM grown

-- 42501: adult
SELECT ARRAY(SELECT age FROM adult)

-- 42501: adult
SELECT (SELECT age FROM adult WHERE age = 90)

-- 42501: adult
SELECT EXISTS (SELECT 1 FROM adult WHERE age = 90)

-- 42501: visits
SELECT CASE WHEN EXISTS (SELECT 1 FROM visits WHERE lo = 1) THEN 1 ELSE 0 END

-- 42501: adult
SELECT 90 IN (SELECT age FROM adult)

-- 42501: visits
SELECT count(*) FROM regions WHERE city IN (SELECT city FROM visits)

-- 42501: visits AS v
SELECT * FROM regions AS r WHERE EXISTS (SELECT 1 FROM visits AS v WHERE v.lo = 3)

-- 42501: adult AS b
SELECT count(*) FROM adult WHERE EXISTS (SELECT 1 FROM adult AS b WHERE b.age = 90)

-- 42501: adult
SELECT count(*) FROM adult WHERE age IN (SELECT age FROM adult WHERE sex = 'Male')

-- 42501: visits
SELECT count(*) FROM visits, regions AS r WHERE visits.city = r.city AND r.city IN (SELECT city FROM visits)

-- 0A000: age FROM adult LIMIT 10
SELECT count(*) FROM (SELECT age FROM adult LIMIT 10) AS t

-- 0A000: age FROM adult OFFSET 10
SELECT count(*) FROM (SELECT age FROM adult OFFSET 10) AS t

-- 0A000: age FROM adult ORDER BY age DESC LIMIT 5
SELECT avg(age) FROM (SELECT age FROM adult ORDER BY age DESC LIMIT 5) AS t

-- 0A000: sex) sex, age FROM adult
SELECT DISTINCT ON (sex) sex, age FROM adult

-- 0A000: a
SELECT row_to_json(a) FROM adult AS a

-- 0A000: adult
SELECT to_json(adult) FROM adult

-- 0A000: a
SELECT json_agg(a) FROM adult AS a

-- 0A000: v
SELECT count(v) FROM visits AS v

-- 0A000: visits
SELECT visits FROM visits

-- 0A000: sex, ','
SELECT string_agg(sex, ',') FROM adult

-- 0A000: array_agg(age ORDER BY age
SELECT array_agg(age ORDER BY age) FROM adult

-- 42501: adult
SELECT list(age) FROM adult

-- 0A000: histogram(age
SELECT histogram(age) FROM adult

-- 0A000: min(age
SELECT min(age) FROM adult

-- 0A000: max(hours
SELECT sex, max(hours) FROM adult GROUP BY sex

-- 0A000: first(age
SELECT first(age) FROM adult

-- 0A000: last(age
SELECT last(age) FROM adult

-- 0A000: any_value(age
SELECT any_value(age) FROM adult

-- 0A000: age, hours
SELECT max_by(age, hours) FROM adult

-- 0A000: mode() WITHIN GROUP (ORDER BY lo
SELECT mode() WITHIN GROUP (ORDER BY lo) FROM visits

-- 0A000: bool_and(vip
SELECT bool_and(vip) FROM visits

-- 0A000: bit_xor(lo
SELECT bit_xor(lo) FROM visits

-- 0A000: corr(lo, hi
SELECT corr(lo, hi) FROM visits

-- 0A000: sum(DISTINCT lo
SELECT sum(DISTINCT lo) FROM visits

-- 0A000: product(lo
SELECT product(lo) FROM visits

-- 0A000: approx_count_distinct(age
SELECT approx_count_distinct(age) FROM adult

-- 42501: visits
SELECT COLUMNS('.*') FROM visits
