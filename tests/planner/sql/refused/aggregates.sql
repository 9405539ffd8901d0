-- 42803: sum(sum(age
SELECT sum(sum(age)) FROM adult

-- 42803: sum(count(*
SELECT sum(count(*)) FROM adult GROUP BY sex

-- 42803: count(*) > 3
SELECT count(*) FROM adult WHERE count(*) > 3

-- 42803: sum(v.lo) = r.people
SELECT count(*) FROM visits AS v JOIN regions AS r ON sum(v.lo) = r.people

-- 42803: count(*
SELECT count(*) FROM adult GROUP BY count(*)

-- 42803: sum(age
SELECT sum(age) FILTER (WHERE count(*) > 3) FROM adult

-- 42803: age
SELECT age, count(*) FROM adult

-- 42803: age
SELECT age + 1, count(*) FROM adult GROUP BY sex

-- 42803: age
SELECT sex, count(*) FROM adult GROUP BY sex HAVING age > 3

-- 42803: age
SELECT sex, count(*) FROM adult GROUP BY sex ORDER BY age

-- 42803: sex
SELECT DISTINCT sex, count(*) FROM adult

-- 42803: 7
SELECT sex, count(*) FROM adult GROUP BY 7

-- 42803: 0
SELECT sex, count(*) FROM adult GROUP BY 0

-- 42803: 5
SELECT sex, count(*) FROM adult GROUP BY 1 ORDER BY 5

-- 42803: grouping(race
SELECT grouping(race), count(*) FROM adult GROUP BY sex

-- 42804: avg(vip
SELECT avg(vip) FROM visits

-- 42804: sum(joined
SELECT sum(joined) FROM visits

-- 42804: sum(city
SELECT sum(city) FROM visits

-- 0A000: sum(1.0 / (lo - 3
SELECT sum(1.0 / (lo - 3)) FROM visits

-- 0A000: sum(exp(hi * 100
SELECT sum(exp(hi * 100)) FROM visits

-- 0A000: 1.5
SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY lo) FROM visits

-- 0A000: 0.25, 0.5
SELECT percentile_cont(ARRAY[0.25, 0.5]) WITHIN GROUP (ORDER BY lo) FROM visits

-- 0A000: lo
SELECT percentile_cont(lo) WITHIN GROUP (ORDER BY hi) FROM visits

-- 22000
SELECT count(*) FROM visits WHERE city = 5

-- 22000
SELECT count(*) FROM visits WHERE lo = 'x'

-- 22000
SELECT count(*) FROM visits WHERE city

-- 22000
SELECT count(*) FROM visits WHERE joined > 7

-- 22000
SELECT count(*) FROM visits WHERE lo + city > 3

-- 22000
SELECT upper(count(*)) / 2 FROM visits

-- 42703: x
SELECT DP_INTERVAL_LOW(x) FROM adult

-- 42601: DP_INTERVAL_LOW(n, 3
SELECT count(*) AS n, DP_INTERVAL_LOW(n, 3) FROM adult

-- 0A000
SELECT sex, DP_STDDEV(sex) FROM adult GROUP BY sex

-- 0A000: DP_INTERVAL_LOW(1
SELECT DP_INTERVAL_LOW(1)
