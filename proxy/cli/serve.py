"""`noisegate serve`: for PostgreSQL clients."""

from __future__ import annotations

import argparse
from pathlib import Path

from planner.basics.numerals import whole
from planner.policy.file import Policy
from planner.policy.server import Server
from proxy.cli.command import POLICY_FILE, Arguments, command, option
from proxy.cli.curate import overview


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


@command(
    "serve",
    about="let PostgreSQL clients ask: psql, drivers, notebooks, dashboards",
    example="noisegate serve noisegate.toml --port 5433",
    more="Runs until it is interrupted.",
    options=(
        POLICY_FILE,
        option("--host", metavar="ADDRESS", help="where to listen; default: the policy's, or 127.0.0.1"),
        option("--port", metavar="N", type=_port, help="default: the policy's, or 5433; 0 for any free one"),
        option("--metrics-port", metavar="N", type=_port, help="serve /health and /metrics on this port of 127.0.0.1"),
        option(
            "--trust", action="store_true", help="let everyone on this machine in without a password, to try things out"
        ),
        option(
            "--workers",
            metavar="N",
            type=_workers,
            default=1,
            help="processes that share the port; default: %(default)s",
        ),
        option(
            "--log-format",
            choices=("text", "json"),
            default="text",
            help="of the events on stderr; default: %(default)s",
        ),
    ),
)
def serve(arguments: Arguments) -> int:
    """Serve until interrupted; print how to connect."""
    from proxy.server import server  # the other commands start quicker without it

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
    print(f"{policy.path.name}: {overview(policy)}")
    user = next(iter(policy.analysts))
    print(f'connect: psql "host={config.host} port={config.port} user={user} dbname=noisegate"', flush=True)
