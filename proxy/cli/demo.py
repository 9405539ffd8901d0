"""`noisegate demo`: the bundled table."""

from __future__ import annotations

from planner.basics.errors import BadValue
from proxy.cli.command import Arguments, command


@command(
    "demo",
    about="ask the bundled table a dozen questions, to see what answers look like",
    example="noisegate demo",
    more="Works on a copy in a new folder for temporary files, and says how to go on with it.",
)
def demo(arguments: Arguments) -> int:
    """Run the demo, which lies in the package that calls this one."""
    if arguments.show is None:
        raise BadValue("the demo belongs to the package noisegate", hint="run it by: python -m noisegate demo")
    arguments.show()
    return 0
