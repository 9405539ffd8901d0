-- 42704
SET memory_limit = '10GB'

-- 42704
SET enable_external_access = true

-- 22023
SET noisegate.error = 0

-- 22023
SET noisegate.error = -3

-- 22023
SET noisegate.error = 'abc'

-- 22023
SET noisegate.error TO nan

-- 22023
SET noisegate.error = '-2%'

-- 22023
SET noisegate.error = 1e400

-- 22023
SET noisegate.confidence = 1

-- 22023
SET noisegate.confidence = 0.2

-- 22023
SET noisegate.as_of = 'x'

-- 22023
SET noisegate.rho = 0

-- 42704
SET noisegate.nothing = 1

-- 42601
SET noisegate.error

-- 42601
SET

-- 42704
SHOW nothing

-- 42601
SHOW

-- 42704
RESET nothing

-- 42601
RESET

-- 0A000
EXPLAIN ANALYZE SELECT count(*) FROM adult

-- 0A000
EXPLAIN (ANALYZE) SELECT count(*) FROM adult

-- 0A000
EXPLAIN (FORMAT JSON, ANALYZE true) SELECT count(*) FROM adult

-- 22023
EXPLAIN (FORMAT XML) SELECT count(*) FROM adult

-- 42601
EXPLAIN

-- 42501: EXPLAIN
EXPLAIN EXPLAIN SELECT 1

-- 42501: INSERT
EXPLAIN INSERT INTO adult VALUES (1)

-- 42501: adult
EXPLAIN SELECT * FROM adult

-- 42601: SET
EXPLAIN SET noisegate.error = 5
