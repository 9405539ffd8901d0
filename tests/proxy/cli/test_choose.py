"""noisegate choose takes one of several analyses, for the price of that one."""

import json

from tests.proxy.cli.process import BY_SEX, Run

BY_RACE = "SELECT sex, race, count(*) AS n FROM adult GROUP BY sex, race ORDER BY sex"


def test_choose_looks_and_takes_one_for_the_price_of_that_one(run: Run) -> None:
    asked = ("choose", "adult.toml", BY_SEX, BY_RACE, "--analyst", "ann", "--rho", "0.001")
    price = run(*asked, "--explain")
    assert "at best" in price.stdout
    look, taken = run(*asked, "--look", "--format", "json"), run(*asked, "--take", "2", "--format", "json")
    looked, then = ([row["rho"] for row in json.loads(one.stdout)] for one in (look, taken))
    assert looked == [None, None]
    assert then[0] is None
    assert look.returncode == taken.returncode == 0
    free = run("query", "adult.toml", "--analyst", "ann", BY_RACE, "--set", "rho=0.001")
    assert "free: already known" in free.stderr
    assert "1.78 % of the budget" in price.stdout
    assert "left 98.22 %" in taken.stderr


def test_choose_passes_on_what_decides(run: Run) -> None:
    options = ("--snr", "9", "--fraction", "0.25", "--deviations", "2", "--weights", "1", "3", "--no-stop", "--explain")
    result = run("choose", BY_SEX, BY_RACE, "adult.toml", "--analyst", "ann", *options)
    assert "if 25% of its groups have a ratio of 9, 2 standard deviations clear of it" in result.stdout
    assert "stop" not in result.stdout


def test_choose_without_analyses_is_wrong_usage(run: Run) -> None:
    result = run("choose", "adult.toml")
    assert result.returncode == 2
    assert "SQL is missing" in result.stderr
