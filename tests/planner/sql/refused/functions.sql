-- 0A000: random
SELECT random()

-- 0A000: random
SELECT count(*) FROM adult WHERE random() < 0.5

-- 0A000: gen_random_uuid
SELECT gen_random_uuid()

-- 42883: getenv('HOME'
SELECT getenv('HOME')

-- 42883: pg_read_file('/etc/passwd'
SELECT pg_read_file('/etc/passwd')

-- 0A000: current_setting('memory_limit'
SELECT current_setting('memory_limit')

-- 0A000: version
SELECT version()

-- 0A000
SELECT current_user

-- 0A000: nextval('s'
SELECT nextval('s')

-- 0A000: setseed(0.5
SELECT setseed(0.5)

-- 0A000: error('x'
SELECT error('x')

-- 0A000: read_csv('/etc/passwd'
SELECT * FROM read_csv('/etc/passwd')

-- 0A000: read_parquet('adult.parquet'
SELECT * FROM read_parquet('adult.parquet')

-- 42P01: '/etc/passwd'
SELECT * FROM '/etc/passwd'

-- 42P01: "adult.parquet"
SELECT * FROM "adult.parquet"

-- 42601: )
SELECT * FROM glob('/*')

-- 0A000: duckdb_settings
SELECT * FROM duckdb_settings()

-- 0A000: pragma_table_info('adult'
SELECT * FROM pragma_table_info('adult')

-- 0A000: query('SELECT 1'
SELECT * FROM query('SELECT 1')

-- 0A000: query_table('regions'
SELECT * FROM query_table('regions')

-- 42P01: information_schema.tables
SELECT * FROM information_schema.tables

-- 42P01: pg_catalog.pg_class
SELECT * FROM pg_catalog.pg_class

-- 42P01: duckdb_tables
SELECT * FROM duckdb_tables

-- 0A000: range(10
SELECT * FROM range(10)

-- 0A000: generate_series(1, 3) AS g (i
SELECT count(*) FROM visits AS v JOIN generate_series(1, 3) AS g (i) ON v.lo = g.i
