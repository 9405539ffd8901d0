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

from planner.basics.errors import BadValue, PolicyRefusal, Refusal, UnknownAnalyst
from planner.basics.numerals import whole
from planner.calls.call import written
from planner.calls.verify.decisions import AUTO
from planner.calls.verify.verify import DELTA
from planner.curator import archive, round_file
from planner.curator.check import check
from planner.curator.fidelity import TAU, fidelity
from planner.curator.proposal import propose
from planner.curator.relocation import relocate
from planner.gate import Gate
from planner.ledger.ledger import Ledger
from planner.plans.explain import percent
from planner.plans.result import Result
from planner.policy.file import Policy, ledger_place, load
from planner.policy.passwords import scram_verifier
from planner.policy.server import Server
from planner.session import Session
from proxy.cli import batch
from proxy.dbapi import POLICY
from proxy.errors import UNEXPECTED, pointer, printable
from proxy.show.page import page
from proxy.show.render import (
    Waiting,
    as_csv,
    as_json,
    cost_text,
    print_lines,
    print_result,
    print_table,
    refresh_lines,
    value_text,
)

REFUSED, USAGE, OVER_BUDGET, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 130, 141
BUDGET_SQLSTATE = "53400"
CHOSEN = "analysis, chosen, good, rest, why"
"""What a table shows of a choice."""

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
    found = [add(commands) for add in COMMANDS]
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


def _round(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "round",
        run_round,
        about="release the queries of a file together, for less than one by one",
        example="noisegate round q3.toml --explain",
        more="The file names the policy, the round, and its queries with their analysts and errors.",
    )
    command.add_argument("plan", metavar="PLAN", help="the round as a .toml file")
    command.add_argument("--analyst", metavar="NAME", help="who releases it; default: the analyst of the first query")
    command.add_argument("--explain", action="store_true", help="say what it would cost; nothing is stored or spent")
    _format(command, ("table", "json", "csv"))
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


def _verify(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "verify",
        run_verify,
        about="say whether answers on a synthetic table are within tau of the truth, and pay for that",
        example='noisegate verify "SELECT count(*) FROM people_synth WHERE age < 30" --tau 5% --epsilon 0.1',
        more="A file holds SELECTs, separated by semicolons; a comment -- tau: 10 is meant for the next one alone.",
    )
    _question(command, formats=("table", "json", "csv"), optional=True)
    command.add_argument("--file", metavar="FILE", help="verify all queries of a file, in place of SQL; - for stdin")
    command.add_argument("--tau", metavar="TAU", help="how far the truth may be away: a number, or 5%% of the answer")
    command.add_argument("--epsilon", metavar="E", type=_positive, help="how much each decision may tell of a person")
    command.add_argument(
        "--decider",
        metavar="NAME",
        default=AUTO,
        help="LM, EM, R2T, SVT or HIST, or in full, such as EM_count; default: %(default)s, the one that tells most",
    )
    command.add_argument(
        "--delta",
        metavar="D",
        type=_positive,
        default=DELTA,
        help="error at which thresholds are told; default: %(default)s",
    )
    command.add_argument("--explain", action="store_true", help="tell everything but the decision; spends nothing")
    return command


