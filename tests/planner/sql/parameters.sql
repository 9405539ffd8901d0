-- values: [40]
SELECT count(*) FROM adult WHERE age > $1

-- values: [30, 40]
SELECT count(*) FROM adult WHERE age BETWEEN ? AND ?

-- values: ["Male", 40]
SELECT count(*) FROM adult WHERE hours > $2 AND sex = $1

-- values: {"who": "Female"}
SELECT count(*) FROM adult WHERE sex = :who

-- values: ["O'Brien"]
SELECT count(*) FROM visits WHERE city = $1

-- values: [dt.date(2020, 1, 1)]
SELECT count(*) FROM visits WHERE joined >= $1

-- values: [dt.datetime(2020, 1, 3, 12)]
SELECT count(*) FROM visits WHERE seen >= $1

-- values: [0.25]
SELECT count(*) FROM visits WHERE score < $1

-- values: [None]
SELECT count(*) FROM visits WHERE temp = $1

-- values: [-5, True]
SELECT count(*) FROM visits WHERE temp > - $1 AND vip = $2

-- values: [10, 10]
-- plain: SELECT age / 10 AS d, count(*) FROM adult GROUP BY age / 10
SELECT age / $1 AS d, count(*) FROM adult GROUP BY age / $2

-- values: [("Oslo", "Rome")]
-- plain: SELECT count(*) FROM visits WHERE city IN ('Oslo', 'Rome')
SELECT count(*) FROM visits WHERE city IN $1

-- values: [100]
-- exact
SELECT sex FROM adult GROUP BY sex HAVING count(*) > $1

-- values: [1]
-- exact
SELECT sex FROM adult GROUP BY sex ORDER BY count(*) DESC LIMIT $1

-- values: [3]
-- exact
SELECT $1 + 4 AS seven

-- values: ["%'; DROP TABLE adult; --"]
SELECT count(*) FROM visits WHERE city LIKE $1
