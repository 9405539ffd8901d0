"""Ask a guarded table from Python: the price first, then the answer with its intervals.

    python examples/ask.py POLICY [ANALYST]

Needs the bundled table: cp noisegate/data/adult*.parquet noisegate/data/adult.toml SOMEWHERE
"""

import sys

import noisegate

QUESTION = """
SELECT education, count(*) AS n, avg(hours) AS hours
FROM adult WHERE age BETWEEN ? AND ?
GROUP BY education HAVING count(*) > 300 ORDER BY hours DESC
"""
AGES = [30, 39]
AFFORDABLE = 0.1


def main(policy: str = "adult.toml", analyst: str = "ann") -> None:
    """Ask how long people in their thirties work, by education, unless it takes a tenth of the budget."""
    with noisegate.connect(policy, analyst) as connection:
        plan = connection.explain(QUESTION, AGES)
        part = float(plan.rho / plan.budget)
        print(f"it costs {part:.1%} of the budget")
        if part > AFFORDABLE:
            print("too dear")
            return
        cursor = connection.cursor().execute(QUESTION, AGES)
        for (education, n, hours), (_, _, interval) in zip(cursor.fetchall(), cursor.intervals, strict=True):
            low, high = interval or (float("nan"), float("nan"))
            print(f"{education:14}{n:7,} people  {hours:5.1f} hours, between {low:.1f} and {high:.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
