"""`noisegate budget`: what was spent, what is left, and moving it between accounts."""

from __future__ import annotations

from fractions import Fraction

from planner.plans.wording import percent
from proxy.cli.command import POLICY_FILE, Arguments, command, format_of, option
from proxy.cli.console import print_rows, stdout
from proxy.cli.session import open_gate
from proxy.show.render import print_table

ACCOUNTS = """
SELECT population, NULL AS analyst, rho_total, rho_spent, epsilon_total, epsilon_spent, delta
FROM noisegate.budget
UNION ALL
SELECT population, analyst, rho_total, rho_spent, epsilon_total, epsilon_spent, delta
FROM noisegate.accounts
ORDER BY population, analyst NULLS FIRST
"""


@command(
    "budget",
    about="show what was spent and what is left, of everyone's budget and of each account",
    example="noisegate budget --format json",
    options=(
        POLICY_FILE,
        option(
            "--move",
            metavar=("SHARE", "FROM", "TO"),
            nargs=3,
            help="first move so much of the budget, such as 0.1, from one analyst's account to another's",
        ),
        format_of("table", "json", "csv"),
    ),
)
def budget(arguments: Arguments) -> int:
    """Print the budget of each population and the accounts below it."""
    with open_gate(arguments.policy) as gate:
        if arguments.move:
            amount, source, target = arguments.move
            gate.move(amount, source=source, target=target)
        analyst = next(iter(gate.policy.analysts))  # whose session it is makes no difference
        result = gate.session(analyst).execute(ACCOUNTS)
    if arguments.format != "table":
        print_rows(result, arguments.format)
        return 0
    names = ("population", "analyst", "epsilon spent", "of", "rho spent", "of", "left")
    rows = [_account(*row[:6]) for row in result.rows]
    print_table(stdout(), names, rows, right=(False, False, True, True, True, True, True))
    return 0


def _account(population: str, analyst: str | None, total: float, spent: float, *epsilon: float) -> list[str]:
    """Return one line of the table; what is left is a part of the budget in rho, as after a query."""
    of, used = epsilon
    numbers = [f"{number:.4g}" for number in (used, of, spent, total)]
    return [population, analyst or "everyone", *numbers, percent(1 - Fraction(spent) / Fraction(total))]
