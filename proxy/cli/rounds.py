"""`noisegate round`: the queries of a file, released together."""

from __future__ import annotations

import json

from planner.curator import round_file
from proxy.cli.command import Arguments, command, format_of, option
from proxy.cli.console import print_rows, say, stderr, stdout, summary
from proxy.cli.session import open_gate
from proxy.show.render import ProgressLine, print_lines


@command(
    "round",
    about="release the queries of a file together, for less than one by one",
    example="noisegate round q3.toml --explain",
    more="The file names the policy, the round, and its queries with their analysts and errors.",
    options=(
        option("plan", metavar="PLAN", help="the round as a .toml file"),
        option("--analyst", metavar="NAME", help="who releases it; default: the analyst of the first query"),
        option("--explain", action="store_true", help="say what it would cost; nothing is stored or spent"),
        format_of("table", "json", "csv"),
    ),
)
def release_round(arguments: Arguments) -> int:
    """Enlist the queries of a file and release them together, or say what that would cost."""
    with ProgressLine(stderr(), "reading the file") as waiting:
        plan = round_file.load(arguments.plan)
        with open_gate(plan.policy) as gate:
            waiting.step("planning")
            queries = round_file.asked(gate, plan, on_query=lambda done, of: waiting.count(done, of, "checking"))
            session = gate.session(arguments.analyst or queries[0].entry.analyst)
            if arguments.explain:
                price = round_file.price(session, plan, queries)
            else:
                result = round_file.release(session, plan, queries, on_step=waiting.step)
    if arguments.explain and arguments.format == "json":
        print(json.dumps(price.as_json(), indent=2))
    elif arguments.explain:
        print_lines(stdout(), price.lines)
    else:
        print_rows(result, arguments.format)
        say(summary(result))
    return 0
