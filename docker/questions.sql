SELECT district, count(*) AS people, round(avg(income)) AS income FROM people GROUP BY district ORDER BY district;
SELECT count(*) AS over_sixty FROM people WHERE age > 60;
SELECT population, rho_spent / rho_total AS spent FROM noisegate.budget;
