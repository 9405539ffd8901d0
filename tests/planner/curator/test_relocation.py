"""A ledger that is moved brings all it holds, and is never in two places, whatever is killed whenever."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from planner.basics.errors import BudgetExceeded, LedgerFailed
from planner.calls.rounds import roster
from planner.calls.rounds.roster import Accuracy
from planner.curator import relocation
from planner.curator.relocation import relocate
from planner.ledger.accounts import Caps
from planner.ledger.ledger import Ledger
from planner.ledger.stores import LedgerMoved, Store
from planner.policy.ledger import Remote
from tests.planner.ledger.test_ledger import ROOT, filled, pay
from tests.planner.ledger_worker import draft, remote, written
from tests.proxy.postgres import Postgres, running

Place = Path | Remote
CAPS = Caps(1000, 500)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running(durable=True) as found:
        yield found


@pytest.fixture(params=["to PostgreSQL", "from PostgreSQL"])
def places(request: pytest.FixtureRequest, server: Postgres, tmp_path: Path) -> tuple[Place, Place]:
    file, there = tmp_path / "old.sqlite", remote(server, tmp_path)
    return (file, there) if request.param == "to PostgreSQL" else (there, file)


def used(place: Place) -> None:
    """Make a ledger with something in each of its tables."""
    filled(place)
    with Ledger.open(place) as ledger:
        ledger.claim("people", "first data")
        ledger.refresh("people", "second data")
        pay(ledger, replace(draft("of bob"), analyst="bob", version=2))
        ledger.move(Fraction(1, 8), source="alice", target="bob", caps=CAPS)
        for number in range(3):
            roster.enlist(ledger, "q3", "alice", f"SELECT {number}", Accuracy(10.0, 0.95))
        roster.withdraw(ledger, "q3", "alice", 2)


def contents(place: Place) -> object:
    with Ledger.open(place) as ledger:
        return (
            ledger.dump(),
            ledger.fingerprint("people"),
            ledger.moved(),
            roster.entries(ledger),
            {population: ledger.spent(population) for population in ledger.populations()},
            ledger.account_spent("everyone", "alice"),
        )


def is_open(place: Place) -> bool:
    try:
        Ledger.open(place).close()
    except LedgerMoved:
        return False
    return True


def test_all_of_a_ledger_is_moved_and_the_old_place_is_closed(places: tuple[Place, Place]) -> None:
    old, new = places
    used(old)
    before = contents(old)
    assert relocate(old, new) == 6
    assert contents(new) == before
    name = new.name
    with pytest.raises(LedgerFailed, match=f"was moved to {name}"):
        Ledger.open(old)
    with Ledger.open(new) as ledger:
        assert pay(ledger, replace(draft("next"), version=2)).id == 7
        assert roster.enlist(ledger, "q3", "bob", "SELECT 9", Accuracy(5.0, 0.95)).number == 4
        ledger.move(Fraction(1, 8), source="alice", target="bob", caps=CAPS)
        assert ledger.moved() == {"alice": Fraction(-1, 4), "bob": Fraction(1, 4)}


def test_a_ledger_that_went_there_comes_back_to_another_file(server: Postgres, tmp_path: Path) -> None:
    first, there, second = tmp_path / "old.sqlite", remote(server, tmp_path), tmp_path / "new.sqlite"
    used(first)
    before = contents(first)
    relocate(first, there)
    with pytest.raises(LedgerFailed, match=r"at old\.sqlite already, which has been used"):
        relocate(there, first)
    relocate(there, second)
    assert contents(second) == before
    assert [is_open(place) for place in (first, there, second)] == [False, False, True]


def test_a_gate_that_is_running_on_the_old_place_charges_nothing_more(places: tuple[Place, Place]) -> None:
    old, new = places
    used(old)
    with Ledger.open(old) as running_gate:
        relocate(old, new)
        with pytest.raises(LedgerMoved, match="was moved to"):
            pay(running_gate, replace(draft("late"), version=2))
        with pytest.raises(LedgerMoved, match="was moved to"):
            running_gate.spent("everyone")
    with Ledger.open(new) as ledger:
        assert len(ledger.releases()) == 6


def test_moved_twice_is_moved_once(places: tuple[Place, Place]) -> None:
    old, new = places
    used(old)
    relocate(old, new)
    with Ledger.open(new) as ledger:
        pay(ledger, replace(draft("since"), version=2))
    assert relocate(old, new) == 7


def test_a_ledger_is_moved_to_one_place_only(places: tuple[Place, Place], tmp_path: Path) -> None:
    old, new = places
    used(old)
    relocate(old, new)
    with pytest.raises(LedgerFailed, match=r"was moved already, and not to another\.sqlite"):
        relocate(old, tmp_path / "another.sqlite")
    assert not (tmp_path / "another.sqlite").exists()
    assert is_open(new)


def test_a_place_of_the_same_name_is_not_taken_for_the_one_that_was_meant(tmp_path: Path) -> None:
    old, new, other = tmp_path / "old.sqlite", tmp_path / "new.sqlite", tmp_path / "elsewhere" / "new.sqlite"
    other.parent.mkdir()
    used(old)
    relocate(old, new)
    with pytest.raises(LedgerFailed, match=r"the ledger new\.sqlite is missing"):
        relocate(old, other)
    assert not other.exists()
    with Ledger.open(new) as ledger:
        identity, *_ = ledger.dump()
    Ledger.open(other, identity=identity).close()
    with pytest.raises(LedgerFailed, match="was moved already, and not to"):
        relocate(old, other)


def test_a_ledger_that_is_named_in_two_ways_is_not_moved_onto_itself(tmp_path: Path) -> None:
    old, link = tmp_path / "old.sqlite", tmp_path / "link.sqlite"
    Ledger.open(old).close()
    link.symlink_to(old)
    for name in (link, tmp_path / ".." / tmp_path.name / old.name):
        with pytest.raises(LedgerFailed, match="is there already"):
            relocate(old, name)
        assert is_open(old)
    assert relocate(old, tmp_path / "new.sqlite") == 0
    assert not is_open(old)


@pytest.mark.parametrize("step", ["_closed", "_copied"])
def test_of_two_moves_at_once_one_opens_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The other move is faster, before the target is closed or after that; the copy itself is made under locks."""
    old, new, late = tmp_path / "old.sqlite", tmp_path / "new.sqlite", tmp_path / "late.sqlite"
    used(old)
    plain = relocation._closed

    def raced(source: Store, target: Store) -> str | None:
        monkeypatch.setattr(relocation, "_closed", plain)
        if step == "_closed":
            relocate(old, new)
            return plain(source, target)
        token = plain(source, target)
        relocate(old, new)
        return token

    monkeypatch.setattr(relocation, "_closed", raced)
    with pytest.raises(LedgerFailed, match="was moved already, and not to"):
        relocate(old, late)
    assert [is_open(place) for place in (old, new, late)] == [False, True, False]
    assert relocate(old, new) == relocate(old, new)  # and that it is there is still known


