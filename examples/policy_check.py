"""A curator's check: what a policy lets analysts ask, and how many questions the budget is good for.

    python examples/policy_check.py POLICY [ANALYST]

It spends nothing and reads no protected row.
"""

import sys

import noisegate

COLUMNS = 'SELECT "table", "column", domain, nullable FROM noisegate.domains ORDER BY "table"'
TABLES = 'SELECT DISTINCT "table" FROM noisegate.domains'
ERRORS = (10, 50, 250)


def main(policy: str = "adult.toml", analyst: str = "ann") -> None:
    """Print the domains, and how many counts of everyone the analyst can ask at some errors."""
    with noisegate.connect(policy, analyst) as connection:
        cursor = connection.cursor()
        for table, column, domain, nullable in cursor.execute(COLUMNS).fetchall():
            print(f"{table}.{column}: {domain}{'' if nullable else ' (a row with NULL is left out)'}")
        for (table,) in cursor.execute(TABLES).fetchall():
            for error in ERRORS:
                cursor.execute("RESET ALL")
                cursor.execute(f"SET noisegate.error = {error}")
                plan = connection.explain(f"SELECT count(*) FROM {table}")
                if plan.path == "free":
                    print(f"{table}: a count of everyone within {error} is known already")
                    continue
                left = plan.account - (plan.account_after - plan.rho)
                print(f"{table}: {analyst} can ask {int(left / plan.rho)} counts of everyone within {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
