"""noisegate budget shows what was spent, to people and programs."""

import csv
import io
import json

from tests.proxy.cli.process import BY_SEX, Run


def test_budget_shows_everyone_and_each_account(run: Run) -> None:
    run("query", "adult.toml", BY_SEX, "--analyst", "ann")
    result = run("budget", "adult.toml")
    assert result.returncode == 0
    lines = [[cell.strip() for cell in line.split("|")] for line in result.stdout.splitlines()]
    assert lines[0] == ["population", "analyst", "epsilon spent", "of", "rho spent", "of", "left"]
    everyone, ann, bob = lines[2:]
    assert [line[1] for line in (everyone, ann, bob)] == ["everyone", "ann", "bob"]
    assert bob[-1] == "100.00 %"
    assert float(ann[-1].split()[0]) < float(everyone[-1].split()[0]) < 100


def test_budget_has_formats_for_programs(run: Run) -> None:
    rows = json.loads(run("budget", "adult.toml", "--format", "json").stdout)
    assert [row["analyst"] for row in rows] == [None, "ann", "bob"]
    table = list(csv.DictReader(io.StringIO(run("budget", "adult.toml", "--format", "csv").stdout)))
    assert [row["analyst"] for row in table] == ["", "ann", "bob"]
    assert list(table[0]) == list(rows[0])
