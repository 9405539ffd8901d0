"""A connection to a copy of the bundled table, and a cursor of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import noisegate


@pytest.fixture(scope="module")
def connection(shared_adult_policy: Path) -> Iterator[noisegate.Connection]:
    with noisegate.connect(shared_adult_policy, analyst="ann") as connection:
        yield connection


@pytest.fixture
def cursor(connection: noisegate.Connection) -> Iterator[noisegate.Cursor]:
    with connection.cursor() as cursor:
        yield cursor
