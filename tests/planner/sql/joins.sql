-- unique keys; Lima and elsewhere have no match and drop out
SELECT region, count(*) FROM visits JOIN regions ON visits.city = regions.city GROUP BY region

SELECT r.region, sum(v.temp), avg(v.price) FROM visits v JOIN regions r ON v.city = r.city GROUP BY r.region

SELECT count(*) FROM visits v JOIN regions r ON r.city = v.city WHERE r.people > 500 AND v.vip

SELECT r.region, count(*) FROM visits v LEFT JOIN regions r ON v.city = r.city GROUP BY r.region

SELECT count(*), count(r.city), sum(r.people) FROM visits v LEFT JOIN regions r ON v.city = r.city

SELECT r.capital, count(DISTINCT v.lo) FROM visits v LEFT JOIN regions r ON v.city = r.city GROUP BY r.capital

SELECT count(*) FROM visits v LEFT JOIN regions r ON v.city = r.city AND r.region = 'north' WHERE r.city IS NULL

-- several matches: a row counts as often as it matches
SELECT tag, count(*) FROM visits v JOIN tags t ON v.city = t.city GROUP BY tag

SELECT count(*), sum(weight), sum(v.lo) FROM visits v JOIN tags t ON v.city = t.city

SELECT t.tag, sum(v.lo), avg(v.hi) FROM visits v LEFT JOIN tags t ON v.city = t.city GROUP BY t.tag

SELECT sum(v.temp * t.weight) FROM visits v JOIN tags t ON v.city = t.city

SELECT r.region, t.tag, count(*) FROM visits v JOIN regions r ON v.city = r.city JOIN tags t ON t.city = r.city GROUP BY 1, 2

SELECT r.region, t.tag, count(*) FROM visits v LEFT JOIN regions r ON v.city = r.city LEFT JOIN tags t ON t.city = v.city GROUP BY 1, 2

SELECT region, count(*) FROM regions JOIN visits ON visits.city = regions.city GROUP BY region

SELECT region, count(*) FROM visits, regions WHERE visits.city = regions.city GROUP BY region

SELECT count(*) FROM visits CROSS JOIN tags

SELECT count(*) FROM visits v JOIN tags t ON v.lo = t.weight

SELECT t.tag, count(*) FROM visits v JOIN tags t ON v.lo BETWEEN t.weight AND t.weight + 2 GROUP BY t.tag

SELECT region, count(*) FROM visits JOIN regions USING (city) GROUP BY region

SELECT k.region, count(*) FROM visits v JOIN (SELECT region, city FROM regions WHERE people > 400) AS k ON v.city = k.city GROUP BY k.region

WITH big AS (SELECT city, people FROM regions WHERE people > 400) SELECT b.city, count(*) FROM visits v JOIN big b ON v.city = b.city GROUP BY b.city

SELECT avg(people) FROM visits v JOIN regions r ON v.city = r.city WHERE v.active

SELECT (SELECT region FROM regions r WHERE r.city = v.city) AS region, count(*) FROM visits v GROUP BY 1

-- a synthetic table is read exactly, also in a join
SELECT count(*) FROM visits v JOIN (SELECT DISTINCT city FROM visits_synth) AS s ON v.city = s.city

SELECT r.region, count(*) FILTER (WHERE v.vip), sum(CASE WHEN r.capital THEN v.wealth ELSE 0 END) FROM visits v JOIN regions r ON v.city = r.city GROUP BY r.region

SELECT count(*) FROM visits v JOIN (VALUES ('Oslo', 1), ('Lima', 2)) AS k (city, n) ON v.city = k.city

SELECT count(*), sum(people) FROM visits NATURAL JOIN regions

-- a public subquery may use the alias of the protected table for its own
SELECT count(*) FROM visits AS v WHERE EXISTS (SELECT 1 FROM regions AS v WHERE v.city = 'Oslo')

SELECT count(*) FROM visits AS regions WHERE EXISTS (SELECT 1 FROM regions WHERE city = 'Oslo')

SELECT count(*) FROM visits AS v WHERE lo IN (SELECT v.weight FROM tags AS v WHERE v.city = 'Rome')

-- plain: SELECT count(*) FROM visits WHERE city IN ('Oslo', 'Rome')
WITH tags AS (SELECT city FROM regions WHERE people > 500) SELECT count(*) FROM visits JOIN tags ON visits.city = tags.city
