-- levels: 0.5
-- names: median
SELECT median(age) FROM adult

-- levels: 0.25; 0.75
SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY hours), percentile_cont(0.75) WITHIN GROUP (ORDER BY hours) FROM adult

-- levels: 0.9
-- names: percentile_disc
-- types: BIGINT
SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY age) FROM adult

-- levels: 0.9
SELECT percentile_disc(0.1) WITHIN GROUP (ORDER BY age DESC) FROM adult

-- levels: 0; 1
SELECT percentile_disc(0) WITHIN GROUP (ORDER BY age), percentile_disc(1) WITHIN GROUP (ORDER BY age) FROM adult

-- levels: 0.3; 0.7
SELECT quantile_cont(age, 0.3), quantile_disc(age, 0.7) FROM adult

-- levels: 0.5
SELECT sex, median(hours) FROM adult GROUP BY sex

-- levels: 0.5
SELECT active, percentile_cont(0.5) WITHIN GROUP (ORDER BY temp) FROM visits GROUP BY active

-- levels: 0.5; 0.2
SELECT median(temp), quantile_cont(price, 0.2) FROM visits

-- levels: 0.5
SELECT median(temp) FILTER (WHERE vip) FROM visits

-- levels: 0.5
SELECT median(CASE WHEN city = 'Rome' THEN lo END) FROM visits

-- levels: 0.5
SELECT median(hi - lo) FROM visits

-- levels: 0.4
SELECT percentile_disc(0.4) WITHIN GROUP (ORDER BY joined) FROM visits

-- levels: 0.6
SELECT percentile_disc(0.6) WITHIN GROUP (ORDER BY city) FROM visits

-- levels: 0.05
SELECT grade, quantile_disc(score, 0.05) FROM visits GROUP BY ROLLUP (grade)

-- levels: 0.5
SELECT sex, count(*), median(age), avg(age) FROM adult GROUP BY sex

-- levels: 0.5
SELECT median(age + 10) FROM adult WHERE sex = 'Female' AND age > 30

-- levels: 0.5
SELECT region, median(temp) FROM visits JOIN regions ON visits.city = regions.city GROUP BY region

-- levels: 0.5
WITH t AS (SELECT hours * 2 AS h FROM adult) SELECT median(h) FROM t

-- levels: 0.5
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY seen) FILTER (WHERE active) FROM visits