def test_a_place_with_a_ledger_is_refused_and_nothing_is_closed(places: tuple[Place, Place]) -> None:
    old, new = places
    used(old)
    filled(new)
    with pytest.raises(LedgerFailed, match=r"belongs to another ledger|there is another ledger"):
        relocate(old, new)
    assert is_open(old)
    assert is_open(new)
    with pytest.raises(LedgerFailed, match=r"is there already|another ledger"):
        relocate(old, old if isinstance(old, Path) else new)


def test_an_edited_ledger_is_not_moved(tmp_path: Path) -> None:

    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    used(old)
    with sqlite3.connect(old) as connection:
        connection.execute("DROP TRIGGER releases_are_never_removed")
        connection.execute("DELETE FROM releases WHERE id = 6")
    connection.close()
    with pytest.raises(LedgerFailed, match="does not end with release 5"):
        relocate(old, new)
    assert not new.exists()


@pytest.mark.parametrize("back", [0, 1], ids=["to PostgreSQL", "from PostgreSQL"])
def test_killed_after_any_transaction_it_is_in_one_place_or_none_and_goes_on(
    server: Postgres, tmp_path: Path, back: int
) -> None:
    ends = set()
    for commits in range(1, 12):
        folder = tmp_path / str(commits)
        folder.mkdir()
        there = remote(server, folder)
        file = folder / "old.sqlite"
        old, new = (there, file) if back else (file, there)
        used(old)
        before = contents(old)
        command = [sys.executable, "-m", "tests.planner.ledger_worker", "relocated", written(there), str(back)]
        done = subprocess.run([*command, str(commits)], cwd=ROOT, capture_output=True, check=False)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        closed = not is_open(old)
        ends.add((closed, closed and is_open(new)))
        assert relocate(old, new) == 6
        assert contents(new) == before
        assert not is_open(old)
        with Ledger.open(new) as ledger, pytest.raises(BudgetExceeded):
            pay(ledger, replace(draft("one more"), version=2), cap=ledger.spent("everyone"))
    else:
        pytest.fail("it was killed every time")
    assert ends == {(False, False), (True, False), (True, True)}  # before, between, and after the two commits
