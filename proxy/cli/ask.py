"""`noisegate query` and `noisegate explain`: one question, and its price."""

from __future__ import annotations

import json
import re
import sys

from proxy.cli.command import ANALYST, POLICY_FILE, Arguments, command, format_of, option
from proxy.cli.console import print_rows, say, stdout, summary
from proxy.cli.session import open_session
from proxy.dbapi import POLICY
from proxy.show.render import print_lines

SQL = "one statement; - reads it from stdin"
SETTINGS = option(
    "--set",
    metavar="NAME=VALUE",
    action="append",
    default=[],
    dest="settings",
    help="a setting for this question, such as error=25 for noisegate.error; can be repeated",
)


def settle_question(arguments: Arguments) -> None:
    """Tell the policy from the SQL by its .toml, split the settings, and read SQL from stdin; or ValueError."""
    if arguments.sql is not None and arguments.sql.endswith(".toml"):
        if arguments.policy == POLICY:
            raise ValueError("SQL is missing")
        arguments.policy, arguments.sql = arguments.sql, arguments.policy
    settle_settings(arguments)
    if arguments.sql == "-":
        arguments.sql = sys.stdin.read()


def settle_settings(arguments: Arguments) -> None:
    """Split each setting into its name and its value; or ValueError."""
    arguments.settings = [_setting(text) for text in arguments.settings]


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value or not re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", name):
        raise ValueError(f"--set needs NAME=VALUE, for example error=25, got {text!r}")
    return (name if "." in name else f"noisegate.{name}"), value


@command(
    "query",
    about="ask a question, and pay for the answer",
    example='noisegate query "SELECT sex, count(*) FROM people GROUP BY sex" --analyst alice',
    more="The rows go to stdout, the cost to stderr.",
    options=(
        *(POLICY_FILE, option("sql", metavar="SQL", help=SQL), ANALYST, SETTINGS, format_of("table", "json", "csv")),
        option("--intervals", action="store_true", help="with json and csv: add the low and high end of each answer"),
    ),
    settle=settle_question,
)
def query(arguments: Arguments) -> int:
    """Ask, print the rows to stdout and the cost to stderr."""
    return ask(arguments, intervals=arguments.intervals)


@command(
    "explain",
    about="say what a question would cost and how exact its answer would be",
    example='noisegate explain "SELECT avg(age) FROM people" --set error=25',
    more="Spends nothing.",
    options=(POLICY_FILE, option("sql", metavar="SQL", help=SQL), ANALYST, SETTINGS, format_of("table", "json")),
    settle=settle_question,
)
def explain(arguments: Arguments) -> int:
    """Print what the question would cost; spends nothing."""
    return price(arguments)


def ask(arguments: Arguments, *, intervals: bool = False) -> int:
    """Ask what stands in `sql`, print the rows to stdout and the cost to stderr."""
    with open_session(arguments, settings=arguments.settings) as (session, waiting):
        result = session.execute(arguments.sql, on_step=waiting.step)
    if result.columns:
        print_rows(result, arguments.format, intervals=intervals)
    for notice in result.notices:
        say(f"note: {notice.message}")
        say(f"hint: {notice.hint}", style="cyan")
    say(summary(result))
    return 0


def price(arguments: Arguments) -> int:
    """Print what it would cost to ask what stands in `sql`."""
    with open_session(arguments, settings=arguments.settings) as (session, waiting):
        waiting.step("planning")
        plan = session.explain(arguments.sql)
    if arguments.format == "json":
        print(json.dumps(plan.as_json(), indent=2))
    else:
        print_lines(stdout(), plan.lines)
    return 0
