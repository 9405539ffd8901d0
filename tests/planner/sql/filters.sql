SELECT count(*) FILTER (WHERE sex = 'Male') AS m, count(*) FILTER (WHERE sex = 'Female') AS f, count(*) FROM adult

SELECT education, avg(hours) FILTER (WHERE sex = 'Male') AS m FROM adult WHERE education IN ('Bachelors', 'Masters') GROUP BY education

SELECT sum(temp) FILTER (WHERE active), avg(temp) FILTER (WHERE NOT active), count(temp) FILTER (WHERE active IS NULL) FROM visits

SELECT count(DISTINCT city) FILTER (WHERE temp > 25) FROM visits

SELECT variance(temp) FILTER (WHERE vip), stddev(temp) FILTER (WHERE city = 'Rome') FROM visits

SELECT sum(CASE WHEN sex = 'Male' THEN 1 ELSE 0 END) AS men, count(*) AS n FROM adult

SELECT sum(CASE WHEN sex = 'Male' THEN 1 END) AS men, count(CASE WHEN sex = 'Male' THEN 1 END) AS men_too FROM adult

SELECT sum(CASE WHEN sex = 'Male' THEN hours END) AS h, avg(CASE WHEN sex = 'Male' THEN hours END) FROM adult

SELECT sum(CASE WHEN income = '>50K' THEN hours ELSE 0 END), avg(CASE WHEN income = '>50K' THEN hours ELSE 0 END) FROM adult

SELECT sum(CASE WHEN sex = 'Male' THEN capital_gain ELSE capital_loss END) FROM adult

SELECT sum(CASE WHEN vip THEN wealth * 2 WHEN active THEN wealth + 1 ELSE -wealth END) FROM visits

SELECT sum(CASE WHEN vip THEN wealth ELSE temp END), avg(CASE WHEN vip THEN wealth ELSE temp END) FROM visits

SELECT sum(CASE WHEN temp < 0 THEN -temp ELSE temp END), variance(CASE WHEN vip THEN lo ELSE hi END) FROM visits

SELECT sum(CASE city WHEN 'Oslo' THEN 1.5 WHEN 'Rome' THEN 2 ELSE 0.25 END) FROM visits

SELECT sum(CASE grade WHEN 1 THEN lo WHEN 2 THEN hi END), count(CASE grade WHEN 1 THEN lo WHEN 2 THEN hi END) FROM visits

SELECT avg(CASE WHEN active THEN 1.0 ELSE 0.0 END) AS share FROM visits

SELECT city, 100.0 * sum(CASE WHEN vip THEN 1 ELSE 0 END) / count(*) AS percent FROM visits WHERE city IN ('Oslo', 'Rome', 'Lima') GROUP BY city

SELECT sum(CASE WHEN temp IS NULL THEN 0 ELSE wealth END) FROM visits

SELECT count(CASE WHEN temp > 0 THEN price END), sum(CASE WHEN temp > 0 THEN price END) FROM visits

SELECT sum(CASE WHEN lo > 5 THEN CASE WHEN hi > 5 THEN 3 ELSE 2 END ELSE 1 END) FROM visits

SELECT sum(hours) FILTER (WHERE age > 30 AND age <= 40), sum(hours) FILTER (WHERE age > 40) FROM adult WHERE age > 25

SELECT sex, count(*) FILTER (WHERE income = '>50K') AS rich, count(*) AS n FROM adult GROUP BY sex

SELECT count(*) FILTER (WHERE temp > 10 OR NULL) FROM visits

SELECT sum(wealth) FILTER (WHERE city = 'Oslo') - sum(wealth) FILTER (WHERE city = 'Rome') AS gap FROM visits

SELECT sum(10 / nullif(lo, 0)) FROM visits

SELECT sum(CASE WHEN lo > 0 THEN 10 / lo ELSE 0 END) FROM visits

SELECT count(*) FILTER (WHERE extract(month FROM joined) = 5) AS may, sum(lo) FILTER (WHERE seen >= '2020-01-04') FROM visits

SELECT sum(iif) FROM (SELECT CASE WHEN vip THEN 5 ELSE lo END AS iif FROM visits) AS t
