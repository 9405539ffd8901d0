SELECT count(*) FROM visits WHERE joined >= '2020-01-01'

SELECT count(*) FROM visits WHERE joined >= DATE '2020-01-01' AND joined < DATE '2020-07-01'

SELECT count(*) FROM visits WHERE joined BETWEEN '2019-06-01' AND '2019-06-30'

SELECT count(*) FROM visits WHERE extract(year FROM joined) = 2019

SELECT count(*) FROM visits WHERE extract(dow FROM joined) IN (0, 6)

SELECT count(*) FROM visits WHERE date_part('month', joined) = 12

SELECT count(*) FROM visits WHERE date_trunc('month', joined) = DATE '2020-02-01'

SELECT count(*) FROM visits WHERE joined + 30 > DATE '2020-12-31'

SELECT count(*) FROM visits WHERE joined + INTERVAL '1 month' > DATE '2020-12-31'

SELECT count(*) FROM visits WHERE joined - DATE '2019-01-01' < 100

SELECT count(*) FROM visits WHERE joined IS NULL

SELECT count(*) FROM visits WHERE seen >= TIMESTAMP '2020-01-03 12:00:00'

SELECT count(*) FROM visits WHERE extract(hour FROM seen) BETWEEN 9 AND 17

SELECT count(*) FROM visits WHERE seen::date = DATE '2020-01-05'

SELECT count(*) FROM visits WHERE date_trunc('day', seen) = TIMESTAMP '2020-01-07 00:00:00'

SELECT count(*) FROM visits WHERE seen < '2020-01-02'

-- plain: SELECT extract(year FROM joined)::float AS y, count(*) FROM visits GROUP BY 1
SELECT extract(year FROM joined) AS y, count(*) FROM visits GROUP BY extract(year FROM joined)

SELECT date_trunc('month', joined) AS month, count(*) AS n FROM visits GROUP BY 1

SELECT date_trunc('quarter', joined) AS q, sum(lo) FROM visits WHERE joined IS NOT NULL GROUP BY q

SELECT seen::date AS day, count(*) FROM visits GROUP BY seen::date

-- plain: SELECT extract(hour FROM seen)::float / 6 AS quarter_day, count(*) FROM visits GROUP BY 1
SELECT extract(hour FROM seen) / 6 AS quarter_day, count(*) FROM visits GROUP BY 1

SELECT joined, count(*) FROM visits WHERE joined BETWEEN '2020-03-01' AND '2020-03-14' GROUP BY joined

SELECT CASE WHEN joined IS NULL THEN 'never' WHEN joined < '2020-01-01' THEN 'old' ELSE 'new' END AS age, count(*) FROM visits GROUP BY 1

SELECT to_char(joined, 'YYYY-MM') AS month, count(*) FROM visits WHERE joined < '2019-04-01' GROUP BY 1

SELECT count(DISTINCT joined), count(DISTINCT seen::date) FROM visits
