"""The command line: parses, calls one function, prints. Answers go to stdout, everything else to stderr.

Exit codes: 0 answered, 1 refused or a mistake of the user, 2 wrong usage, 3 the budget would be exceeded,
130 interrupted.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.text import Text

from planner.check import check
from planner.errors import BadValue, PolicyRefusal, Refusal, UnknownAnalyst
from planner.gate import Gate, Session
from planner.listening import Server
from planner.passwords import scram_verifier
from planner.policy import Policy
from planner.proposal import propose
from planner.result import Result
from proxy.dbapi import POLICY
from proxy.errors import UNEXPECTED, pointer, printable
from proxy.render import Waiting, as_csv, as_json, cost_text, percent, print_lines, print_result, print_table

REFUSED, USAGE, OVER_BUDGET, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 130, 141
BUDGET_SQLSTATE = "53400"

Arguments = argparse.Namespace


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # no answer is lost to a terminal's encoding
    arguments = parse(sys.argv[1:] if argv is None else argv)
    try:
        code = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has had enough; nothing more can be said to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def run(arguments: Arguments) -> int:
    """Run the command that was asked for; say what went wrong in words, never by a traceback."""
    try:
        command: Callable[[Arguments], int] = arguments.run
        return command(arguments)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except Refusal as refusal:
        _debug(arguments)
        return _refuse(refusal, getattr(arguments, "sql", None))
    except Exception:
        _debug(arguments)
        _error(UNEXPECTED, hint=None if arguments.debug else "run it again with --debug to see where")
        return REFUSED


def _debug(arguments: Arguments) -> None:
    if arguments.debug:
        traceback.print_exc()


def _refuse(refusal: Refusal, sql: str | None) -> int:
    hint = refusal.hint
    if isinstance(refusal, UnknownAnalyst):
        hint = f"{hint}; name one with --analyst" if hint else "name one with --analyst"
    _error(refusal.message, hint=hint, below=pointer(sql, refusal.span))
    return OVER_BUDGET if refusal.sqlstate == BUDGET_SQLSTATE else REFUSED


def _error(message: str, *, hint: str | None = None, below: list[str] | None = None) -> None:
    first, *others = message.splitlines() or [""]
    _say(f"error: {first}", style="red")
    for line in (*others, *(below or [])):
        _say(line)
    if hint:
        _say(f"hint: {hint}", style="cyan")


def _say(text: str, *, style: str = "") -> None:
    """Print a line to stderr; its first word is coloured on a terminal."""
    word, space, rest = printable(text).partition(" ") if style else ("", "", printable(text))
    _stderr().print(Text.assemble((word, style), space, rest), soft_wrap=True)


def _stderr() -> Console:
    return Console(stderr=True, highlight=False)


def _stdout() -> Console:
    return Console(highlight=False)


# --- usage -------------------------------------------------------------------------------------------------


def parse(argv: list[str]) -> Arguments:
    """Return the command and its arguments; options may stand before, between and after the others."""
    parser, commands = _parsers()
    if not argv or argv[0] not in commands:
        parser.parse_args(argv)  # help, version, or an error
        parser.error("a command is missing")
    command = commands[argv[0]]
    arguments = command.parse_intermixed_args(argv[1:])
    try:
        _settle(arguments)
    except ValueError as error:
        command.error(str(error))
    return arguments


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(
        prog="noisegate",
        description="Ask a table of people by SQL, and get differentially private answers with error bars.",
        epilog="each command has its own help and an example: noisegate query --help",
    )
    parser.add_argument("--version", action="version", version=f"noisegate {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    found = [add(commands) for add in (_init, _check, _query, _explain, _serve, _budget, _passwd, _refresh)]
    return parser, {command.prog.split()[-1]: command for command in found}


def _version() -> str:
    try:
        return metadata.version("noisegate")
    except metadata.PackageNotFoundError:
        return "(not installed)"


Commands = argparse._SubParsersAction  # the type of add_subparsers(), which has no public name


def _command(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    run: Callable[[Arguments], int],
    *,
    about: str,
    example: str,
    more: str = "",
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=f"{about[:1].upper()}{about[1:]}. {more}".strip(),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("--debug", action="store_true", help="show a traceback when something goes wrong")
    command.set_defaults(run=run)
    return command


def _init(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "init",
        run_init,
        about="write a first policy for a file or a table, with every bound left for you to fill in",
        example="noisegate init people.parquet > noisegate.toml",
    )
    command.add_argument("file", metavar="FILE", help=".parquet, .csv, .duckdb, file.duckdb#table or URL#schema.table")
    return command


def _check(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "check",
        run_check,
        about="say what a policy guards, or list all its mistakes",
        example="noisegate check noisegate.toml",
    )
    _policy(command)
    return command


def _query(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "query",
        run_query,
        about="ask a question, and pay for the answer",
        example='noisegate query "SELECT sex, count(*) FROM people GROUP BY sex" --analyst alice',
        more="The rows go to stdout, the cost to stderr.",
    )
    _question(command, formats=("table", "json", "csv"))
    command.add_argument(
        "--intervals", action="store_true", help="with json and csv: add the low and high end of each answer"
    )
    return command


def _explain(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "explain",
        run_explain,
        about="say what a question would cost and how exact its answer would be",
        example='noisegate explain "SELECT avg(age) FROM people" --set error=25',
        more="Spends nothing.",
    )
    _question(command, formats=("table", "json"))
    return command


def _serve(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "serve",
        run_serve,
        about="let PostgreSQL clients ask: psql, drivers, notebooks, dashboards",
        example="noisegate serve noisegate.toml --port 5433",
        more="Runs until it is interrupted.",
    )
    _policy(command)
    command.add_argument("--host", metavar="ADDRESS", help="where to listen; default: the policy's, or 127.0.0.1")
    command.add_argument("--port", metavar="N", type=_port, help="default: the policy's, or 5433; 0 for any free one")
    command.add_argument(
        "--metrics-port", metavar="N", type=_port, help="serve /health and /metrics on this port of 127.0.0.1"
    )
    command.add_argument(
        "--trust", action="store_true", help="let everyone on this machine in without a password, to try things out"
    )
    command.add_argument(
        "--workers", metavar="N", type=_workers, default=1, help="processes that share the port; default: %(default)s"
    )
    command.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="of the events on stderr; default: %(default)s"
    )
    return command


def _workers(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"there are 1 to 64 workers, got {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port lies between 0 and 65535, got {text!r}")
    return int(text)


def _budget(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "budget",
        run_budget,
        about="show what was spent and what is left, of everyone's budget and of each account",
        example="noisegate budget --format json",
    )
    _policy(command)
    _format(command, ("table", "json", "csv"))
    return command


def _passwd(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "passwd",
        run_passwd,
        about="turn a password into the line that goes into the policy",
        example="noisegate passwd alice",
        more="Asks for the password without showing it, or reads a line from stdin.",
    )
    command.add_argument("name", metavar="NAME", nargs="?", help="the analyst, to be told where the line goes")
    return command


def _refresh(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "refresh",
        run_refresh,
        about="take up a source whose data changed",
        example="noisegate refresh people",
        more="Earlier answers stay charged, and are not reused any more.",
    )
    _policy(command)
    command.add_argument("table", metavar="TABLE", help="a table of the policy")
    return command


def _policy(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "policy", metavar="POLICY", nargs="?", default=POLICY, help=f"policy file, ./{POLICY} if left out"
    )


def _format(command: argparse.ArgumentParser, formats: tuple[str, ...]) -> None:
    command.add_argument("--format", choices=formats, default=formats[0], help="default: %(default)s")


def _question(command: argparse.ArgumentParser, *, formats: tuple[str, ...]) -> None:
    _policy(command)
    command.add_argument("sql", metavar="SQL", help="one statement; - reads it from stdin")
    command.add_argument("--analyst", metavar="NAME", help="who asks, if the policy has several analysts")
    command.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="a setting for this question, such as error=25 for noisegate.error; can be repeated",
    )
    _format(command, formats)


def _settle(arguments: Arguments) -> None:
    """Tell the policy from the SQL by its .toml, split the settings, read SQL from stdin; or ValueError."""
    if "sql" not in arguments:
        return
    if arguments.sql.endswith(".toml"):
        if arguments.policy == POLICY:
            raise ValueError("SQL is missing")
        arguments.policy, arguments.sql = arguments.sql, arguments.policy
    arguments.settings = [_setting(text) for text in arguments.settings]
    if arguments.sql == "-":
        arguments.sql = sys.stdin.read()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value or not re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", name):
        raise ValueError(f"--set needs NAME=VALUE, for example error=25, got {text!r}")
    return (name if "." in name else f"noisegate.{name}"), value


# --- commands ----------------------------------------------------------------------------------------------


def run_init(arguments: Arguments) -> int:
    """Print a first policy for a source."""
    sys.stdout.write(propose(arguments.file))
    _say("fill in the bounds from public knowledge, then run: noisegate check")
    return 0


def run_check(arguments: Arguments) -> int:
    """Print what the policy guards, or every mistake with its line."""
    try:
        policy = check(arguments.policy)
    except PolicyRefusal as refusal:
        print("\n".join(printable(line) for line in refusal.message.splitlines()))
        return REFUSED
    print(f"{arguments.policy}: {summary(policy)}")
    return 0


def summary(policy: Policy) -> str:
    """Return in one line what is guarded, by which budget, for whom."""
    tables = [f"{table.name} ({_kind(table.kind, len(table.columns))})" for table in policy.tables.values()]
    analysts = [f"{analyst.name} {float(100 * analyst.share):g} %" for analyst in policy.analysts.values()]
    budget = f"epsilon {policy.budget.epsilon:g} at delta {policy.budget.delta:g}"
    return f"ok: {', '.join(tables)}; {budget}; {', '.join(analysts)}"


def _kind(kind: str, columns: int) -> str:
    return f"{columns} column{'s'[: columns != 1]}" if kind == "protected" else kind


def run_query(arguments: Arguments) -> int:
    """Ask, print the rows to stdout and the cost to stderr."""
    with _session(arguments) as (session, waiting):
        result = session.execute(arguments.sql, on_step=waiting.step)
    if result.columns:
        _print(result, arguments)
    _say(_outcome(result))
    return 0


def _outcome(result: Result) -> str:
    """Return how many rows there are, what they cost, and what is left of the budget."""
    if not result.columns:
        return result.tag
    rows = f"{len(result.rows)} row{'s'[: len(result.rows) != 1]}"
    if result.plan is None:
        return rows
    plan = result.plan
    left = f", left {percent(1 - plan.rho_after / plan.budget)}" if plan.path not in ("free", "exact") else ""
    return f"{rows}, {cost_text(plan)}{left}"


def _print(result: Result, arguments: Arguments, *, intervals: bool | None = None) -> None:
    wanted = arguments.intervals if intervals is None else intervals
    match arguments.format:
        case "json":
            print(as_json(result, intervals=wanted))
        case "csv":
            print(as_csv(result, intervals=wanted), end="")
        case _:
            print_result(_stdout(), result)


def run_explain(arguments: Arguments) -> int:
    """Print what the question would cost; spends nothing."""
    with _session(arguments) as (session, waiting):
        waiting.step("planning")
        plan = session.explain(arguments.sql)
    if arguments.format == "json":
        print(json.dumps(plan.as_json(), indent=2))
    else:
        print_lines(_stdout(), plan.lines)
    return 0


@contextmanager
def _session(arguments: Arguments) -> Iterator[tuple[Session, Waiting]]:
    with Waiting(_stderr(), "opening the gate") as waiting, _gate(arguments) as gate:
        session = gate.session(arguments.analyst)
        for name, value in arguments.settings:
            session.execute(f"SET {name} = '{value.replace(chr(39), chr(39) * 2)}'")
        yield session, waiting


@contextmanager
def _gate(arguments: Arguments) -> Iterator[Gate]:
    gate = Gate.open(arguments.policy)
    try:
        yield gate
    finally:
        gate.close()


def run_serve(arguments: Arguments) -> int:
    """Serve until interrupted; print how to connect."""
    from proxy import server  # here, since no other command needs asyncio and TLS

    wanted = {name: getattr(arguments, name) for name in ("host", "port", "metrics_port")}
    overrides = {name: value for name, value in wanted.items() if value is not None}
    if arguments.trust:
        overrides["auth"] = "trust"
    server.run(
        Path(arguments.policy),
        overrides=overrides,
        log_format=arguments.log_format,
        workers=arguments.workers,
        on_start=_print_address,
    )
    return 0


def _print_address(policy: Policy, config: Server) -> None:
    print(f"{policy.path.name}: {summary(policy)}")
    user = next(iter(policy.analysts))
    print(f'connect: psql "host={config.host} port={config.port} user={user} dbname=noisegate"', flush=True)


BUDGET_SQL = """
SELECT population, NULL AS analyst, rho_total, rho_spent, epsilon_total, epsilon_spent, delta
FROM noisegate.budget
UNION ALL
SELECT population, analyst, rho_total, rho_spent, epsilon_total, epsilon_spent, delta
FROM noisegate.accounts
ORDER BY population, analyst NULLS FIRST
"""


def run_budget(arguments: Arguments) -> int:
    """Print the budget of each population and the accounts below it."""
    with _gate(arguments) as gate:
        analyst = next(iter(gate.policy.analysts))  # whose session it is makes no difference
        result = gate.session(analyst).execute(BUDGET_SQL)
    if arguments.format != "table":
        _print(result, arguments, intervals=False)
        return 0
    names = ("population", "analyst", "epsilon spent", "of", "rho spent", "of", "left")
    rows = [_account(*row[:6]) for row in result.rows]
    print_table(_stdout(), names, rows, right=(False, False, True, True, True, True, True))
    return 0


def _account(population: str, analyst: str | None, total: float, spent: float, *epsilon: float) -> list[str]:
    """Return one line of the table; what is left is a part of the budget in rho, as after a query."""
    of, used = epsilon
    left = percent(1 - Fraction(spent) / Fraction(total))
    return [
        population,
        analyst or "everyone",
        f"{used:.4g}",
        f"{of:.4g}",
        f"{spent:.4g}",
        f"{total:.4g}",
        left,
    ]


def run_passwd(arguments: Arguments) -> int:
    """Print the verifier of a password as a line of TOML."""
    password = _ask_password() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise BadValue("the password is empty")
    print(f'password = "{scram_verifier(password)}"')
    _say(f"put this line under [analysts.{arguments.name or 'NAME'}] in the policy")
    return 0


def _ask_password() -> str:
    password = getpass.getpass("password: ")
    if password and getpass.getpass("once more: ") != password:
        raise BadValue("the two passwords differ")
    return password


def run_refresh(arguments: Arguments) -> int:
    """Take up a source whose data changed."""
    with Waiting(_stderr(), f"reading {arguments.table}"), _gate(arguments) as gate:
        gate.refresh(arguments.table)
    _say(f"{arguments.table}: earlier answers stay charged and are not reused any more")
    return 0
