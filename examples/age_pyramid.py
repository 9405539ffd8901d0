"""An age pyramid for each of several groups, as fine as the group is large: the census's Total, Age4, Age9 and Age23.

    python examples/age_pyramid.py POLICY [ANALYST]

What all four pyramids share is looked at first; the finest that keeps enough signal is completed. It costs what that
pyramid alone would have cost, and since nobody is in two groups, all groups together cost what one does.
"""

import sys

import noisegate

AGES = {
    "Total": [],
    "Age4": [18, 45, 65],
    "Age9": [5, 18, 25, 35, 45, 55, 65, 75],
    "Age23": [5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85],
}
GROUPS = ["White", "Black", "Other"]
RHO = 0.005


def pyramid(edges: list[int], group: str) -> str:
    """Return the SELECT of one pyramid: people by sex and by the number of edges at or below their age."""
    bucket = " + ".join(["0", *(f"(age >= {edge})::int" for edge in edges)])
    return (
        f"SELECT {bucket} AS bucket, sex, count(*) AS n FROM adult WHERE race = '{group}' GROUP BY 1, 2 ORDER BY 1, 2"
    )


def main(policy: str = "adult.toml", analyst: str = "ann") -> None:
    """Choose a pyramid for each group, print which, and print the one of the last group."""
    with noisegate.connect(policy, analyst) as connection:
        cursor = connection.cursor()
        for group in GROUPS:
            sqls = [pyramid(edges, group) for edges in AGES.values()]
            choice = connection.choose(sqls, snr=5, fraction=0.5, rho=RHO, stop=False)  # a total at least
            taken = choice.index or 0
            print(f"{group:8}{list(AGES)[taken]:7}cost: rho {float(choice.cost):.4f}")
        cursor.execute(f"SET noisegate.rho = {RHO}")
        cursor.execute(sqls[taken])  # free: it is known already
        for bucket, sex, n in cursor.fetchall():
            print(f"{bucket:3} {sex:7}{'#' * max(0, n // 10)} {n}")
        [(spent,)] = cursor.execute("SELECT rho_spent FROM noisegate.budget").fetchall()
        print(f"spent in all: rho {spent:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
