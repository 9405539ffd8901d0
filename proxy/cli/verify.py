"""`noisegate verify` and `noisegate fidelity`: whether a synthetic table tells the truth."""

from __future__ import annotations

import sys
from pathlib import Path

from planner.basics.errors import BadValue, Refusal
from planner.calls.call import written
from planner.calls.verify.decisions import AUTO
from planner.calls.verify.verify import DELTA
from planner.curator.fidelity import TAU
from planner.curator.fidelity import fidelity as fidelity_of
from planner.plans.result import Result
from proxy.cli import batch
from proxy.cli.ask import SETTINGS, SQL, settle_question
from proxy.cli.command import (
    ANALYST,
    BUDGET_SQLSTATE,
    OVER_BUDGET,
    POLICY_FILE,
    REFUSED,
    Arguments,
    command,
    format_of,
    option,
    percentage,
    positive,
    swap_policy,
)
from proxy.cli.console import print_rows, say, stdout, summary
from proxy.cli.session import open_session
from proxy.dbapi import POLICY
from proxy.show.page import page
from proxy.show.render import print_lines, print_table, value_text


def settle(arguments: Arguments) -> None:
    """Tell SQL, policy and file apart; without a file, tau and epsilon are needed. Or ValueError."""
    if arguments.sql is None and not arguments.policy.endswith(".toml"):  # SQL alone, taken for a policy
        arguments.policy, arguments.sql = POLICY, arguments.policy
    if (arguments.sql is None) == (arguments.file is None):
        raise ValueError("give SQL, or --file, and not both" if arguments.file else "SQL is missing")
    missing = [name for name in ("tau", "epsilon") if getattr(arguments, name) is None]
    if missing and arguments.file is None:
        raise ValueError(f"--{missing[0]} is missing")
    settle_question(arguments)


@command(
    "verify",
    about="say whether answers on a synthetic table are within tau of the truth, and pay for that",
    example='noisegate verify "SELECT count(*) FROM people_synth WHERE age < 30" --tau 5% --epsilon 0.1',
    more="A file holds SELECTs, separated by semicolons; a comment -- tau: 10 is meant for the next one alone.",
    options=(
        POLICY_FILE,
        option("sql", metavar="SQL", nargs="?", help=SQL),
        *(ANALYST, SETTINGS, format_of("table", "json", "csv")),
        option("--file", metavar="FILE", help="verify all queries of a file, in place of SQL; - for stdin"),
        option("--tau", metavar="TAU", help="how far the truth may be away: a number, or 5%% of the answer"),
        option("--epsilon", metavar="E", type=positive, help="how much each decision may tell of a person"),
        option(
            "--decider",
            metavar="NAME",
            default=AUTO,
            help="LM, EM, R2T, SVT or HIST, or in full, such as EM_count; "
            "default: %(default)s, the one that tells most",
        ),
        option(
            "--delta",
            metavar="D",
            type=positive,
            default=DELTA,
            help="error at which thresholds are told; default: %(default)s",
        ),
        option("--explain", action="store_true", help="tell everything but the decision; spends nothing"),
    ),
    settle=settle,
)
def verify(arguments: Arguments) -> int:
    """Verify one query, or those of a file; print the decisions to stdout and the cost to stderr."""
    return _verify_query(arguments) if arguments.file is None else _verify_file(arguments)


# --- one query ---------------------------------------------------------------------------------------------


def _verify_query(arguments: Arguments) -> int:
    result = _decide(arguments)
    if arguments.format != "table":
        print_rows(result, arguments.format)
    else:
        _print_decisions(result)
        print_lines(stdout(), batch.notes(result, ("why", "compared", "provided")))
    cost = "nothing was spent" if arguments.explain else summary(result)
    say(f"{batch.verdict(result.rows, result.columns)}; {cost}")
    return 0


def _decide(arguments: Arguments) -> Result:
    """Return the decisions; a refusal points into the SQL that was given, not into the call around it."""
    call = _call(arguments, batch.Query(arguments.sql))
    with open_session(arguments, settings=arguments.settings) as (session, waiting):
        try:
            return session.execute(call, on_step=waiting.step)
        except Refusal as refusal:
            refusal.span = _inner(refusal.span, call, arguments.sql)
            raise


