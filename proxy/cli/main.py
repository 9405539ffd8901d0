"""The command line: parses, calls one function, prints. Answers go to stdout, everything else to stderr.

Exit codes: 0 answered, 1 refused or a mistake of the user, 2 wrong usage, 3 the budget would be exceeded,
130 interrupted.

A new command is one function in one of the modules beside this one, and its name in COMMANDS.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable
from importlib import metadata

from planner.basics.errors import Refusal, UnknownAnalyst
from proxy.cli import ask, budget, choose, curate, demo, rounds, serve, verify
from proxy.cli.command import BROKEN_PIPE, BUDGET_SQLSTATE, INTERRUPTED, OVER_BUDGET, REFUSED, Action, Arguments
from proxy.cli.console import say, say_error
from proxy.errors import UNEXPECTED, pointer
from proxy.threads import one_blas_thread

COMMANDS = (
    *(demo.demo, curate.init, curate.check),
    *(ask.query, ask.explain, choose.choose, verify.verify, verify.fidelity, rounds.release_round),
    *(serve.serve, budget.budget, curate.passwd, curate.refresh),
    *(curate.export_releases, curate.import_releases, curate.relocate),
)
"""All commands, in the order of the help."""


def main(argv: list[str] | None = None, *, show: Callable[[], None] | None = None) -> int:
    """Run one command and return its exit code; `show` is what `noisegate demo` runs."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # no answer is lost to a terminal's encoding
    arguments = parse(sys.argv[1:] if argv is None else argv)
    arguments.show = show
    try:
        code = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has had enough; nothing more can be said to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def parse(argv: list[str]) -> Arguments:
    """Return the command and its arguments; options may stand before, between and after the others."""
    parser, commands = _parsers()
    if not argv or argv[0] not in commands:
        parser.parse_args(argv)  # help, version, or an error
        parser.error("a command is missing")
    command = commands[argv[0]]
    arguments = command.parse_intermixed_args(argv[1:])
    try:
        arguments.settle(arguments)
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
    return parser, {command.name: command.add_to(commands) for command in COMMANDS}


def _version() -> str:
    try:
        return metadata.version("noisegate")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def run(arguments: Arguments) -> int:
    """Run the command that was asked for; say what went wrong in words, never by a traceback."""
    try:
        action: Action = arguments.run
        with one_blas_thread():  # for all the process does, a server's workers included
            return action(arguments)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except Refusal as refusal:
        _debug(arguments)
        return _refuse(refusal, getattr(arguments, "sql", None))
    except Exception:
        _debug(arguments)
        say_error(UNEXPECTED, hint=None if arguments.debug else "run it again with --debug to see where")
        return REFUSED


def _debug(arguments: Arguments) -> None:
    if arguments.debug:
        traceback.print_exc()


def _refuse(refusal: Refusal, sql: str | None) -> int:
    hint = refusal.hint
    if isinstance(refusal, UnknownAnalyst):
        hint = f"{hint}; name one with --analyst" if hint else "name one with --analyst"
    say_error(refusal.message, hint=hint, below=pointer(sql, refusal.span))
    return OVER_BUDGET if refusal.sqlstate == BUDGET_SQLSTATE else REFUSED