def _choose(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "choose",
        run_choose,
        about="take the finest of several analyses that the data support, and pay for that one",
        example='noisegate choose "SELECT count(*) FROM people" "SELECT sex, count(*) FROM people GROUP BY 1" --look',
        more="What they share is looked at first; then the rest of the one that is taken is paid for.",
    )
    command.add_argument("sqls", metavar="SQL", nargs="+", help="2 to 16 SELECTs; a policy file may stand before them")
    command.add_argument("--snr", metavar="R", type=_positive, help="ratio of an answer to its noise; default: 20")
    command.add_argument("--fraction", metavar="F", type=_positive, help="in which part of the groups; default: 0.5")
    command.add_argument("--rho", metavar="RHO", type=_positive, help="cost of each; default: by the session's error")
    command.add_argument("--rule", metavar="NAME", help="nested or general; default: nested where it can be used")
    command.add_argument("--deviations", metavar="K", type=float, help="how sure to be; default: 0, the estimate")
    command.add_argument("--weights", metavar="W", type=_positive, nargs="+", help="what each analysis is worth")
    command.add_argument("--no-stop", action="store_false", dest="stop", help="take one even if none is good enough")
    command.add_argument("--look", action="store_true", help="tell how good each would be, and take none")
    command.add_argument("--take", metavar="N", type=int, help="take the Nth, whatever a rule would say")
    command.add_argument("--explain", action="store_true", help="say what it would cost; spends nothing")
    _asking(command, formats=("table", "json", "csv"))
    return command


def _fidelity(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "fidelity",
        run_fidelity,
        about="write a page that says where a synthetic table holds, and where it does not",
        example="noisegate fidelity people_synth --epsilon 0.5 --out fidelity.html",
        more="The page is one file; it opens in a browser without network.",
    )
    _policy(command)
    command.add_argument("table", metavar="TABLE", help="a synthetic table of the policy")
    command.add_argument("--epsilon", metavar="E", type=_positive, required=True, help="for all decisions together")
    command.add_argument(
        "--tau", metavar="PERCENT", type=_percentage, default=TAU, help="part of an answer; default: 5%%"
    )
    command.add_argument("--out", metavar="FILE", default="fidelity.html", help="default: %(default)s")
    command.add_argument("--analyst", metavar="NAME", help="who asks, if the policy has several analysts")
    return command


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number


def _percentage(text: str) -> float:
    return _positive(text.removesuffix("%")) / 100


def _workers(text: str) -> int:
    number = whole(text, most=64)
    if not number:
        raise argparse.ArgumentTypeError(f"there are 1 to 64 workers, got {text!r}")
    return number


def _port(text: str) -> int:
    number = whole(text, most=65_535)
    if number is None:
        raise argparse.ArgumentTypeError(f"a port lies between 0 and 65535, got {text!r}")
    return number


def _budget(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "budget",
        run_budget,
        about="show what was spent and what is left, of everyone's budget and of each account",
        example="noisegate budget --format json",
    )
    _policy(command)
    command.add_argument(
        "--move",
        metavar=("SHARE", "FROM", "TO"),
        nargs=3,
        help="first move so much of the budget, such as 0.1, from one analyst's account to another's",
    )
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
        more="Says what that costs, and asks at a terminal. Earlier answers stay charged, are not reused any more, "
        "and what they cost is shared by cells no longer.",
    )
    _policy(command)
    command.add_argument("table", metavar="TABLE", help="a table of the policy")
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.add_argument("--dry-run", action="store_true", help="only say what it costs")
    return command


def _export(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "export",
        run_export,
        about="write all releases into a Parquet file",
        example="noisegate export releases.parquet",
        more="The file holds noisy answers, costs, names of analysts and their SQL; no protected data, no passwords.",
    )
    _policy(command)
    command.add_argument("file", metavar="FILE", help="the Parquet file to write")
    return command


def _import(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "import",
        run_import,
        about="make a new ledger out of exported releases, to answer from them and never to charge",
        example="noisegate import releases.parquet",
        more="A file in which anything was changed is refused.",
    )
    _policy(command)
    command.add_argument("file", metavar="FILE", help="a file that `noisegate export` wrote")
    command.add_argument("--head", metavar="HASH", help="refuse a file that does not end with this hash")
    return command


def _relocate(commands: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "relocate",
        run_relocate,
        about="move the ledger to another place, such as PostgreSQL, with all that was spent and released",
        example="noisegate relocate postgresql://gate@db.example.org/ledger",
        more="Gates on the old place refuse from then on. Interrupted, it goes on when it is run again.",
    )
    _policy(command)
    command.add_argument("url", metavar="URL", help="where to, as the policy will have it: a file, or postgresql://…")
    return command


