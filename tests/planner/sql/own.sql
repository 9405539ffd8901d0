-- What only the gate knows: these are run, and compared with nothing.

-- runs
-- names: n; low; high; sd
-- types: BIGINT; DOUBLE; DOUBLE; DOUBLE
SELECT count(*) AS n, DP_INTERVAL_LOW(n) AS low, DP_INTERVAL_HIGH(n) AS high, DP_STDDEV(n) AS sd FROM adult

-- runs
-- rows: 2
SELECT sex, avg(hours) AS h, dp_interval_low(h), dp_interval_high(avg(hours)) FROM adult GROUP BY sex

-- runs
-- rows: 1
SELECT sum(hours) / count(*) AS mean, DP_STDDEV(mean) FROM adult

-- runs
-- rows: 1
SELECT median(age) AS m, DP_INTERVAL_LOW(m), DP_INTERVAL_HIGH(m) FROM adult

-- runs
-- rows: 2
SELECT population, rho_spent <= rho_total AS within, epsilon_total, delta FROM noisegate.budget

-- runs
-- rows: 2
SELECT analyst, share, rho_total FROM noisegate.accounts ORDER BY population

-- runs
SELECT kind, count(*), max(rho) FROM noisegate.releases GROUP BY kind

-- runs
SELECT analyst, sql, releases, rho FROM noisegate.queries ORDER BY first_release

-- runs
-- rows: 15
SELECT "column", type, domain, nullable FROM noisegate.domains WHERE "table" = 'visits'

-- runs
SELECT d."column", (SELECT count(*) FROM adult) AS n FROM noisegate.domains AS d WHERE d.measure

-- runs
-- rows: 1
SELECT count(*) FROM visits WHERE joined < now() AND joined < CURRENT_DATE AND seen < CURRENT_TIMESTAMP
