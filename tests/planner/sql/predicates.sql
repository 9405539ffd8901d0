SELECT count(*) FROM adult WHERE age BETWEEN 30 AND 40

SELECT count(*) FROM adult WHERE age NOT BETWEEN 30 AND 40 AND sex = 'Male'

SELECT count(*) FROM adult WHERE education IN ('Bachelors', 'Masters', 'Doctorate')

SELECT count(*) FROM adult WHERE education NOT IN ('Bachelors', 'Masters') AND race <> 'White'

SELECT count(*) FROM adult WHERE workclass LIKE '%gov'

SELECT count(*) FROM adult WHERE workclass NOT LIKE 'Self%'

SELECT count(*) FROM adult WHERE education ILIKE 'b%' OR education ILIKE '%GRAD'

SELECT count(*) FROM adult WHERE occupation ~ '^[A-F].*-'

SELECT count(*) FROM adult WHERE occupation !~ 'serv$'

SELECT count(*) FROM adult WHERE education ~* '^MAST'

SELECT count(*) FROM adult WHERE workclass IS NULL

SELECT count(*) FROM adult WHERE workclass IS NOT NULL AND occupation IS NULL

SELECT count(*) FROM adult WHERE workclass IS DISTINCT FROM 'Private'

SELECT count(*) FROM adult WHERE workclass IS NOT DISTINCT FROM 'Private'

-- three-valued logic: NULL is neither
SELECT count(*) FROM visits WHERE NOT (temp > 10)

SELECT count(*) FROM visits WHERE temp > 10 OR temp <= 10

SELECT count(*) FROM visits WHERE active

SELECT count(*) FROM visits WHERE NOT active

SELECT count(*) FROM visits WHERE active IS NOT TRUE

SELECT count(*) FROM visits WHERE active IS UNKNOWN OR vip IS FALSE

SELECT count(*) FROM visits WHERE active = vip

SELECT count(*) FROM visits WHERE active OR (temp > 0 AND NOT vip)

SELECT count(*) FROM visits WHERE temp NOT IN (1, 2, NULL)

SELECT count(*) FROM visits WHERE temp IN (1, 2, NULL)

SELECT count(*) FROM visits WHERE lo < hi

SELECT count(*) FROM visits WHERE lo + 3 <= hi AND NOT (lo = 0 OR hi = 12)

SELECT sum(hi) FROM visits WHERE lo * 2 > hi

SELECT count(*) FROM visits WHERE (lo, hi) = (3, 7)

SELECT count(*) FROM visits WHERE lo < "education-num" AND "education-num" < hi

SELECT count(*) FROM adult WHERE age * 2 > hours + 30

SELECT count(*) FROM adult WHERE CASE WHEN sex = 'Male' THEN hours > 45 ELSE hours > 35 END

SELECT count(*) FROM visits WHERE coalesce(temp, 0) = 0

SELECT count(*) FROM visits WHERE nullif(lo, 0) IS NULL

SELECT count(*) FROM visits WHERE mod(lo, 3) = 1

SELECT count(*) FROM visits WHERE temp % 5 = 0 AND temp <> 0

SELECT count(*) FROM visits WHERE -temp > 5

SELECT count(*) FROM visits WHERE score >= 0.5 AND score < 0.75

SELECT count(*) FROM visits WHERE score = 0.07

SELECT count(*) FROM visits WHERE price > 9.5 OR price < -9.5

SELECT count(*) FROM visits WHERE sqrt(score) > 0.9

-- plain: SELECT count(*) FROM visits WHERE round_even(price, 0) = 2
SELECT count(*) FROM visits WHERE round(price) = 2

SELECT count(*) FROM visits WHERE "Mixed Case" = 'Alpha'

SELECT count(*) FROM visits WHERE lower("Mixed Case") IN ('alpha', 'gamma')

SELECT count(*) FROM visits WHERE upper("Mixed Case") = "Mixed Case"

SELECT count(*) FROM visits WHERE city = 'elsewhere'

SELECT count(*) FROM visits WHERE city > 'M'

SELECT count(*) FROM visits WHERE length(city) = 4 AND position('o' IN city) > 0

SELECT count(*) FROM visits WHERE substring(city FROM 1 FOR 2) = 'Ro'

SELECT count(*) FROM visits WHERE city || '!' = 'Lima!'

SELECT count(*) FROM visits WHERE left(city, 1) = 'O' OR right(city, 1) = 'a'

SELECT count(*) FROM visits WHERE starts_with(city, 'B') OR city LIKE '_i%'

SELECT count(*) FROM visits WHERE city LIKE 'R__e' ESCAPE '!'

SELECT count(*) FROM visits WHERE grade = 2 AND "education-num" >= 10

SELECT count(*) FROM visits WHERE grade IN (1, 3)

SELECT count(*) FROM visits WHERE shoe = 40

SELECT count(*) FROM visits WHERE city IN (SELECT city FROM regions)

SELECT count(*) FROM visits WHERE city NOT IN (SELECT city FROM regions WHERE region = 'north')

SELECT count(*) FROM visits WHERE EXISTS (SELECT 1 FROM regions WHERE regions.city = visits.city AND people > 500)

SELECT count(*) FROM visits WHERE temp > (SELECT avg(weight) FROM tags)

SELECT count(*) FROM visits WHERE lo = ANY (SELECT weight FROM tags)

SELECT count(*) FROM visits WHERE lo = ANY (ARRAY[1, 2, 3])

SELECT count(*) FROM visits WHERE true

SELECT count(*) FROM visits WHERE 1 = 0

SELECT count(*), sum(temp), avg(temp) FROM visits WHERE NULL

SELECT count(*) FROM visits WHERE (temp > 5) = (price > 0)

SELECT count(*) FROM visits WHERE (temp > 5 AND active) IS NULL

SELECT count(*) FROM visits WHERE greatest(lo, hi) > 10 AND least(lo, hi) < 2

SELECT count(*) FROM visits WHERE lo::text = '7' OR hi::varchar LIKE '1%'

SELECT count(*) FROM visits WHERE temp BETWEEN SYMMETRIC 20 AND 10

SELECT count(*) FROM visits WHERE 10 / lo > 2

SELECT count(*) FROM adult WHERE age >= 30 AND age < 40 AND hours > 40 AND income = '>50K' AND sex = 'Female'

SELECT count(*) FROM adult WHERE NOT (sex = 'Male' AND (age < 25 OR NOT (hours >= 20)))

SELECT count(*) FROM adult WHERE native_country IS NULL OR native_country = 'Trinadad&Tobago'

SELECT count(*) FROM adult WHERE sex = 'female'

SELECT count(*) FROM adult WHERE capital_gain > 5000

SELECT sum(capital_gain) FROM adult WHERE capital_gain BETWEEN 1 AND 9999

SELECT count(*) FROM adult WHERE age IN (17, 18, 19, 90, 200, -4)

SELECT count(*) FROM adult WHERE age = 35.5

SELECT count(*) FROM adult WHERE age > 35.5
