-- names: count
-- types: BIGINT
SELECT count(*) FROM adult

SELECT COUNT(*) AS n FROM visits

-- names: a; b; c
-- types: BIGINT; BIGINT; BIGINT
SELECT count(workclass) AS a, count(occupation) AS b, count(age) AS c FROM adult

-- a column that is NULL, NaN or infinite in places
SELECT count(temp), count(price), count(joined), count(active), count(*) FROM visits

-- names: sum
-- types: BIGINT
SELECT sum(hours) FROM adult

-- types: DOUBLE
SELECT sum(score) FROM visits

SELECT sum(price), sum(temp), sum(wealth), sum(shoe) FROM visits

-- names: avg
-- types: DOUBLE
SELECT avg(age) FROM adult

SELECT avg(temp), avg(price), avg(score), avg(wealth) FROM visits

SELECT variance(age), stddev(age) FROM adult

SELECT var_samp(hours), stddev_samp(hours), var_pop(hours), stddev_pop(hours) FROM adult

SELECT variance(temp), stddev(price), var_pop(score), stddev_pop(wealth) FROM visits

SELECT sex, avg(hours), stddev(hours) FROM adult GROUP BY sex

-- types: BIGINT
SELECT count(DISTINCT education) FROM adult

SELECT count(DISTINCT native_country) AS countries, count(DISTINCT age) AS ages FROM adult

SELECT sex, count(DISTINCT occupation) FROM adult GROUP BY sex

SELECT count(DISTINCT temp), count(DISTINCT active), count(DISTINCT city), count(DISTINCT joined) FROM visits

SELECT count(DISTINCT age / 10) FROM adult WHERE income = '>50K'

SELECT count(DISTINCT extract(month FROM joined)) FROM visits

-- the privacy unit has no domain, and can be counted
SELECT count(DISTINCT customer) FROM orders

SELECT item, count(DISTINCT customer) AS customers, count(*) AS orders, sum(amount) FROM orders GROUP BY item

SELECT count(DISTINCT customer) FROM orders WHERE amount > 4 AND item <> 'pen'

SELECT count(DISTINCT customer) FILTER (WHERE item = 'ink') FROM orders

SELECT sum(2 * hours - 40) FROM adult

-- types: BIGINT
SELECT sum(hours / 10) FROM adult

SELECT sum(hours / 10.0), avg(hours / 2) FROM adult

SELECT sum(-temp), sum(temp * 9 / 5 + 32), avg(temp * 1.8 + 32) FROM visits

-- truncation toward zero of negative numbers
SELECT sum(temp / 7), sum(temp % 7) FROM visits

SELECT sum(hours * hours) FROM adult

SELECT sum(hi - lo), avg(hi * lo), sum(abs(lo - hi)) FROM visits

SELECT sum(sqrt(age)), avg(ln(age)) FROM adult

SELECT sum(LEAST(hours, 40)), sum(GREATEST(hours, 40)) FROM adult

SELECT sum(coalesce(temp, 0)), avg(coalesce(temp, 20)) FROM visits

SELECT sum(nullif(lo, 3)), count(nullif(lo, 3)), avg(nullif(lo, 3)) FROM visits

SELECT sum(1), sum(3), count(1), count('x'), count(NULL) FROM visits

-- plain: SELECT sum(CAST(score AS integer)), sum(round_even(score * 10, 0)) FROM visits
SELECT sum(CAST(score AS integer)), sum(round(score * 10)) FROM visits

SELECT sum(vip::int), avg(active::int) FROM visits

SELECT sum(capital_gain), sum(capital_loss), avg(capital_gain - 500) FROM adult

SELECT sum(capital_gain * 2 + 1), avg(capital_gain / 100.0) FROM adult WHERE sex = 'Female'

SELECT variance(2 * temp + 3), stddev(price / 2), var_pop(-temp) FROM visits

SELECT variance(hours / 10), stddev_pop(hi * lo) FROM visits, (SELECT 7 AS hours) AS h

-- names: share; spread; double
SELECT 100.0 * count(*) / 32561 AS share, sqrt(variance(age)) AS spread, count(*) + count(*) AS double FROM adult

-- plain: SELECT avg(hours) - 40, round(avg(hours), 2), sum(hours)::float / count(*), sum(hours)::float / count(*) FROM adult
SELECT avg(hours) - 40, round(avg(hours), 2), sum(hours) / count(*), sum(hours)::float / count(*) FROM adult

SELECT grade, sum(grade), avg(grade), count(DISTINCT grade) FROM visits GROUP BY grade

SELECT sum(grade * 10), variance(grade) FROM visits

SELECT "Mixed Case", sum("education-num"), avg("education-num") FROM visits GROUP BY "Mixed Case"

SELECT ALL count(*) FROM visits

SELECT count(ALL temp) FROM visits

SELECT sum(shoe), avg(shoe), variance(shoe), count(DISTINCT shoe) FROM visits

SELECT sum(length(city)), avg(char_length(city)) FROM visits

SELECT sum(extract(year FROM joined)), avg(extract(hour FROM seen)) FROM visits

SELECT sum(wealth / 1000.0), avg(wealth), stddev(wealth) FROM visits WHERE city = 'Rome'

SELECT count(visits.*), count((lo, hi)), count(DISTINCT (lo, hi)) FROM visits

-- the order of what is added makes no difference
SELECT sum(lo ORDER BY hi), count(lo ORDER BY hi) FROM visits

-- a sum that can only be zero, beside others
SELECT sum(lo), count(*), avg(hi) FROM visits WHERE lo = 0

-- a division by zero is NULL on the domain, and is left out
SELECT sum(12 / (lo - 3)), count(12 / (lo - 3)) FROM visits
