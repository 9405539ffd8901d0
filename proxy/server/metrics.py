"""Counters and latencies in Prometheus' text format. Nothing in them depends on protected data outside of a charge."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping

BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

HELP = {
    "noisegate_connections": ("gauge", "Open connections that are logged in."),
    "noisegate_connections_total": ("counter", "Connections since the start."),
    "noisegate_logins_total": ("counter", "Logins, by their result."),
    "noisegate_queries_total": ("counter", "Statements that ended well, by analyst and by who answered them."),
    "noisegate_refusals_total": ("counter", "Statements that were refused or failed, by analyst and SQLSTATE."),
    "noisegate_charges_total": ("counter", "Answers that were charged for, by analyst."),
    "noisegate_charged_rho_total": ("counter", "What they were charged in rho, on the dearest cell of each."),
    "noisegate_statement_seconds": ("histogram", "Time from a statement's arrival to its last byte."),
    "noisegate_budget_rho": ("gauge", "The budget of a population, in rho."),
    "noisegate_budget_spent_rho": ("gauge", "What is spent of it."),
    "noisegate_account_spent_rho": ("gauge", "What an analyst's questions have spent."),
    "noisegate_protocol_violations_total": ("counter", "Connections closed for what they sent."),
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counts; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: defaultdict[tuple[str, Labels], float] = defaultdict(float)
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def add(self, name: str, amount: float = 1, /, **labels: str) -> None:
        with self._lock:
            self._values[name, tuple(sorted(labels.items()))] += amount

    def took(self, seconds: float) -> None:
        """Count the duration of a statement."""
        place = next((i for i, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))
        with self._lock:
            self._buckets[place] += 1
            self._seconds += seconds

    def render(self, gauges: Mapping[tuple[str, Labels], float]) -> str:
        """Return everything, with gauges that are only known at this moment."""
        with self._lock:
            values = {**self._values, **gauges}
            buckets, seconds = list(self._buckets), self._seconds
        lines = []
        for name, (kind, about) in HELP.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            if kind == "histogram":
                lines += _histogram(name, buckets, seconds)
            lines += [
                f"{name}{_braces(labels)} {value:g}"
                for (found, labels), value in sorted(values.items())
                if found == name
            ]
        return "\n".join(lines) + "\n"


def _histogram(name: str, buckets: list[int], seconds: float) -> Iterable[str]:
    total = 0
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), buckets, strict=True):
        total += count
        yield f'{name}_bucket{{le="{bound}"}} {total}'
    yield f"{name}_sum {seconds:g}"
    yield f"{name}_count {total}"


def _braces(labels: Labels) -> str:
    """Return labels as Prometheus writes them.

    >>> _braces((("analyst", 'the "a"'),))
    '{analyst="the \\\\"a\\\\""}'
    """
    if not labels:
        return ""
    parts = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return "{" + ",".join(parts) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
