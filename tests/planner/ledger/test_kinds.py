"""The kinds of releases: what ledgers hold of them never changes."""

from __future__ import annotations

from planner.ledger.kinds import GAUSSIAN_KINDS, KINDS, Kind


def test_ledgers_of_any_age_hold_these_texts() -> None:
    assert [kind.value for kind in Kind] == [
        "linear", "marginals", "distinct", "quantile", "decision", "settled", "choice", "round", "share",
    ]  # fmt: skip


def test_every_kind_has_an_entry_and_what_reads_rows_pays_for_it() -> None:
    assert list(KINDS) == list(Kind)
    assert [kind for kind, traits in KINDS.items() if traits.reads and not traits.pays] == []


def test_the_exact_curve_is_left_to_gaussian_noise() -> None:
    assert frozenset({"quantile", "decision"}) == {kind.value for kind in Kind} - GAUSSIAN_KINDS
