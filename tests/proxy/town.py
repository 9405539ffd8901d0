"""A small policy for tests of the wire, and the same tables for a real PostgreSQL to compare with."""

from __future__ import annotations

from pathlib import Path

import duckdb

from proxy.catalog.relations.policy import KINDS, SYSTEM

POLICY = """
[budget]
epsilon = 50.0
delta = 1e-9

[defaults]
error = 20

[analysts.ann]
share = 0.6

[analysts.bob]
share = 0.4

[server]
auth = "trust"
port = 0

[tables.people]
source = "people.parquet"
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
sex = { values = ["F", "M"] }
city = { values = ["Bern", "Oslo", "Rome"], nullable = true }
joined = { type = "date", min = "2020-01-01", max = "2020-12-31" }
seen = { type = "timestamp", min = "2020-01-01", max = "2020-12-31", step = "1 day", nullable = true }
height = { type = "float", min = 0, max = 2.5, step = 0.01 }
active = { type = "boolean" }
income = { type = "integer", min = 0, max = 1000, role = "measure" }
note = { hidden = true }

[tables.regions]
source = "regions.parquet"
public = true

[tables.people_synth]
source = "people_synth.parquet"
synthetic_of = "people"

[views.adults]
sql = "SELECT age, sex, city FROM people WHERE age >= 18"
"""

ROWS = 3000

SOURCES = {
    "people": f"""
        SELECT i % 90 AS age, ['F', 'M'][1 + i % 2] AS sex, ['Bern', 'Oslo', 'Rome', NULL][1 + i % 4] AS city,
            DATE '2020-01-01' + CAST(i % 366 AS INTEGER) AS joined,
            TIMESTAMP '2020-01-01' + to_days(CAST(i % 366 AS INTEGER)) AS seen,
            CAST(100 + i % 100 AS DOUBLE) / 100 AS height, i % 3 = 0 AS active, i % 1000 AS income, 'secret' AS note
        FROM range({ROWS}) AS r(i)""",
    "people_synth": "SELECT CAST(i AS BIGINT) AS age, ['F', 'M'][1 + i % 2] AS sex FROM range(100) AS r(i)",
    "regions": """
        SELECT * FROM (VALUES ('Bern', 'Alps', CAST(133 AS INTEGER), CAST(51.60 AS DECIMAL(6,2)), DATE '1191-01-01'),
            ('Oslo', 'North', 700, 454.12, DATE '1048-01-01'), ('Rome', NULL, 2800, 1285.31, NULL))
            AS t(city, region, inhabitants, area, founded)""",
}

DESCRIBED = {
    "age": "0 … 110",
    "sex": "F, M",
    "city": "Bern, Oslo, Rome or NULL",
    "joined": "2020-01-01 … 2020-12-31",
    "seen": "2020-01-01 00:00:00 … 2020-12-31 00:00:00 by 1 day or NULL",
    "height": "0 … 2.5 by 0.01",
    "active": "false, true",
    "income": "0 … 1000",
}

POSTGRES = f"""
CREATE TABLE people (age bigint NOT NULL, sex text NOT NULL, city text, joined date NOT NULL, seen timestamp,
    height double precision NOT NULL, active boolean NOT NULL, income bigint NOT NULL);
CREATE TABLE regions (city text, region text, inhabitants integer, area numeric(6,2), founded date);
CREATE TABLE people_synth (age bigint, sex text);
CREATE VIEW adults AS SELECT age, sex, city FROM people WHERE age >= 18;
COMMENT ON TABLE people IS '{KINDS["protected"]}';
COMMENT ON TABLE regions IS '{KINDS["public"]}';
COMMENT ON TABLE people_synth IS '{KINDS["synthetic"]}';
CREATE SCHEMA noisegate;
COMMENT ON SCHEMA noisegate IS 'the gate''s own tables: budget, releases, domains';
GRANT USAGE ON SCHEMA noisegate TO PUBLIC;
CREATE TABLE noisegate.budget (population text, rho_total float8, rho_spent float8, epsilon_total float8,
    epsilon_spent float8, epsilon_spent_gaussian float8, delta float8);
CREATE TABLE noisegate.accounts (population text, analyst text, share float8, rho_total float8, rho_spent float8,
    epsilon_total float8, epsilon_spent float8, delta float8);
CREATE TABLE noisegate.releases (id bigint, "table" text, version bigint, kind text, analyst text, rho float8,
    created text, sql text);
CREATE TABLE noisegate.queries (first_release bigint, analyst text, sql text, releases bigint, rho float8, asked text);
CREATE TABLE noisegate.rounds (round text, query bigint, analyst text, sql text, error text, confidence float8,
    state text, release bigint, enlisted text);
CREATE TABLE noisegate.domains ("table" text, "column" text, type text, domain text, "values" bigint, nullable boolean,
    measure boolean);
GRANT SELECT ON ALL TABLES IN SCHEMA public, noisegate TO PUBLIC;
CREATE ROLE bob LOGIN;
"""

UNLIKE_OURS = """
UPDATE pg_database SET datistemplate = false, datallowconn = true;
DROP DATABASE template0;
DROP DATABASE template1;
DROP DATABASE postgres;
COMMENT ON DATABASE noisegate IS NULL;
DELETE FROM pg_collation WHERE oid >= 10000;
DELETE FROM pg_extension;
DELETE FROM pg_index WHERE indrelid IN (SELECT reltoastrelid FROM pg_class WHERE oid >= 16384);
DELETE FROM pg_attribute WHERE attrelid IN (SELECT oid FROM pg_class WHERE oid >= 16384 AND relname LIKE 'pg_toast%');
DELETE FROM pg_class WHERE oid >= 16384 AND relname LIKE 'pg_toast%';
UPDATE pg_class SET reltoastrelid = 0 WHERE oid >= 16384;
UPDATE pg_class SET relfrozenxid = '722' WHERE oid >= 16384 AND relkind = 'r';
DELETE FROM pg_attribute WHERE attrelid >= 16384 AND attnum < 0;
"""
"""Takes away what PostgreSQL adds to a table and a gate has no use for: TOAST tables, system columns, templates."""


def make(folder: Path) -> Path:
    """Return the path of the policy, beside its tables."""
    with duckdb.connect() as memory:
        for name, sql in SOURCES.items():
            memory.execute(f"COPY ({sql}) TO '{folder / name}.parquet' (FORMAT parquet)")
    policy = folder / "noisegate.toml"
    policy.write_text(POLICY, encoding="utf-8")
    return policy


def statements() -> list[str]:
    """Return what makes a PostgreSQL hold the same tables, one statement each."""
    columns = [f"COMMENT ON COLUMN people.{name} IS '{text}'" for name, text in DESCRIBED.items()]
    system = [f"COMMENT ON TABLE noisegate.{name} IS '{text}'" for name, text in SYSTEM.items()]
    script = [part.strip() for part in (POSTGRES + UNLIKE_OURS).split(";")]
    first = len([part for part in POSTGRES.split(";") if part.strip()])
    parts = [part for part in script if part]
    return [*parts[:first], *columns, *system, *parts[first:]]
