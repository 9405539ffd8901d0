"""`noisegate choose`: the finest of several analyses that the data support."""

from __future__ import annotations

from planner.calls.call import written
from proxy.cli.ask import SETTINGS, ask, price, settle_settings
from proxy.cli.command import ANALYST, Arguments, command, format_of, option, positive
from proxy.dbapi import POLICY

COLUMNS = "analysis, chosen, good, rest, why"
"""What a table shows of a choice."""


def settle(arguments: Arguments) -> None:
    """Tell the policy from the analyses, and write the call that chooses among them; or ValueError."""
    policies = [text for text in arguments.sqls if text.endswith(".toml")] or [POLICY]
    sqls = [text for text in arguments.sqls if text not in policies]
    if len(policies) > 1 or not sqls:
        raise ValueError("give one policy file only" if sqls else "SQL is missing")
    names = ("snr", "fraction", "rho", "rule", "deviations", "weights", "stop", "look", "take")
    call = written("choose", sqls, **{name: getattr(arguments, name) for name in names})
    columns = COLUMNS if arguments.format == "table" else "*"
    arguments.policy, arguments.sql = policies[0], call.replace("*", columns, 1)
    settle_settings(arguments)


@command(
    "choose",
    about="take the finest of several analyses that the data support, and pay for that one",
    example='noisegate choose "SELECT count(*) FROM people" "SELECT sex, count(*) FROM people GROUP BY 1" --look',
    more="What they share is looked at first; then the rest of the one that is taken is paid for.",
    options=(
        option("sqls", metavar="SQL", nargs="+", help="2 to 16 SELECTs; a policy file may stand before them"),
        option("--snr", metavar="R", type=positive, help="ratio of an answer to its noise; default: 20"),
        option("--fraction", metavar="F", type=positive, help="in which part of the groups; default: 0.5"),
        option("--rho", metavar="RHO", type=positive, help="cost of each; default: by the session's error"),
        option("--rule", metavar="NAME", help="nested or general; default: nested where it can be used"),
        option("--deviations", metavar="K", type=float, help="how sure to be; default: 0, the estimate"),
        option("--weights", metavar="W", type=positive, nargs="+", help="what each analysis is worth"),
        option("--no-stop", action="store_false", dest="stop", help="take one even if none is good enough"),
        option("--look", action="store_true", help="tell how good each would be, and take none"),
        option("--take", metavar="N", type=int, help="take the Nth, whatever a rule would say"),
        option("--explain", action="store_true", help="say what it would cost; spends nothing"),
        *(ANALYST, SETTINGS, format_of("table", "json", "csv")),
    ),
    settle=settle,
)
def choose(arguments: Arguments) -> int:
    """Choose, print a row for each analysis to stdout and the cost to stderr; or say what it would cost."""
    return price(arguments) if arguments.explain else ask(arguments)
