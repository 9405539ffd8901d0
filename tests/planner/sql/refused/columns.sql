-- 42501: customer
SELECT count(*) FROM orders WHERE customer = 'c1'

-- 42501: customer
SELECT customer, count(*) FROM orders GROUP BY customer

-- 42501: customer
SELECT count(customer) FROM orders

-- 42501: customer
SELECT count(DISTINCT upper(customer)) FROM orders

-- 42501: customer
SELECT count(DISTINCT CASE WHEN item = 'pen' THEN customer END) FROM orders

-- 42501: customer
SELECT median(customer) FROM orders

-- 42703: fnlwgt
SELECT count(*) FROM adult WHERE fnlwgt > 3

-- 42703: secret
SELECT secret, count(*) FROM visits GROUP BY secret

-- 42703: note
SELECT count(*) FROM visits WHERE note = 'undeclared'

-- 42703
SELECT * FROM (SELECT *, secret FROM visits) AS t

-- 42703: visits.secret
SELECT count(*) FROM visits WHERE visits.secret IS NULL

-- 42703: nothing
SELECT count(*) FROM adult WHERE nothing = 1

-- 42703: other.age
SELECT count(*) FROM adult WHERE other.age = 1

-- 42703: "CITTY"
SELECT count(*) FROM visits WHERE "CITTY" = 'Oslo'

-- 42P20: ntile(4) OVER (ORDER BY lo
SELECT ntile(4) OVER (ORDER BY lo), count(*) FROM visits GROUP BY 1

-- 42P20: count(*
SELECT DISTINCT count(*) OVER () FROM visits

-- 42P20: row_number() OVER (ORDER BY lo
SELECT count(*) FROM visits WHERE row_number() OVER (ORDER BY lo) < 5

-- 42P20: rank() OVER (ORDER BY lo
SELECT sum(rank() OVER (ORDER BY lo)) FROM visits

-- 22012: lo / 0
SELECT count(*) FROM visits WHERE lo / 0 = 1

-- 42703: education
SELECT count(*) FROM visits WHERE education-num > 3

-- 42702: city
SELECT city, count(*) FROM visits AS v JOIN regions AS r ON true GROUP BY city

-- 42P01: nowhere
SELECT count(*) FROM nowhere

-- 42P01: "Adult"
SELECT count(*) FROM "Adult"

-- 42P01: other.adult
SELECT count(*) FROM other.adult

-- 42P01: a.b.adult
SELECT count(*) FROM a.b.adult

-- 42P01: noisegate.secrets
SELECT * FROM noisegate.secrets

-- 42P01: __domain_0
SELECT * FROM __domain_0

-- 0A000: __m0
WITH __m0 AS (SELECT 1 AS a) SELECT count(*) FROM adult

-- 0A000: __p
SELECT count(*) FROM adult AS __p

-- 42703: __cell
SELECT __cell FROM adult

-- 42883: frobnicate(age
SELECT frobnicate(age), count(*) FROM adult GROUP BY 1

-- 54000: wealth
SELECT wealth, count(*) FROM visits GROUP BY wealth

-- 54000: wealth > 100
SELECT count(*) FROM visits WHERE wealth > 100

-- 54000: wealth
SELECT median(wealth) FROM visits

-- 54000
SELECT age, workclass, education, occupation, native_country, count(*) FROM adult GROUP BY 1, 2, 3, 4, 5

-- 54000
SELECT count(*) FROM adult GROUP BY CUBE (sex, race, income, age, hours, education, workclass, occupation, relationship)

-- 54000
SELECT count(*) FROM visits, tags AS a, tags AS b, tags AS c, tags AS d, tags AS e, tags AS f, tags AS g, tags AS h
