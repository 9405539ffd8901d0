"""The command line as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[3]
BY_SEX = "SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex"
Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "COLUMNS")}
    return kept | {"PYTHONPATH": str(ROOT), **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "noisegate", *arguments]


def break_policy(policy: Path) -> None:
    text = policy.read_text(encoding="utf-8")
    text = text.replace("epsilon = 2.0", "epsilon = -1").replace(", max = 90 }", " }")
    policy.write_text(text, encoding="utf-8")
