"""How releases are stored: compressed JSON, readable without this program."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.least.marginals import Rows
from planner.basics.cache import BoundedCache
from planner.cells.workspace import Axis, Feature, Ints, Workspace
from planner.ledger.accounts import Stored
from planner.policy.domain import Domain
from planner.policy.table import Table
from planner.questions.linear import Measurement, Question, rounded_product
from planner.questions.noise import Noise


def encode(body: Mapping[str, Any]) -> bytes:
    """Return the stored form of a release: compressed JSON, readable without this program."""
    return zlib.compress(json.dumps(body, separators=(",", ":")).encode())


_DECODED = BoundedCache[dict[str, Any]](16 * 2**20)
"""Releases that were read, by their stored form."""

SPREAD = 8
"""About how many bytes of memory a character of JSON takes once it is read."""


def decode(body: bytes) -> dict[str, Any]:
    """Return what `encode` was given; shared between callers, so not to be changed."""
    found = _DECODED.get(body)
    if found is None:
        text = zlib.decompress(body)
        found = json.loads(text)
        _DECODED.put(body, found, SPREAD * len(text))
    return found


def linear(question: Question, found: Measurement, y: list[list[int]], *, also: Sequence[str] = ()) -> bytes:
    """Return the stored form of a linear release: y = K E x + noise of deviation 2^bits, for every group.

    `also` are digests of questions that it was released for. What it speaks of comes before E: `form` counts on that.
    """
    columns = question.workspace.table.columns
    return encode(
        {
            **({"for": list(also)} if also else {}),
            **described(question.workspace),
            "features": question.features,
            "grids": [_fingerprint(columns[column].domain) for column, _ in question.features],
            "cell": packed(question.cell),
            "group": packed(question.group),
            "pattern": packed(question.pattern),
            "E": question.E.tolist(),
            "units": question.units.tolist(),
            "K": found.K.tolist(),
            "bits": found.bits,
            "y": y,
        }
    )


def read(release: Stored, table: Table) -> tuple[Question, Measurement, NDArray[np.float64]] | None:
    """Return what a linear release measured, and what it told in units of its noise; None if domains changed since."""
    body = decode(release.body)
    found = _about(body, table)
    if found is None:
        return None
    workspace, features, cell, group, pattern = found
    low, high = workspace.ranges(features, cell)
    E = np.array(body["E"], dtype=object).reshape(len(body["units"]), -1, 1 + len(features))
    question = Question(
        workspace=workspace,
        features=features,
        cell=cell,
        group=group,
        groups=len(body["y"]),
        pattern=pattern,
        low=low,
        high=high,
        E=E,
        units=np.array(body["units"]),
        roles=("row",) * len(E),
    )
    return question, measurement(release), values(release)


About = tuple[Workspace, tuple[Feature, ...], Ints, Ints, Ints]
"""What a linear release speaks of: its workspace and features, and the cell, group and pattern of each place."""


def about(release: Stored, table: Table) -> About | None:
    """Return what a linear release speaks of, and nothing of the rest, most of its text; None if domains changed."""
    text = zlib.decompress(release.body)
    start, end = _extent(text)
    return _about(json.loads(b"{" + text[start:end] + b"}"), table)


def _about(body: Mapping[str, Any], table: Table) -> About | None:
    axes = [_axis(found, table) for found in body["axes"]]
    features = tuple((column, power) for column, power in body["features"])
    grids = [_fingerprint(table.columns[column].domain) if column in table.columns else None for column, _ in features]
    if None in axes or grids != body["grids"]:
        return None
    workspace = Workspace(table, tuple(axis for axis in axes if axis is not None))
    cell, group, pattern = (unpacked(body[name]) for name in ("cell", "group", "pattern"))
    return workspace, features, cell, group, pattern


def _extent(text: bytes) -> tuple[int, int]:
    """Return where in the text of a linear release stands what it speaks of."""
    return text.index(b'"axes":'), text.index(b',"E":')  # in no string could a quote stand so


def form(release: Stored) -> tuple[str, Mapping[str, Any]]:
    """Return a hash of what a linear release speaks of, and the rest of it: its rows, its noise and what they told.

    What it speaks of, its cells, groups and patterns, comes first in the text and is not decoded.
    """
    text = zlib.decompress(release.body)
    start, end = _extent(text)
    body = json.loads(text[:start] + text[end + 1 :])
    return hashlib.sha256(text[start:end] + b"%d" % len(body["y"])).hexdigest(), body


def rows(body: Mapping[str, Any], features: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows of a linear release on its patterns, (r, S, Q), and what they told, in units of its noise."""
    K, E = (_integers(body[name]) for name in ("K", "E"))
    found = rounded_product(K.reshape(len(K), -1), E.reshape(len(body["units"]), -1, 1 + features))
    y = np.array(body["y"], dtype=float).reshape(len(body["y"]), -1)
    return np.ldexp(found, -body["bits"]), np.ldexp(y, -body["bits"])