def _policy(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "policy", metavar="POLICY", nargs="?", default=POLICY, help=f"policy file, ./{POLICY} if left out"
    )


def _format(command: argparse.ArgumentParser, formats: tuple[str, ...]) -> None:
    command.add_argument("--format", choices=formats, default=formats[0], help="default: %(default)s")


def _question(command: argparse.ArgumentParser, *, formats: tuple[str, ...], optional: bool = False) -> None:
    _policy(command)
    command.add_argument(
        "sql", metavar="SQL", nargs="?" if optional else None, help="one statement; - reads it from stdin"
    )
    _asking(command, formats=formats)


def _asking(command: argparse.ArgumentParser, *, formats: tuple[str, ...]) -> None:
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
    if "table" in arguments and arguments.table.endswith(".toml"):
        arguments.policy, arguments.table = arguments.table, arguments.policy
    if "url" in arguments and arguments.url.endswith(".toml"):
        arguments.policy, arguments.url = arguments.url, arguments.policy
    if "sqls" in arguments:
        _settle_choice(arguments)
    if "sql" not in arguments:
        return
    if "file" in arguments:
        _settle_file(arguments)
    if arguments.sql is not None and arguments.sql.endswith(".toml"):
        if arguments.policy == POLICY:
            raise ValueError("SQL is missing")
        arguments.policy, arguments.sql = arguments.sql, arguments.policy
    arguments.settings = [_setting(text) for text in arguments.settings]
    if arguments.sql == "-":
        arguments.sql = sys.stdin.read()


def _settle_choice(arguments: Arguments) -> None:
    """Tell the policy of `choose` from the analyses, and write the call that chooses among them."""
    policies = [text for text in arguments.sqls if text.endswith(".toml")] or [POLICY]
    sqls = [text for text in arguments.sqls if text not in policies]
    if len(policies) > 1 or not sqls:
        raise ValueError("one policy, please" if sqls else "SQL is missing")
    names = ("snr", "fraction", "rho", "rule", "deviations", "weights", "stop", "look", "take")
    call = written("choose", sqls, **{name: getattr(arguments, name) for name in names})
    shown = CHOSEN if arguments.format == "table" else "*"
    arguments.policy, arguments.sql = policies[0], call.replace("*", shown, 1)


def _settle_file(arguments: Arguments) -> None:
    """Tell SQL, policy and file of `verify` apart; without a file, tau and epsilon are needed."""
    if arguments.sql is None and not arguments.policy.endswith(".toml"):  # SQL alone, taken for a policy
        arguments.policy, arguments.sql = POLICY, arguments.policy
    if (arguments.sql is None) == (arguments.file is None):
        raise ValueError("give SQL, or --file, and not both" if arguments.file else "SQL is missing")
    missing = [name for name in ("tau", "epsilon") if getattr(arguments, name) is None]
    if missing and arguments.file is None:
        raise ValueError(f"--{missing[0]} is missing")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value or not re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", name):
        raise ValueError(f"--set needs NAME=VALUE, for example error=25, got {text!r}")
    return (name if "." in name else f"noisegate.{name}"), value


COMMANDS = (
    *(_init, _check, _query, _explain, _choose, _verify, _fidelity, _round, _serve),
    *(_budget, _passwd, _refresh, _export, _import, _relocate),
)


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


def run_choose(arguments: Arguments) -> int:
    """Choose, print a row for each analysis to stdout and the cost to stderr; or say what it would cost."""
    arguments.intervals = False
    return run_explain(arguments) if arguments.explain else run_query(arguments)


