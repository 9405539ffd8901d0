"""`noisegate demo`: a dozen questions to the bundled table, each with its interval and its cost."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from planner.plans.explain import Explanation
from planner.plans.wording import percent
from proxy.dbapi import NUMBER, Connection, Cursor, connect
from proxy.errors import Error, printable
from proxy.show.render import cost_text, measured_text, rank_errors

DATA = Path(__file__).parent / "data"
PEOPLE = 32_561  # published with the data set; the gate itself never tells
SHOWN_ROWS = 4


@dataclass(frozen=True)
class Question:
    """One question, what it is an example of, and the error it is asked with."""

    about: str
    sql: str
    error: int | None = None


QUESTIONS = (
    Question("a filter", "SELECT count(*) FROM adult WHERE education = 'Doctorate'"),
    Question("everybody else", "SELECT count(*) FROM adult WHERE education <> 'Doctorate'"),
    Question(
        "two columns at once",
        "SELECT sex, race, count(*) AS n FROM adult GROUP BY sex, race ORDER BY n DESC",
    ),
    Question("coarser: half of it is known", "SELECT sex, count(*) AS n FROM adult GROUP BY sex"),
    Question("coarser still, and less exact: known already", "SELECT count(*) FROM adult", error=100),
    Question(
        "an average, of large groups only",
        "SELECT education, avg(hours) AS h FROM adult\nGROUP BY education HAVING count(*) > 1000 ORDER BY h DESC",
    ),
    Question("a sum", "SELECT sum(capital_gain) AS gains FROM adult WHERE income = '>50K'"),
    Question("a median", "SELECT median(age) FROM adult"),
    Question(
        "a percentile, less exact",
        "SELECT percentile_cont(0.9) WITHIN GROUP (ORDER BY hours) AS p90 FROM adult",
        error=200,
    ),
    Question("a standard deviation", "SELECT stddev(age) FROM adult WHERE sex = 'Female'"),
    Question("how many values occur", "SELECT count(DISTINCT capital_gain) FROM adult"),
    Question(
        "CASE and FILTER",
        "SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'middle' ELSE 'old' END AS life,\n"
        "       count(*) FILTER (WHERE income = '>50K') AS rich, count(*) AS n\n"
        "FROM adult GROUP BY 1",
    ),
    Question("subtotals", "SELECT sex, income, count(*) AS n FROM adult GROUP BY ROLLUP (sex, income)"),
    Question(
        "a window over the noisy rows",
        "SELECT occupation, count(*) AS n, round(100.0 * n / sum(n) OVER (), 1) AS percent\n"
        "FROM adult GROUP BY occupation ORDER BY n DESC",
    ),
    Question("a range", "SELECT count(*) FROM adult WHERE age BETWEEN 30 AND 59"),
    Question("nearly the same range", "SELECT count(*) FROM adult WHERE age BETWEEN 31 AND 59"),
    Question("the first one again", "SELECT count(*) FROM adult WHERE education = 'Doctorate'"),
)
EXPLAINED = "SELECT marital_status, avg(age) FROM adult WHERE hours >= 40 GROUP BY marital_status"
REFUSED = "SELECT * FROM adult LIMIT 5"


def main() -> None:
    """Ask the questions of this module, as ann, in a fresh copy of the bundled table and policy."""
    console = Console(highlight=False)
    policy = copy_table()
    with connect(policy, analyst="ann") as connection:
        console.print(
            f"Noisegate is guarding [bold]{PEOPLE:,} people[/] (UCI Adult) "
            "with a budget of ε = 2.0 at δ = 1e-9.\n± is a 95 % interval.\n",
            soft_wrap=True,
        )
        for question in QUESTIONS:
            ask(console, connection, question)
        explain(console, connection, EXPLAINED)
        refuse(console, connection, REFUSED)
        left = budget_left(connection)
    console.print(
        f"[bold]{len(QUESTIONS)} questions cost {percent(1 - left)} of the budget; "
        f"one charge a question would have been {percent(price_alone())}.[/] The plan and the refusal cost nothing.\n",
        soft_wrap=True,
    )
    go_on(console, policy)


def copy_table(folder: Path | None = None) -> Path:
    """Return the path of the policy in a folder, or in a new one, so that each demo has a whole budget."""
    folder = folder or Path(tempfile.mkdtemp(prefix="noisegate-demo-"))
    for name in ("adult.parquet", "adult_synth.parquet", "adult.toml"):
        shutil.copy(DATA / name, folder)
    return folder / "adult.toml"


def budget_left(connection: Connection) -> Fraction:
    """Return the part of the budget that is left."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rho_spent, rho_total FROM noisegate.budget")
        [(spent, total)] = cursor.fetchall()
    return 1 - Fraction(spent) / Fraction(total)


