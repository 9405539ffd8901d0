"""What a gate keeps of its history never makes an answer old: a gate that was just opened says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.gate import Gate
from planner.history import recall
from planner.session import Session

SHOWN = (
    "SELECT count(*) FROM adult",
    "SELECT education, count(*) FROM adult GROUP BY education ORDER BY education",
    "SELECT sex, avg(hours) FROM adult GROUP BY sex ORDER BY sex",
)
RELEASED = (
    "SELECT race, count(*) FROM adult GROUP BY race",
    "SELECT occupation, count(*) FROM adult GROUP BY occupation",
    "SELECT education, sex, count(*) FROM adult GROUP BY education, sex",
    "SELECT count(*) FROM adult WHERE age > 40 AND hours > 30",
    "SELECT workclass, count(*) FROM adult WHERE age > 25 GROUP BY workclass",
    "SELECT education, count(*) FROM adult WHERE hours > 50 GROUP BY education",
    "SELECT avg(hours) FROM adult WHERE age < 30",
    "SELECT marital_status, count(*) FROM adult WHERE age < 60 GROUP BY marital_status",
)
"""Together they tell apart far more cells than fit onto one chart."""


@pytest.fixture
def rich_policy(adult_policy: Path) -> Path:
    text = adult_policy.read_text(encoding="utf-8").replace("epsilon = 2.0", "epsilon = 1000.0")
    adult_policy.write_text(text, encoding="utf-8")
    return adult_policy


def shown(session: Session) -> list[object]:
    """Return what is free by now, and what is said of how it is known."""
    found = [session.execute(sql) for sql in SHOWN]
    assert not any(each.cost for each in found)
    return [(each.rows, each.intervals, each.plan and each.plan.releases) for each in found]


@pytest.mark.parametrize("most", [recall.HISTORY_BYTES, 1])
def test_after_every_release_a_gate_that_kept_much_answers_as_one_that_kept_nothing(
    rich_policy: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.shared.HISTORY_BYTES", most)
    old = Gate.open(rich_policy)
    session = old.session("ann")
    for sql in SHOWN:
        session.execute(sql)
    told = [shown(session)]
    for sql in RELEASED if most > 1 else RELEASED[:3]:
        session.execute(sql)
        new = Gate.open(rich_policy)
        told.append(shown(session))
        assert told[-1] == shown(new.session("bob"))
        new.close()
    old.close()
    assert most == 1 or told[-1] != told[0]  # what was released did tell something about what is shown


def test_a_thread_that_read_less_of_the_ledger_answers_from_what_it_read(
    rich_policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate.open(rich_policy)
    session = gate.session("ann")
    for sql in (*SHOWN, *RELEASED):
        session.execute(sql)
    before, history = shown(session), gate.histories["adult"]
    found = history.found(1)
    session.execute("SET noisegate.error = 10")
    assert session.execute("SELECT count(*) FROM adult WHERE education = 'Masters' AND sex = 'Male'").cost
    assert len(history.read(gate.ledger.snapshot()).found(1).pools) > len(
        found.pools
    )  # on charts that are the same as before
    session.execute("RESET noisegate.error")
    after = shown(session)
    assert after != before
    with monkeypatch.context() as patch:
        patch.setattr(history, "found", lambda _: found)
        assert shown(session) == before
    assert shown(session) == after
    gate.close()