def run_verify(arguments: Arguments) -> int:
    """Verify one query, or those of a file; print the decisions to stdout and the cost to stderr."""
    if arguments.file is not None:
        return _verify_file(arguments)
    call = _call(arguments, batch.Asked(arguments.sql))
    with _session(arguments) as (session, waiting):
        try:
            result = session.execute(call, on_step=waiting.step)
        except Refusal as refusal:
            refusal.span = _inner(refusal.span, call, arguments.sql)
            raise
    if arguments.format != "table":
        _print(result, arguments, intervals=False)
    else:
        _print_decisions(result)
        print_lines(_stdout(), batch.notes(result, ("why", "compared", "provided")))
    told = "nothing was spent" if arguments.explain else _outcome(result)
    _say(f"{batch.verdict(result.rows, result.columns)}; {told}")
    return 0


def _call(arguments: Arguments, asked: batch.Asked) -> str:
    """Return the call of the function, with the options of the query, or else of the command."""
    given = {name: asked.options.get(name, getattr(arguments, name)) for name in batch.OPTIONS}
    for name in ("tau", "epsilon"):
        if given[name] is None:
            raise BadValue(f"{name} is missing", hint=f"give --{name}, or a comment in the file: -- {name}: …")
    for name in ("tau", "epsilon", "delta"):
        given[name] = _number(given[name])
    return written("verify", asked.sql, **given, explain=arguments.explain)


def _inner(span: tuple[int, int] | None, call: str, sql: str) -> tuple[int, int] | None:
    """Return the place in the SQL that was given, from one in the call; None if it is not in it."""
    start = call.find(sql)
    if span is None or start < 0 or not start <= span[0] <= span[1] < start + len(sql):
        return None
    return span[0] - start, span[1] - start


def _number(value: object) -> object:
    """Return a text that is a number as a number; a percentage, and anything else, as it is."""
    try:
        return float(str(value))
    except ValueError:
        return value


def _verify_file(arguments: Arguments) -> int:
    file = arguments.file
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise BadValue(f"{file} can't be read", hint="give a text file of SELECTs, separated by semicolons") from None
    asked = batch.read(text)
    outcomes = []
    with _session(arguments) as (session, waiting):
        for number, query in enumerate(asked):
            waiting.count(number, len(asked), " ".join(query.sql.split()))
            try:
                outcomes.append(batch.Outcome(query, session.execute(_call(arguments, query))))
            except Refusal as refusal:
                outcomes.append(batch.Outcome(query, refusal=refusal))
    result = batch.combined(outcomes)
    if arguments.format != "table":
        _print(result, arguments, intervals=False)
    else:
        _print_decisions(result, without="sql")
        print_lines(_stdout(), batch.notes(result, ("compared",)))
    refused = [outcome.refusal for outcome in outcomes if outcome.refusal is not None]
    failed = f", {len(refused)} refused" if refused else ""
    cost = f"cost rho {float(result.cost):.4g} in all" if result.cost else "free"
    _say(f"{len(outcomes)} queries{failed}: {batch.verdict(result.rows, result.columns)}; {cost}")
    if any(refusal.sqlstate == BUDGET_SQLSTATE for refusal in refused):
        return OVER_BUDGET
    return REFUSED if refused else 0


def _print_decisions(result: Result, *, without: str = "") -> None:
    names, rows = batch.shown(result, without=without)
    texts = [[value_text(value) for value in row] for row in rows]
    right = [
        any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows) for i in range(len(names))
    ]
    print_table(_stdout(), names, texts, right=right)


def run_fidelity(arguments: Arguments) -> int:
    """Write the page about a synthetic table; say on stderr what it tells and what it cost."""
    target = Path(arguments.out)
    if not target.parent.is_dir():
        raise BadValue(f"there is no folder {target.parent}", hint="give another --out")
    arguments.settings = []
    with _session(arguments) as (session, waiting):
        found = fidelity(session, arguments.table, epsilon=arguments.epsilon, tau=arguments.tau, on_step=waiting.count)
    target.write_text(page(found), encoding="utf-8")
    cost = f"cost rho {float(found.cost):.4g}" if found.cost else "free"
    left_out = f", {found.refused} not asked" if found.refused else ""
    _say(f"{target}: {found.holds} of {found.decided} decisions hold; {len(found.findings)} queries{left_out}, {cost}")
    return 0


