"""Questions that every client asks: with the types that answers have, with NULL, with parameters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One statement with `$1`, `$2`, … and the values for them."""

    name: str
    sql: str
    parameters: tuple[object, ...] = ()

    def with_marks(self, mark: str) -> str:
        """Return the statement with another sign for its parameters, which stand in their order."""
        sql = self.sql
        for number in range(1, len(self.parameters) + 1):
            sql = sql.replace(f"${number}", mark)
        return sql


QUESTIONS = (
    Question("counts", "SELECT sex, count(*) AS n FROM people GROUP BY sex ORDER BY sex"),
    Question(
        "null and numbers",
        "SELECT city, active, count(*) AS n, sum(income) AS total, avg(income) AS mean FROM people "
        "GROUP BY city, active ORDER BY city, active",
    ),
    Question(
        "dates", "SELECT joined, count(*) AS n FROM people WHERE joined < '2020-01-04' GROUP BY joined ORDER BY 1"
    ),
    Question("times", "SELECT seen, count(*) AS n FROM people WHERE seen < '2020-01-03' GROUP BY seen ORDER BY 1"),
    Question("public", "SELECT city, region, inhabitants, area, founded FROM regions ORDER BY city"),
    Question("view", "SELECT city, count(*) AS n FROM adults GROUP BY city ORDER BY city"),
    Question("system", "SELECT population, epsilon_total FROM noisegate.budget"),
    Question("no rows", "SELECT sex, count(*) AS n FROM people GROUP BY sex LIMIT 0"),
    Question("parameters", "SELECT count(*) AS n FROM people WHERE age >= $1 AND sex = $2", (30, "F")),
    Question(
        "grouped parameters",
        "SELECT city, count(*) AS n FROM people WHERE height > $1 AND active = $2 GROUP BY city ORDER BY city",
        (1.5, True),
    ),
)
