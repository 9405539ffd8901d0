"""Questions about the bundled table, and what was spent on them."""

from fractions import Fraction

import noisegate

COUNT = "SELECT count(*) FROM adult"
BY_SEX = "SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex"
PEOPLE = 32_561


def spent(connection: noisegate.Connection) -> Fraction:
    cursor = connection.cursor().execute("SELECT rho_spent FROM noisegate.budget")
    [(rho,)] = cursor.fetchall()
    return Fraction(rho)
