"""What a command says: answers on stdout, everything else on stderr."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from planner.plans.result import Result
from planner.plans.wording import percent
from proxy.errors import printable
from proxy.show.render import as_csv, as_json, cost_text, print_result


def stderr() -> Console:
    """Return the console for everything but answers."""
    return Console(stderr=True, highlight=False)


def stdout() -> Console:
    """Return the console for answers."""
    return Console(highlight=False)


def say(text: str, *, style: str = "") -> None:
    """Print a line to stderr; its first word is coloured on a terminal."""
    word, space, rest = printable(text).partition(" ") if style else ("", "", printable(text))
    stderr().print(Text.assemble((word, style), space, rest), soft_wrap=True)


def say_error(message: str, *, hint: str | None = None, below: list[str] | None = None) -> None:
    """Print what went wrong to stderr, lines below it, and what would work."""
    first, *others = message.splitlines() or [""]
    say(f"error: {first}", style="red")
    for line in (*others, *(below or [])):
        say(line)
    if hint:
        say(f"hint: {hint}", style="cyan")


def print_rows(result: Result, form: str, *, intervals: bool = False) -> None:
    """Print the rows to stdout as a table, JSON or CSV; in a table each number has its interval anyway."""
    match form:
        case "json":
            print(as_json(result, intervals=intervals))
        case "csv":
            print(as_csv(result, intervals=intervals), end="")
        case _:
            print_result(stdout(), result)


def summary(result: Result) -> str:
    """Return how many rows there are, what they cost, and what is left of the budget."""
    if not result.columns:
        return result.tag
    rows = f"{len(result.rows)} row{'s'[: len(result.rows) != 1]}"
    if result.plan is None:
        return rows
    plan = result.plan
    left = f", left {percent(1 - plan.rho_after / plan.budget)}" if plan.path not in ("free", "exact") else ""
    return f"{rows}, {cost_text(plan)}{left}"
