"""The curator's commands: a policy, its passwords, its sources and its ledger."""

from __future__ import annotations

import getpass
import json
import sys
from pathlib import Path

from planner.basics.errors import BadValue, PolicyRefusal
from planner.curator import archive
from planner.curator.check import check as check_policy
from planner.curator.proposal import propose
from planner.curator.relocation import relocate as relocate_ledger
from planner.ledger.ledger import Ledger
from planner.policy.file import Policy, ledger_place, load
from planner.policy.passwords import scram_verifier
from proxy.cli.command import POLICY_FILE, REFUSED, Arguments, command, option, swap_policy
from proxy.cli.console import say, stderr
from proxy.cli.session import open_gate
from proxy.errors import printable
from proxy.show.render import ProgressLine, refresh_lines

# --- the policy --------------------------------------------------------------------------------------------


@command(
    "init",
    about="write a first policy for a file or a table, with every bound left for you to fill in",
    example="noisegate init people.parquet > noisegate.toml",
    options=(option("file", metavar="FILE", help=".parquet, .csv, .duckdb, file.duckdb#table or URL#schema.table"),),
)
def init(arguments: Arguments) -> int:
    """Print a first policy for a source."""
    sys.stdout.write(propose(arguments.file))
    say("fill in the bounds from public knowledge, then run: noisegate check")
    return 0


@command(
    "check",
    about="say what a policy guards, or list all its mistakes",
    example="noisegate check noisegate.toml",
    options=(POLICY_FILE,),
)
def check(arguments: Arguments) -> int:
    """Print what the policy guards, or every mistake with its line."""
    try:
        policy = check_policy(arguments.policy)
    except PolicyRefusal as refusal:
        print("\n".join(printable(line) for line in refusal.message.splitlines()))
        return REFUSED
    print(f"{arguments.policy}: {overview(policy)}")
    return 0


def overview(policy: Policy) -> str:
    """Return in one line what is guarded, by which budget, for whom."""
    tables = [f"{table.name} ({_kind(table.kind, len(table.columns))})" for table in policy.tables.values()]
    analysts = [f"{analyst.name} {float(100 * analyst.share):g} %" for analyst in policy.analysts.values()]
    budget = f"epsilon {policy.budget.epsilon:g} at delta {policy.budget.delta:g}"
    return f"ok: {', '.join(tables)}; {budget}; {', '.join(analysts)}"


def _kind(kind: str, columns: int) -> str:
    return f"{columns} column{'s'[: columns != 1]}" if kind == "protected" else kind


@command(
    "passwd",
    about="turn a password into the line that goes into the policy",
    example="noisegate passwd alice",
    more="Asks for the password without showing it, or reads a line from stdin.",
    options=(option("name", metavar="NAME", nargs="?", help="the analyst, to be told where the line goes"),),
)
def passwd(arguments: Arguments) -> int:
    """Print the verifier of a password as a line of TOML."""
    password = _ask_password() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise BadValue("the password is empty")
    print(f'password = "{scram_verifier(password)}"')
    say(f"put this line under [analysts.{arguments.name or 'NAME'}] in the policy")
    return 0


def _ask_password() -> str:
    password = getpass.getpass("password: ")
    if password and getpass.getpass("once more: ") != password:
        raise BadValue("the two passwords differ")
    return password


# --- a source ----------------------------------------------------------------------------------------------


@command(
    "refresh",
    about="take up a source whose data changed",
    example="noisegate refresh people",
    more="Says what that costs, and asks at a terminal. Earlier answers stay charged, are not reused any more, "
    "and what they cost is shared by cells no longer.",
    options=(
        POLICY_FILE,
        option("table", metavar="TABLE", help="a table of the policy"),
        option("--yes", action="store_true", help="do not ask"),
        option("--dry-run", action="store_true", help="only say what it costs"),
    ),
    settle=swap_policy("table"),
)
def refresh(arguments: Arguments) -> int:
    """Take up a source whose data changed."""
    with open_gate(arguments.policy) as gate:
        for line in refresh_lines(arguments.table, *gate.paid(arguments.table), gate.cap):
            print(printable(line))
        if arguments.dry_run:
            return 0
        if sys.stdin.isatty() and not arguments.yes and not _agrees(f"refresh {arguments.table}?"):
            say("nothing was changed")
            return REFUSED
        with ProgressLine(stderr(), f"reading {arguments.table}"):
            version = gate.refresh(arguments.table)
    say(f"{arguments.table}: refreshed, its data are version {version} now")
    return 0


def _agrees(question: str) -> bool:
    """Return whether somebody at the terminal says yes."""
    say(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# --- the ledger --------------------------------------------------------------------------------------------


@command(
    "export",
    about="write all releases into a Parquet file",
    example="noisegate export releases.parquet",
    more="The file holds noisy answers, costs, names of analysts and their SQL; no protected data, no passwords.",
    options=(POLICY_FILE, option("file", metavar="FILE", help="the Parquet file to write")),
)
def export_releases(arguments: Arguments) -> int:
    """Write all releases into a Parquet file."""
    with Ledger.open(load(arguments.policy).ledger) as ledger:
        written = archive.export(ledger, Path(arguments.file))
    say(_contents(arguments.file, written))
    return 0


@command(
    "import",
    about="make a new ledger out of exported releases, to answer from them and never to charge",
    example="noisegate import releases.parquet",
    more="A file in which anything was changed is refused.",
    options=(
        POLICY_FILE,
        option("file", metavar="FILE", help="a file that `noisegate export` wrote"),
        option("--head", metavar="HASH", help="refuse a file that does not end with this hash"),
    ),
)
def import_releases(arguments: Arguments) -> int:
    """Make a new ledger out of exported releases."""
    read = archive.load(load(arguments.policy).ledger, Path(arguments.file), head=arguments.head)
    say(_contents(arguments.file, read))
    return 0


def _contents(name: str, releases: archive.Archive) -> str:
    count = len(releases.rows)
    return f"{name}: {count} release{'s'[: count != 1]}, the last hash is {releases.head}"


@command(
    "relocate",
    about="move the ledger to another place, such as PostgreSQL, with all that was spent and released",
    example="noisegate relocate postgresql://gate@db.example.org/ledger",
    more="Gates on the old place refuse from then on. Interrupted, it goes on when it is run again.",
    options=(
        POLICY_FILE,
        option("url", metavar="URL", help="where to, as the policy will have it: a file, or postgresql://…"),
    ),
    settle=swap_policy("url"),
)
def relocate(arguments: Arguments) -> int:
    """Move the ledger, and say what to change in the policy."""
    policy = load(arguments.policy)
    try:
        place = ledger_place(arguments.url, policy.path)
    except ValueError as error:
        raise BadValue(str(error)) from None
    count = relocate_ledger(policy.ledger, place)
    say(f"{count} release{'s'[: count != 1]} moved; put this under [ledger] in {policy.path.name}:")
    print(f"url = {json.dumps(arguments.url, ensure_ascii=False)}")
    return 0
