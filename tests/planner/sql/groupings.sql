-- names: sex; count
-- types: VARCHAR; BIGINT
SELECT sex, count(*) FROM adult GROUP BY sex

SELECT sex, race, count(*), sum(hours) FROM adult GROUP BY sex, race

SELECT workclass, count(*), count(occupation) FROM adult GROUP BY workclass

SELECT age / 10 AS decade, count(*) FROM adult GROUP BY age / 10

SELECT age / 10 * 10 AS decade, avg(hours) FROM adult GROUP BY decade

SELECT age / 10 AS decade, sex, count(*) FROM adult GROUP BY 1, 2

SELECT temp / 10 AS band, count(*) FROM visits GROUP BY band

SELECT floor(temp / 10.0) AS band, count(*) FROM visits GROUP BY 1

SELECT active, vip, count(*) FROM visits GROUP BY active, vip

SELECT active IS NULL AS missing, count(*) FROM visits GROUP BY active IS NULL

SELECT temp > 10 AS warm, count(*) FROM visits GROUP BY temp > 10

SELECT city, count(*) AS n FROM visits GROUP BY city

SELECT upper(city) AS "City", count(*) FROM visits GROUP BY upper(city)

SELECT "Mixed Case", "education-num" / 4 AS edu, count(*) FROM visits GROUP BY 1, 2

SELECT CASE WHEN hours < 35 THEN 'part' WHEN hours <= 40 THEN 'full' ELSE 'over' END AS load, count(*), avg(age) FROM adult GROUP BY load

SELECT CASE sex WHEN 'Female' THEN 'F' WHEN 'Male' THEN 'M' END AS s, count(*) FROM adult GROUP BY 1

SELECT hi - lo AS room, count(*) FROM visits GROUP BY hi - lo

SELECT lo < hi AS ok, count(*) FROM visits GROUP BY 1

SELECT coalesce(workclass, 'unknown') AS w, count(*) FROM adult GROUP BY 1

SELECT score, count(*) FROM visits WHERE score < 0.05 GROUP BY score

SELECT round(score, 1) AS s, count(*) FROM visits GROUP BY 1

-- plain: SELECT round_even(price, 0) AS p, sum(price), count(*) FROM visits GROUP BY 1
SELECT round(price) AS p, sum(price), count(*) FROM visits GROUP BY 1

-- a grouped expression may be used inside others
SELECT age / 10 * 10 + 5 AS middle, count(*) FROM adult GROUP BY age / 10

SELECT sex || ' ' || race AS who, count(*) FROM adult GROUP BY sex, race

-- a key need not be shown
SELECT count(*) FROM adult GROUP BY sex

SELECT sex, education, count(*) FROM adult WHERE age > 60 GROUP BY education, sex

SELECT sex, race, count(*) FROM adult GROUP BY GROUPING SETS ((sex), (race), ())

SELECT sex, race, count(*), avg(age) FROM adult GROUP BY ROLLUP (sex, race)

SELECT sex, income, count(*) FROM adult GROUP BY CUBE (sex, income)

SELECT sex, income, grouping(sex, income) AS g, count(*) FROM adult GROUP BY CUBE (sex, income)

SELECT sex, race, grouping(race) AS g, sum(hours) FROM adult GROUP BY sex, ROLLUP (race)

SELECT sex, race, income, count(*) FROM adult GROUP BY ROLLUP ((sex, race), income)

SELECT active, city, count(*), count(temp) FROM visits GROUP BY GROUPING SETS ((active, city), (active), ())

SELECT city, count(DISTINCT lo), count(*) FROM visits GROUP BY ROLLUP (city)

SELECT lo / 5 AS band, vip, sum(wealth), variance(hi) FROM visits GROUP BY CUBE (lo / 5, vip)

SELECT sex, count(*) FROM adult GROUP BY GROUPING SETS ((sex))

-- exact
SELECT count(*) FROM adult GROUP BY ()

-- exact
SELECT DISTINCT sex FROM adult

-- exact
SELECT DISTINCT sex, income FROM adult ORDER BY sex, income DESC

-- exact
SELECT sex FROM adult GROUP BY sex ORDER BY sex DESC

SELECT vip, joined IS NULL AS j, "Mixed Case" = 'beta' AS b, count(*) FROM visits GROUP BY vip, j, b

SELECT grade, shoe / 10 AS s, count(*) FROM visits GROUP BY grade, shoe / 10

SELECT temp, count(*) FROM visits GROUP BY temp

SELECT temp, sum(temp), avg(score) FROM visits WHERE temp BETWEEN 10 AND 12 GROUP BY temp
