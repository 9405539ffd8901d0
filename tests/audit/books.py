"""The public policy and the stored releases, read with the standard library alone.

Nothing of the project is imported here (a test sees to it): a ledger is a SQLite file, a release compressed JSON, a
cost a line of JSON before 64-bit integers.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import sqlite3
import struct
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

Record = tuple[int, ...]
"""The number of a cell of every column, in the order of the policy; NULL is the last."""

UNIT = Fraction(1, 2**50)
PARTS = 2**20


@dataclass(frozen=True)
class Column:
    """A column's public domain: so many values, and one more cell if it may be NULL."""

    values: tuple[Any, ...]
    nullable: bool

    @property
    def cells(self) -> int:
        return len(self.values) + self.nullable

    def value(self, index: int) -> Any:
        return self.values[index] if index < len(self.values) else None


@dataclass(frozen=True, eq=False)
class Table:
    """A protected table: whose data it is, how many rows a unit has, and what a row can be."""

    name: str
    population: str
    rows_per_unit: int
    columns: Mapping[str, Column]

    @cached_property
    def places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.columns)}

    @cached_property
    def records(self) -> list[Record]:
        """Every row that is possible."""
        return list(itertools.product(*(range(column.cells) for column in self.columns.values())))

    def units(self) -> Iterator[tuple[Record, ...]]:
        """Every unit that is possible: up to k rows, in any cells."""
        for count in range(1, self.rows_per_unit + 1):
            yield from itertools.combinations_with_replacement(self.records, count)

    def index(self, record: Record, column: str) -> int:
        return record[self.places[column]]

    def is_null(self, record: Record, column: str) -> bool:
        return self.index(record, column) == len(self.columns[column].values)


def tables(policy: Path) -> dict[str, Table]:
    """Return the protected tables of a policy."""
    found = tomllib.loads(policy.read_text(encoding="utf-8"))["tables"]
    return {
        name: Table(
            name,
            table.get("population", "default"),
            table.get("max_rows_per_unit", 1),
            {column: _column(text) for column, text in table["columns"].items()},
        )
        for name, table in found.items()
        if "synthetic_of" not in table and not table.get("public")
    }


def _column(text: Mapping[str, Any]) -> Column:
    values = text.get("values")
    if values is None:
        values = range(text["min"], text["max"] + 1, text.get("step", 1))
    return Column(tuple(values), text.get("nullable", False))


@dataclass(frozen=True, eq=False)
class Booked:
    """A stored cost: a function of the cells of some columns, in units of 2^-50."""

    scope: tuple[str, ...]
    partitions: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    values: tuple[int, ...]

    @classmethod
    def read(cls, stored: bytes) -> Booked:
        head, _, body = zlib.decompress(stored).partition(b"\n")
        fields = json.loads(head)
        numbers = list(struct.unpack(f"<{len(body) // 8}q", body))
        partitions = []
        for count in fields["runs"]:
            lengths, atoms, numbers = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
            pairs = zip(lengths, atoms, strict=True)
            partitions.append(tuple(atom for length, atom in pairs for _ in range(length)))
        return cls(tuple(fields["scope"]), tuple(partitions), tuple(fields["shape"]), tuple(numbers))

    @property
    def highest(self) -> Fraction:
        return max(self.values) * UNIT

    def at(self, table: Table, record: Record) -> Fraction:
        """Return what a record is charged; between the two ends of a measured column, their mean by its nearness."""
        total = Fraction(0)
        for choice in itertools.product(*(self._atoms(place, table, record) for place in range(len(self.scope)))):
            weight, index = Fraction(1), 0
            for (atom, part), size in zip(choice, self.shape, strict=True):
                weight, index = weight * part, index * size + atom
            total += weight * self.values[index]
        return total * UNIT

    def _atoms(self, place: int, table: Table, record: Record) -> list[tuple[int, Fraction]]:
        """Return the atoms of one column that a record is charged for, and each one's part."""
        key, partition = self.scope[place], self.partitions[place]
        name = key.split("#")[0]
        index, size = table.index(record, name), len(table.columns[name].values)
        if key.endswith("/ends"):
            high = Fraction(index, max(size - 1, 1)) if index < size else Fraction(0)
            return [(partition[0], 1 - high), (partition[1], high)]
        return [(partition[int(index == size) if key.endswith("?") else index], Fraction(1))]


@dataclass(frozen=True, eq=False)
class Entry:
    """A stored release, with the body decoded and the payers' parts: nobody's, if it is borne by shares beside it."""

    id: int
    population: str
    table: str
    version: int
    payers: Mapping[str, Fraction]
    sql: str
    kind: str
    body: Mapping[str, Any]
    booked: Booked


def entries(ledger: Path) -> list[Entry]:
    """Return all releases of a ledger."""
    query = 'SELECT id, population, "table", version, analyst, sql, kind, body, cost FROM releases ORDER BY id'
    connection = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
    try:
        rows = connection.execute(query).fetchall()
    finally:
        connection.close()
    return [Entry(*row[:4], _payers(row[4]), *row[5:7], _body(row[7]), Booked.read(row[8])) for row in rows]


def _body(stored: bytes) -> dict[str, Any]:
    return json.loads(zlib.decompress(stored)) if stored else {}


def _payers(text: str) -> dict[str, Fraction]:
    if not text.startswith("{"):
        return {text: Fraction(1)}
    return {name: Fraction(part, PARTS) for name, part in json.loads(text).items() if part is not None}


def integers(text: str) -> list[int]:
    """Return an array of 32-bit integers."""
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}i", data))


@dataclass(frozen=True, eq=False)
class Axes:
    """The columns that a release speaks of, each cut into atoms; cells are numbered with the last one fastest."""

    columns: tuple[str, ...]
    presence: tuple[bool, ...]
    atoms: tuple[tuple[int, ...], ...]

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Axes:
        atoms = []
        for axis in body["axes"]:
            starts = [start for start, _ in axis["runs"]] + [axis["cells"]]
            lengths = [after - before for before, after in itertools.pairwise(starts)]
            pairs = zip(axis["runs"], lengths, strict=True)
            atoms.append(tuple(atom for (_, atom), length in pairs for _ in range(length)))
        return cls(
            tuple(axis["column"] for axis in body["axes"]),
            tuple(axis["presence"] for axis in body["axes"]),
            tuple(atoms),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(max(atoms) + 1 for atoms in self.atoms)

    def of(self, table: Table, record: Record) -> tuple[int, ...]:
        """Return the atom of every axis that a record lies in."""
        found = []
        for column, presence, atoms in zip(self.columns, self.presence, self.atoms, strict=True):
            found.append(atoms[int(table.is_null(record, column)) if presence else table.index(record, column)])
        return tuple(found)

    def cell(self, table: Table, record: Record) -> int:
        number = 0
        for atom, size in zip(self.of(table, record), self.shape, strict=True):
            number = number * size + atom
        return number


def least_multiple(scale: int, square: int) -> int:
    """Return ceil(scale / sqrt(square)), exactly."""
    found = math.isqrt(scale * scale // square)
    while found * found * square < scale * scale:
        found += 1
    return found