def price_alone() -> Fraction:
    """Return the part of the budget that the questions cost if each is asked where nothing was asked before."""
    with tempfile.TemporaryDirectory() as folder, connect(copy_table(Path(folder)), "ann") as untouched:
        cursor, total = untouched.cursor(), Fraction(0)
        for question in QUESTIONS:
            cursor.execute("RESET noisegate.error" if question.error is None else error_setting(question.error))
            plan = untouched.explain(question.sql)
            total += plan.rho / plan.budget
    return total


def error_setting(error: int) -> str:
    return f"SET noisegate.error = {error}"


def ask(console: Console, connection: Connection, question: Question) -> None:
    """Print a question, its first rows, what it cost and what is left."""
    settings = [] if question.error is None else [error_setting(question.error)]
    show_question(console, question.about, *settings, question.sql)
    with connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(setting)
        plan = connection.explain(question.sql)
        show_rows(console, cursor.execute(question.sql), plan)
        cursor.execute("RESET noisegate.error")
    left = percent(budget_left(connection))
    console.print(Text(f"    {cost_text(plan):<40}left {left}\n", style="green"))


def show_question(console: Console, about: str, *statements: str) -> None:
    """Print what a question is an example of, and its SQL in colours."""
    console.print(Text(f"  {about}", style="dim"))
    syntax = Syntax("", "sql", theme="ansi_dark", background_color="default")
    for line in syntax.highlight("\n".join(statements)).split():
        console.print(Text("  ").append(line), soft_wrap=True)


def show_rows(console: Console, cursor: Cursor, plan: Explanation) -> None:
    """Print the first rows, each number beside its interval."""
    columns = cursor.description or []
    ranks = rank_errors([name for name, *_ in columns], cursor.intervals, plan)
    table = Table(box=None, show_header=len(columns) > 1, header_style="dim", pad_edge=False)
    for name, type_code, *_ in columns:
        table.add_column(Text(printable(name)), justify="right" if type_code == NUMBER else "left")
    for row, intervals in zip(cursor.fetchmany(SHOWN_ROWS), cursor.intervals, strict=False):
        cells = zip(row, intervals, ranks, strict=True)
        table.add_row(*(Text(measured_text(value, bounds, ranks=r)) for value, bounds, r in cells))
    console.print(Padding(table, (0, 0, 0, 4), expand=False))
    if cursor.rowcount > SHOWN_ROWS:
        console.print(Text(f"    and {cursor.rowcount - SHOWN_ROWS} more rows", style="dim"))


def explain(console: Console, connection: Connection, sql: str) -> None:
    """Print what a question would cost."""
    show_question(console, "what would this one cost?", f"EXPLAIN {sql}")
    for line in connection.explain(sql).lines:
        console.print(Text(f"    {printable(line)}"), soft_wrap=True)
    console.print()


def refuse(console: Console, connection: Connection, sql: str) -> None:
    """Print a question that is refused, and why."""
    show_question(console, "single people are never shown", sql)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
    except Error as error:
        console.print(Text(f"    refused, {error.sqlstate}: {error}", style="red"))
        for line in getattr(error, "__notes__", []):
            console.print(Text(f"    {line}"), soft_wrap=True)
    console.print()


def go_on(console: Console, policy: Path) -> None:
    """Print commands and a program that go on with the same table."""
    file = shlex.quote(str(policy))
    question = "SELECT sex, avg(hours) FROM adult GROUP BY sex"
    lines = (
        "Go on from here, with the budget that is left:",
        "",
        f'  {program()} query {file} --analyst bob "{question}"',
        f'  {program()} explain {file} --analyst bob "{question}" --set error=25',
        f"  {program()} budget {file}",
        "",
        "or with any PostgreSQL client:",
        "",
        f"  {program()} serve {file} --trust",
        '  psql "host=127.0.0.1 port=5433 user=bob dbname=noisegate"',
        "",
        "or in Python:",
        "",
        "  import noisegate",
        f"  with noisegate.connect({str(policy)!r}, analyst='bob') as connection:",
        f'      print(connection.cursor().execute("{question}").fetchall())',
    )
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def program() -> str:
    """Return how a shell in this folder calls the command line."""
    script = Path(sys.prefix) / "bin" / "noisegate"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m noisegate"
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


if __name__ == "__main__":
    main()
