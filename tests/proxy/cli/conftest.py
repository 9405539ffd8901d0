"""The command line, run beside a copy of the bundled table."""

import subprocess
from pathlib import Path

import pytest

from tests.proxy.cli.process import Run, command, environment


@pytest.fixture
def run(adult_policy: Path) -> Run:
    """Return a function that runs the command line beside a copy of the bundled table."""

    def run(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            cwd=adult_policy.parent,
            env=environment(**more),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def default_policy(adult_policy: Path) -> Path:
    return adult_policy.rename(adult_policy.with_name("noisegate.toml"))
