-- A made-up town, and a role for the gates: it may read the table, and owns the database of the ledger.

\set ON_ERROR_STOP on
\getenv password GATE_PASSWORD

CREATE ROLE gate LOGIN PASSWORD :'password';
CREATE DATABASE ledger OWNER gate;
CREATE DATABASE town;

\connect town

CREATE TABLE people (
    id bigint PRIMARY KEY,
    age integer NOT NULL,
    sex text NOT NULL,
    district text NOT NULL,
    income integer
);

SELECT setseed(0.5);

INSERT INTO people
SELECT
    id,
    least(100, floor(18 + 60 * random() + 25 * random() * random())::integer),
    CASE WHEN random() < 0.51 THEN 'F' ELSE 'M' END,
    (ARRAY['harbour', 'hill', 'market', 'mill'])[1 + floor(4 * sqrt(random()))::integer % 4],
    CASE WHEN random() < 0.95 THEN floor(exp(10 + 0.6 * (random() + random() + random() - 1.5)))::integer END
FROM generate_series(1, 20000) AS id;

GRANT SELECT ON people TO gate;
