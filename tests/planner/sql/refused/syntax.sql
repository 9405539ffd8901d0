-- 42601
SELECT

-- 42601: SELEC
SELEC count(*) FROM adult

-- 42601: FROM
SELECT count(* FROM adult

-- 42601: )
SELECT count(*)) FROM adult

-- 42601: FROM
SELECT count(*) FROM

-- 42601: WHERE
SELECT count(*) FROM adult WHERE

-- 42601: >
SELECT count(*) FROM adult WHERE age >

-- 42601: ORDER BY
SELECT count(*) FROM adult ORDER BY

-- 42601: 3
SELECT count(*) FROM adult WHERE age BETWEEN 3

-- 42601: JOIN
SELECT count(*) FROM adult JOIN

-- 42601: 1
SELECT CASE WHEN true THEN 1

-- 42601: )
SELECT CAST(1 AS)

-- 42601: +
SELECT 1 +

-- 42601
SELECT count(*) FROM adult WHERE sex = 'Male

-- 42601
SELECT "count FROM adult

-- 42601
SELECT count(*) /* FROM adult

-- 42601
SELECT $$abc

-- 42601
SELECT count(*) FROM adult WHERE sex = $tag$Male$other$

-- 42601
SELECT 1; SELECT 2

-- 42501: DROP
SELECT count(*) FROM adult; DROP TABLE adult

-- 42601
;

-- 42601
/* nothing but a comment */

-- 42P01: адрес
SELECT count(*) FROM адрес

-- 42703: имя
SELECT count(*) FROM adult WHERE имя = 1

-- 22023: 1
SELECT count(*) FROM adult WHERE age = $1

-- 22023
SELECT count(*) FROM adult WHERE age = ?

-- 22023
SELECT count(*) FROM adult WHERE age = :a

-- 22000
SELECT count(*) FROM adult LIMIT -1

-- 22000
SELECT count(*) FROM adult LIMIT 'a'

-- 22000
SELECT count(*) FROM adult WHERE age = 99999999999999999999999999999999999999999999

-- 22000
SELECT CAST('x' AS int)

-- 22000
SELECT 'abc'::date
