"""A small dashboard with pandas: three questions, one page of text, and what it cost.

    python examples/pandas_dashboard.py POLICY [ANALYST]

Run it again and it is free; answers that later questions have made better change a little.
"""

import sys
import warnings

import pandas as pd

import noisegate

PANELS = {
    "Income above 50K, by education": """
        SELECT education, 100.0 * count(*) FILTER (WHERE income = '>50K') / count(*) AS percent,
               DP_STDDEV(percent) AS sd
        FROM adult GROUP BY education HAVING count(*) > 1000 ORDER BY percent DESC
    """,
    "Hours a week, by sex and age": """
        SELECT sex, age / 20 * 20 AS age_from, avg(hours) AS hours FROM adult GROUP BY 1, 2 ORDER BY 1, 2
    """,
    "Most frequent occupations": """
        SELECT occupation, count(*) AS n FROM adult GROUP BY occupation ORDER BY n DESC LIMIT 5
    """,
}


def main(policy: str = "adult.toml", analyst: str = "ann") -> None:
    """Print every panel as a table."""
    warnings.filterwarnings("ignore", message="pandas only supports SQLAlchemy")  # a connection of PEP 249 will do
    with noisegate.connect(policy, analyst) as connection:
        cost = sum(connection.explain(sql).rho for sql in PANELS.values())
        for title, sql in PANELS.items():
            frame = pd.read_sql(sql, connection)
            print(f"{title}\n\n{frame.round(1).to_string(index=False)}\n")
        print(f"cost: rho {float(cost):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