def _integers(numbers: list[Any]) -> NDArray[Any]:
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:
        return np.array(numbers, dtype=object)


def questions(body: Mapping[str, Any]) -> frozenset[str]:
    """Return the digests of the questions that a linear release names as those it was made for."""
    return frozenset(body.get("for", ()))


def marginals(workspace: Workspace, made: Sequence[Rows], y: Sequence[Sequence[int]]) -> bytes:
    """Return the stored form of marginals: y = k (r x) + noise of deviation 2^bits, k = ceil(scale / |r|).

    For each part, in order, the rows r are the Helmert rows of its axes (mechanisms.least.marginals), the last fastest.
    """
    parts = [
        {"part": list(rows.A), "scale": rows.scale, "bits": rows.bits, "y": list(told)}
        for rows, told in zip(made, y, strict=True)
    ]
    return encode({**described(workspace), "parts": parts})


def read_marginals(release: Stored, table: Table) -> tuple[Workspace, list[tuple[Rows, list[int]]]] | None:
    """Return the workspace, the rows and what they told; None if domains changed since."""
    body = decode(release.body)
    axes = [_axis(found, table) for found in body["axes"]]
    if None in axes:
        return None
    workspace = Workspace(table, tuple(axis for axis in axes if axis is not None))
    return workspace, [(Rows(tuple(p["part"]), p["scale"], p["bits"]), p["y"]) for p in body["parts"]]


def _axis(found: Mapping[str, Any], table: Table) -> Axis | None:
    column = table.columns.get(found["column"])
    if column is None or column.domain is None or column.domain.fingerprint != found["domain"]:
        return None
    starts, atoms = (np.array(part, dtype=np.int64) for part in zip(*found["runs"], strict=True))
    spread = np.repeat(atoms, np.diff([*starts, found["cells"]]))
    first = np.unique(spread, return_index=True)[1]
    return Axis(column.name, column.domain, spread, first.astype(np.int64), found["presence"])


def _fingerprint(domain: Domain | None) -> str | None:
    return domain.fingerprint if domain is not None else None


def measurement(release: Stored) -> Measurement:
    body = decode(release.body)
    return Measurement(np.array(body["K"], dtype=object).reshape(len(body["K"]), -1), body["bits"])


def values(release: Stored) -> NDArray[np.float64]:
    """Return what a linear release told, in units of its noise: shape (groups, r)."""
    body = decode(release.body)
    rows = [[value / (1 << body["bits"]) for value in row] for row in body["y"]]
    return np.array(rows, dtype=float).reshape(len(rows), -1)


def noise(release: Stored) -> Noise:
    body = decode(release.body)
    return Noise(body["scale"], body["bits"])


def draws(release: Stored) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(epsilon), Fraction(offset)) for epsilon, offset in decode(release.body)["draws"]]


def packed(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype="<i4").tobytes()).decode()


def unpacked(text: str) -> Ints:
    return np.frombuffer(base64.b64decode(text), dtype="<i4").astype(np.int64)


def placed(workspace: Workspace, **places: Ints) -> dict[str, Any]:
    """Return a workspace, and for each of its places that is asked about the cell, the group and whatever else."""
    return {**described(workspace), **{name: packed(array) for name, array in places.items()}}


def described(workspace: Workspace) -> dict[str, Any]:
    """Return the axes of a workspace: each column, its domain's fingerprint, and its atoms as runs."""
    axes = []
    for axis in workspace.axes:
        starts = np.flatnonzero(np.diff(axis.atoms, prepend=-1))
        runs = [[int(start), int(axis.atoms[start])] for start in starts]
        axes.append(
            {
                "column": axis.column,
                "domain": axis.domain.fingerprint,
                "cells": len(axis.atoms),
                "runs": runs,
                "presence": axis.presence,
            }
        )
    return {"axes": axes}


def short(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:24]
