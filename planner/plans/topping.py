"""Topping up: what each of very many groups still lacks, worked out and released group by group."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mechanisms.least import separate
from planner.cells.workspace import Floats, Ints
from planner.questions.linear import Measurement, Question, exact_product
from planner.questions.noise import MAX_BITS, PRECISION_BITS

FAINT = 1e-6
"""Coefficients that are so much smaller than in other groups need not be precise."""

SPARE = 1e-6
"""By how much more than is wanted is released, for rounding."""


@dataclass(frozen=True, eq=False)
class TopUp:
    """What is to be released: a question of its own, its measurement, and the variances (groups, F) that follow."""

    made: Question
    measurement: Measurement
    reached: Floats


def topped_up(
    question: Question, fresh: Measurement, covariances: Floats, targets: Floats, *, alike: bool = False
) -> TopUp | None:
    """Return what to release of each group for every answer to have its target variance; None if that is nothing.

    `fresh` would tell enough if nothing was known; `covariances` (groups, F, F) are of what is known, nan for the rest.
    No group is told more than it lacks of that, so none is charged much more than `fresh` charges, and most are less.
    With `alike`, all are told what the one lacks of which least is known.
    """
    scale = np.sqrt(targets)
    if alike and question.groups > 1:
        covariances = _worst(covariances)
    basis = _basis(question, scale)
    unit = np.ldexp(fresh.K.astype(float), -fresh.bits) / question.units * scale @ basis
    missing = np.isnan(np.einsum("gff->gf", covariances))
    known = _known(np.nan_to_num(covariances) / np.outer(scale, scale), missing, basis)
    before = separate.variances(known, basis)
    is_open = before.max(axis=1, initial=0.0) > 1 + 1e-9
    rows = separate.beyond(unit.T @ unit * (1 + SPARE), known) * is_open[:, None, None]
    K, bits = _whole(rows @ basis.T * (question.units / scale))
    if not K.any():
        return None
    new = np.ldexp(K.astype(float), -bits) / question.units * scale @ basis
    reached = separate.variances(known + np.einsum("grm,grn->gmn", new, new), basis) * targets
    if alike:
        every = np.broadcast_to(reached, (question.groups, len(targets)))
        return TopUp(question, Measurement(K[0].astype(object), bits), every)
    return TopUp(_made(question, K), Measurement(np.array(np.eye(K.shape[1], dtype=int), dtype=object), bits), reached)


def _worst(covariances: Floats) -> Floats:
    """Return a covariance (1, F, F) that is at least that of any group: a matrix is at most F times its diagonal."""
    most = np.einsum("gff->gf", covariances).max(axis=0)
    return np.where(np.isnan(most), np.nan, np.diag(np.nan_to_num(most) * len(most)))[None]


def _basis(question: Question, scale: Floats) -> Floats:
    """Return orthonormal columns (F, n) that span what the functionals, in units of their targets, can be."""
    V = question.points[0] * (question.units / scale)[:, None]
    lengths = np.linalg.norm(V, axis=1, keepdims=True)
    U, values, _ = np.linalg.svd(V / max(float(lengths.max(initial=0.0)), 1e-300), full_matrices=False)
    return np.asarray(U[:, values > 1e-9 * values.max(initial=0.0)])


def _known(covariances: Floats, missing: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], basis: Floats) -> Floats:
    """Return what is known as information on the basis, (groups, n, n); what is missing has a variance beyond all."""
    filled = separate.filled(covariances, missing)
    return separate.information(np.einsum("fm,gfh,hn->gmn", basis, filled, basis))


def _whole(rows: Floats) -> tuple[Ints, int]:
    """Return rows (groups, r, F) in whole numbers, away from zero, and the bits of their grid; no row is all zeros."""
    rows = rows[:, np.abs(rows).max(axis=(0, 2), initial=0.0) > 0]
    largest = np.abs(rows).max(axis=1, initial=0.0)
    largest = np.where(largest > FAINT * largest.max(axis=0, initial=0.0), largest, 0.0)
    if not largest.any():
        return np.zeros((len(rows), 0, rows.shape[2]), dtype=np.int64), 0
    bits = min(max(math.ceil(PRECISION_BITS - math.log2(float(largest[largest > 0].min()))), 0), MAX_BITS)
    scaled = np.ldexp(rows, bits)
    return (np.sign(scaled) * np.ceil(np.abs(scaled) * (1 - 1e-12))).astype(np.int64), bits


def _made(question: Question, K: Ints) -> Question:
    """Return the question whose functionals are K_g E in every group g that has any; others are left out."""
    used = np.abs(K).max(axis=(1, 2), initial=0) > 0
    flat, kind = np.unique(K[used].reshape(int(used.sum()), -1), axis=0, return_inverse=True)
    F, S, Q = question.E.shape
    products = exact_product(flat.reshape(-1, F).astype(object), question.E.reshape(F, S * Q))
    number, here = np.cumsum(used) - 1, used[question.group]
    group = number[question.group[here]]
    pairs, pattern = np.unique(kind.ravel()[group] * S + question.pattern[here], return_inverse=True)
    E = products.reshape(len(flat), K.shape[1], S, Q)[pairs // S, :, pairs % S].transpose(1, 0, 2)
    return Question(
        workspace=question.workspace,
        features=question.features,
        cell=question.cell[here],
        group=group,
        groups=int(used.sum()),
        pattern=pattern.ravel().astype(np.int64),
        low=question.low[here],
        high=question.high[here],
        E=E,
        units=np.ones(len(E)),
        roles=("row",) * len(E),
    )