def run_round(arguments: Arguments) -> int:
    """Enlist the queries of a file and release them together, or say what that would cost."""
    with Waiting(_stderr(), "reading the file") as waiting:
        found = round_file.load(arguments.plan)
        arguments.policy = found.policy
        with _gate(arguments) as gate:
            waiting.step("planning")
            queries = round_file.asked(gate, found, on_query=lambda done, of: waiting.count(done, of, "checking"))
            session = gate.session(arguments.analyst or queries[0].entry.analyst)
            if arguments.explain:
                price = round_file.price(session, found, queries)
            else:
                result = round_file.release(session, found, queries, on_step=waiting.step)
    if arguments.explain and arguments.format == "json":
        print(json.dumps(price.as_json(), indent=2))
    elif arguments.explain:
        print_lines(_stdout(), price.lines)
    else:
        _print(result, arguments, intervals=False)
        _say(_outcome(result))
    return 0


@contextmanager
def _session(arguments: Arguments) -> Iterator[tuple[Session, Waiting]]:
    with Waiting(_stderr(), "opening the gate") as waiting, _gate(arguments) as gate:
        yield _settled(gate, arguments), waiting


def _settled(gate: Gate, arguments: Arguments) -> Session:
    """Return the analyst's session, with the settings that were given."""
    session = gate.session(arguments.analyst)
    for name, value in arguments.settings:
        session.execute(f"SET {name} = '{value.replace(chr(39), chr(39) * 2)}'")
    return session


@contextmanager
def _gate(arguments: Arguments) -> Iterator[Gate]:
    gate = Gate.open(arguments.policy)
    try:
        yield gate
    finally:
        gate.close()


def run_serve(arguments: Arguments) -> int:
    """Serve until interrupted; print how to connect."""
    from proxy.server import server

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
        if arguments.move:
            amount, source, target = arguments.move
            gate.move(amount, source=source, target=target)
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
    with _gate(arguments) as gate:
        for line in refresh_lines(arguments.table, *gate.paid(arguments.table), gate.cap):
            print(printable(line))
        if arguments.dry_run:
            return 0
        if sys.stdin.isatty() and not arguments.yes and not _agreed(f"refresh {arguments.table}?"):
            _say("nothing was changed")
            return 1
        with Waiting(_stderr(), f"reading {arguments.table}"):
            version = gate.refresh(arguments.table)
    _say(f"{arguments.table}: refreshed, its data are version {version} now")
    return 0


def _agreed(question: str) -> bool:
    """Return whether somebody at the terminal says yes."""
    _say(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def run_export(arguments: Arguments) -> int:
    """Write all releases into a Parquet file."""
    with Ledger.open(load(arguments.policy).ledger) as ledger:
        found = archive.export(ledger, Path(arguments.file))
    _say(_archived(arguments.file, found))
    return 0


def run_import(arguments: Arguments) -> int:
    """Make a new ledger out of exported releases."""
    found = archive.load(load(arguments.policy).ledger, Path(arguments.file), head=arguments.head)
    _say(_archived(arguments.file, found))
    return 0


def run_relocate(arguments: Arguments) -> int:
    """Move the ledger, and say what to change in the policy."""
    policy = load(arguments.policy)
    try:
        place = ledger_place(arguments.url, policy.path)
    except ValueError as error:
        raise BadValue(str(error)) from None
    count = relocate(policy.ledger, place)
    _say(f"{count} release{'s'[: count != 1]} moved; put this under [ledger] in {policy.path.name}:")
    print(f"url = {json.dumps(arguments.url, ensure_ascii=False)}")
    return 0


def _archived(name: str, found: archive.Archive) -> str:
    return f"{name}: {len(found.rows)} release{'s'[: len(found.rows) != 1]}, the last hash is {found.head}"