def _call(arguments: Arguments, query: batch.Query) -> str:
    """Return the call of the function, with the options of the query, or else of the command."""
    given = {name: query.options.get(name, getattr(arguments, name)) for name in batch.OPTIONS}
    for name in ("tau", "epsilon"):
        if given[name] is None:
            raise BadValue(f"{name} is missing", hint=f"give --{name}, or a comment in the file: -- {name}: …")
    for name in ("tau", "epsilon", "delta"):
        given[name] = _number(given[name])
    return written("verify", query.sql, **given, explain=arguments.explain)


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


def _print_decisions(result: Result, *, without: str = "") -> None:
    names, rows = batch.visible(result, without=without)
    texts = [[value_text(value) for value in row] for row in rows]
    right = [
        any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows) for i in range(len(names))
    ]
    print_table(stdout(), names, texts, right=right)


# --- a file of queries -------------------------------------------------------------------------------------


def _verify_file(arguments: Arguments) -> int:
    outcomes = _decide_all(arguments, batch.read(_text(arguments.file)))
    result = batch.combined(outcomes)
    if arguments.format != "table":
        print_rows(result, arguments.format)
    else:
        _print_decisions(result, without="sql")
        print_lines(stdout(), batch.notes(result, ("compared",)))
    refusals = [outcome.refusal for outcome in outcomes if outcome.refusal is not None]
    refused = f", {len(refusals)} refused" if refusals else ""
    cost = f"cost rho {float(result.cost):.4g} in all" if result.cost else "free"
    say(f"{len(outcomes)} queries{refused}: {batch.verdict(result.rows, result.columns)}; {cost}")
    if any(refusal.sqlstate == BUDGET_SQLSTATE for refusal in refusals):
        return OVER_BUDGET
    return REFUSED if refusals else 0


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise BadValue(f"{file} can't be read", hint="give a text file of SELECTs, separated by semicolons") from None


def _decide_all(arguments: Arguments, queries: list[batch.Query]) -> list[batch.Outcome]:
    """Return what each query came to; one that is refused does not stop the others."""
    outcomes = []
    with open_session(arguments, settings=arguments.settings) as (session, waiting):
        for number, query in enumerate(queries):
            waiting.count(number, len(queries), " ".join(query.sql.split()))
            try:
                outcomes.append(batch.Outcome(query, session.execute(_call(arguments, query))))
            except Refusal as refusal:
                outcomes.append(batch.Outcome(query, refusal=refusal))
    return outcomes


# --- a whole table -----------------------------------------------------------------------------------------


@command(
    "fidelity",
    about="write a page that says where a synthetic table holds, and where it does not",
    example="noisegate fidelity people_synth --epsilon 0.5 --out fidelity.html",
    more="The page is one file; it opens in a browser without network.",
    options=(
        POLICY_FILE,
        option("table", metavar="TABLE", help="a synthetic table of the policy"),
        option("--epsilon", metavar="E", type=positive, required=True, help="for all decisions together"),
        option("--tau", metavar="PERCENT", type=percentage, default=TAU, help="part of an answer; default: 5%%"),
        option("--out", metavar="FILE", default="fidelity.html", help="default: %(default)s"),
        ANALYST,
    ),
    settle=swap_policy("table"),
)
def fidelity(arguments: Arguments) -> int:
    """Write the page about a synthetic table; say on stderr what it tells and what it cost."""
    target = Path(arguments.out)
    if not target.parent.is_dir():
        raise BadValue(f"there is no folder {target.parent}", hint="give another --out")
    with open_session(arguments, settings=[]) as (session, waiting):
        report = fidelity_of(
            session, arguments.table, epsilon=arguments.epsilon, tau=arguments.tau, on_step=waiting.count
        )
    target.write_text(page(report), encoding="utf-8")
    cost = f"cost rho {float(report.cost):.4g}" if report.cost else "free"
    left_out = f", {report.refused} not asked" if report.refused else ""
    decisions = f"{report.holds} of {report.decided} decisions hold"
    say(f"{target}: {decisions}; {len(report.findings)} queries{left_out}, {cost}")
    return 0
