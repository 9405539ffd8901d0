"""What a command is: its name, its help, its options and its action, side by side; and the exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proxy.dbapi import POLICY

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # add_subparsers() returns it, without a name

REFUSED, USAGE, OVER_BUDGET, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 130, 141
BUDGET_SQLSTATE = "53400"

Arguments = argparse.Namespace
Action = Callable[[Arguments], int]
Option = Callable[[argparse.ArgumentParser], object]


def leave(arguments: Arguments) -> None:
    """Take the arguments as they were parsed."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command.

    Args:
        about: what it does, after its name in the list of commands, and as the first sentence of its own help.
        more: further sentences of its help.
        settle: what is done to the arguments before the action; a ValueError in it is wrong usage.
    """

    name: str
    run: Action
    about: str
    example: str
    more: str
    options: tuple[Option, ...]
    settle: Callable[[Arguments], None]

    def add_to(self, commands: Subparsers) -> argparse.ArgumentParser:
        """Return the parser of this command, one more of `noisegate`."""
        parser = commands.add_parser(
            self.name,
            help=self.about,
            description=f"{self.about[:1].upper()}{self.about[1:]}. {self.more}".strip(),
            epilog=f"example:\n  {self.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("--debug", action="store_true", help="show a traceback when something goes wrong")
        for add in self.options:
            add(parser)
        parser.set_defaults(run=self.run, settle=self.settle)
        return parser


def command(
    name: str,
    *,
    about: str,
    example: str,
    more: str = "",
    options: tuple[Option, ...] = (),
    settle: Callable[[Arguments], None] = leave,
) -> Callable[[Action], Command]:
    """Make a function that takes the arguments and returns the exit code a command."""
    return lambda run: Command(
        name=name, run=run, about=about, example=example, more=more, options=options, settle=settle
    )


# --- options -----------------------------------------------------------------------------------------------


def option(*names: str, **details: Any) -> Option:  # Any: argparse knows what it takes
    """Return an option or an argument, given as to `ArgumentParser.add_argument`."""
    return lambda parser: parser.add_argument(*names, **details)


def format_of(*formats: str) -> Option:
    """Return the option that chooses among formats; the first is the default."""
    return option("--format", choices=formats, default=formats[0], help="default: %(default)s")


POLICY_FILE = option("policy", metavar="POLICY", nargs="?", default=POLICY, help=f"policy file, ./{POLICY} if left out")
ANALYST = option("--analyst", metavar="NAME", help="who asks, if the policy has several analysts")


def swap_policy(name: str) -> Callable[[Arguments], None]:
    """Let the policy stand before or after the argument of this name: it is the one that ends in .toml."""

    def swap(arguments: Arguments) -> None:
        if getattr(arguments, name).endswith(".toml"):
            policy = getattr(arguments, name)
            setattr(arguments, name, arguments.policy)
            arguments.policy = policy

    return swap


# --- values ------------------------------------------------------------------------------------------------


def positive(text: str) -> float:
    """Return a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number


def percentage(text: str) -> float:
    """Return 0.05 for 5 and for 5%."""
    return positive(text.removesuffix("%")) / 100
