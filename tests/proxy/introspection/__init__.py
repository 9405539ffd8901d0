"""What clients ask PostgreSQL's catalog: captured from the clients themselves, or written down after them.

captured.json was logged by a PostgreSQL (log_statement = all) while psql, SQLAlchemy, JDBC, asyncpg, psycopg and ADBC
looked at the tables of tests/proxy/town.py. tools.sql follows what graphical tools and frameworks send; constants.sql
has SELECTs without a table. `{public.people}` stands for an oid.
"""
