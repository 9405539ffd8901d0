"""From what a policy says about a column to its Domain, with every mistake noted.

A column is a list (`values`), or a range on a grid (`type`, `min`, `max`, `step`). What the curator leaves
out is a mistake: nothing here ever looks at the data.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal

from planner.basics.limits import MAX_GRID
from planner.policy.domain import (
    DUCKDB_TYPES,
    DURATIONS,
    Bound,
    Domain,
    Scalar,
    Step,
    duration,
    grid_size,
    show_duration,
    whole_steps,
)
from planner.policy.toml import Section, basic_string, kind_of

DOMAIN_KEYS = ("type", "values", "other", "min", "max", "step", "nullable")
BOUND_KEYS = ("min", "max", "step")

PUBLIC_BOUND = "a bound must be public knowledge, not read off the data"
PUBLIC_VALUES = "the list of values must be public knowledge, not read off the data"

BIGINT_MIN, BIGINT_MAX = -(2**63), 2**63 - 1

MAX_DAYS = dt.date.max.toordinal()


def read_domain(section: Section, *, optional: bool = False) -> Domain | None:
    """Return the domain that a column declares, or None if it declares none or a mistake was noted.

    Args:
        section: the column's table in the policy.
        optional: whether a column may do without a domain.
    """
    kind = section.choice("type", DUCKDB_TYPES)
    if kind is None and "type" in section:
        return None
    if "values" in section:
        return _read_list(section, kind)
    if "other" in section:
        section.wrong("other is for columns that list their values as strings", "other")
    if kind == "boolean":
        _refuse_bounds(section, "a boolean column has no bounds")
        return Domain(type="boolean", values=(False, True), nullable=section.flag("nullable"))
    if optional and not any(key in section for key in BOUND_KEYS):
        return None
    if kind is None:
        _say_no_type(section)
        return None
    if kind == "text":
        _refuse_bounds(section, "a text column has no bounds")
        section.wrong(f"values are missing; {PUBLIC_VALUES}")
        return None
    return _read_grid(section, kind)


def _say_no_type(section: Section) -> None:
    if any(key in section for key in BOUND_KEYS):
        section.wrong("type is missing: integer, float, date or timestamp")
    else:
        forms = "a type with min and max, or values, or hidden = true"
        section.wrong(f"a domain is missing: {forms}; {PUBLIC_BOUND}")


def _refuse_bounds(section: Section, reason: str) -> None:
    for key in BOUND_KEYS:
        if key in section:
            section.wrong(f"{key} does not belong here: {reason}", key)


def _read_list(section: Section, kind: str | None) -> Domain | None:
    _refuse_bounds(section, "a column lists its values or has bounds, not both")
    nullable = section.flag("nullable")
    found = section.get("values", "an array")
    if found == []:
        section.wrong("values are empty; a column needs at least one", "values")
    if not found:
        return None
    kind = kind or _kind_of_values(section, found)
    if kind is None:
        return None
    values = [_read_value(section, kind, index=index, value=value) for index, value in enumerate(found)]
    good = tuple(value for value in values if value is not None)
    _refuse_duplicates(section, values)
    other = _read_other(section, kind, good)
    return Domain(type=kind, values=good, nullable=nullable, other=other) if len(good) == len(values) else None


def _kind_of_values(section: Section, found: list[object]) -> str | None:
    """Return the one type that all values have; note a mixture, or a type that can't be listed."""
    kinds = {_kind(value) for value in found}
    if len(kinds) > 1:
        section.wrong("values must all have one type: strings, integers, booleans or dates", "values")
        return None
    return kinds.pop()


def _kind(value: object) -> str:
    if isinstance(value, dt.date):
        return "timestamp" if isinstance(value, dt.datetime) else "date"
    kinds = {"a string": "text", "an integer": "integer", "a number": "float", "true or false": "boolean"}
    return kinds.get(kind_of(value), "nothing")


def _read_value(section: Section, kind: str, *, index: int, value: object) -> Scalar | None:
    if kind not in ("text", "integer", "boolean", "date"):
        if index == 0:
            hint = "; a float or timestamp column is declared by type, min, max and step"
            section.wrong(f"values must be strings, integers, booleans or dates{hint}", "values")
        return None
    read = _date(value) if kind == "date" else value
    if read is None or _kind(read) != kind:
        section.wrong(f"values of type {kind} can't hold {_quote(value)}", "values", index)
        return None
    if isinstance(read, int) and not BIGINT_MIN <= read <= BIGINT_MAX:
        section.wrong(f"values can't hold {read}: it does not fit in 64 bits", "values", index)
        return None
    if isinstance(read, str) and "\0" in read:
        section.wrong("values can't hold the character U+0000", "values", index)
        return None
    return read if isinstance(read, str | int | dt.date) else None


def _refuse_duplicates(section: Section, values: list[Scalar | None]) -> None:
    for value, count in Counter(values).items():
        if count > 1 and value is not None:
            last = len(values) - 1 - values[::-1].index(value)
            section.wrong(f"values hold {_quote(value)} {count} times", "values", last)


def _read_other(section: Section, kind: str, values: tuple[Scalar, ...]) -> str | None:
    other = section.text("other")
    if other is None:
        return None
    if kind != "text":
        section.wrong("other is for columns that list their values as strings", "other")
        return None
    if other in values:
        section.wrong(f"other must not be one of the values, got {_quote(other)}", "other")
    return other


def _read_grid(section: Section, kind: str) -> Domain | None:
    missing = [key for key in ("min", "max") if key not in section]
    if missing:
        section.wrong(f"{' and '.join(missing)} {'are' if missing[1:] else 'is'} missing; {PUBLIC_BOUND}")
    low, high = _read_bound(section, kind, "min"), _read_bound(section, kind, "max")
    step = _read_step(section, kind)
    nullable = section.flag("nullable")
    if low is None or high is None or step is None:
        return None
    if not _is_grid(section, low, high, step):
        return None
    return Domain(type=kind, low=low, high=high, step=step, nullable=nullable)


def _is_grid(section: Section, low: Bound, high: Bound, step: Step) -> bool:
    """Return whether the three make a grid; note it if they don't."""
    if low > high:  # type: ignore[operator]  # both were read as the same type
        section.wrong(f"max must not be below min, got min {low} and max {high}", "max")
    elif not whole_steps(low, high, step):
        section.wrong(f"max - min must be a multiple of step, got {low} … {high} by {_written(step)}", "max")
    elif isinstance(low, Decimal) and isinstance(high, Decimal) and _too_fine(step, max(-low, high)):
        section.wrong(f"step {step} is too fine: a double can't tell such steps apart near a bound", "step")
    elif grid_size(low, high, step) > MAX_GRID:
        section.wrong("there are more values between min and max than can be counted; use a coarser step", "step")
    else:
        return True
    return False


def _too_fine(step: Step, largest: Decimal) -> bool:
    return isinstance(step, Decimal) and float(step) < math.ulp(float(largest))


def _read_bound(section: Section, kind: str, key: str) -> Bound | None:
    """Return a bound in the type of its column, or None."""
    if kind == "integer":
        return section.integer(key, least=BIGINT_MIN, most=BIGINT_MAX)
    if kind == "float":
        return section.number(key)
    if key not in section:
        return None
    value = section.entries[key]
    read = _date(value) if kind == "date" else _timestamp(value)
    if read is None:
        example = '"2015-01-31"' if kind == "date" else '"2015-01-31 12:00:00", without a time zone'
        section.wrong(f"{key} must be a {kind} like {example}, got {_quote(value)}", key)
    return read


def _read_step(section: Section, kind: str) -> Step | None:
    if kind == "integer":
        return section.integer("step", least=1, most=BIGINT_MAX) if "step" in section else 1
    if kind == "float":
        return _read_float_step(section)
    if kind == "date":
        return _read_days(section) if "step" in section else 1
    if "step" not in section:
        section.wrong('step is missing; a timestamp is only seen on this grid, for instance step = "1 hour"')
        return None
    return _read_duration(section)


def _read_float_step(section: Section) -> Decimal | None:
    if "step" not in section:
        section.wrong("step is missing; sums are made exactly, on this grid, for instance step = 0.01")
        return None
    step = section.number("step")
    if step is not None and step <= 0:
        section.wrong(f"step must be above 0, got {step}", "step")
        return None
    return step


def _read_days(section: Section) -> int | None:
    """Return a date's step in whole days, from `7` or "7 days" or "1 week"."""
    if kind_of(section.entries["step"]) == "an integer":
        return section.integer("step", least=1, most=MAX_DAYS)
    step = _read_duration(section)
    if step is None:
        return None
    if step % DURATIONS["day"]:
        section.wrong(f"step of a date must be whole days, got {show_duration(step)}", "step")
        return None
    return step.days


def _read_duration(section: Section) -> dt.timedelta | None:
    text = section.text("step")
    if text is None:
        return None
    step = duration(text)
    if step is None:
        section.wrong(f'step must be a duration like "15 minutes" or "1 day", got {_quote(text)}', "step")
    return step


def _date(value: object) -> dt.date | None:
    """Return the date that a TOML date or an ISO text names, or None."""
    if isinstance(value, dt.date):
        return None if isinstance(value, dt.datetime) else value
    try:
        return dt.date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _timestamp(value: object) -> dt.datetime | None:
    """Return the naive timestamp that a TOML date or time or an ISO text names, or None."""
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    try:
        read = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return read if isinstance(read, dt.datetime) and read.tzinfo is None else None


def _written(step: Step) -> str:
    return show_duration(step) if isinstance(step, dt.timedelta) else str(step)


def _quote(value: object) -> str:
    """Return a value of the policy as it may have been written there."""
    if isinstance(value, bool):
        return str(value).lower()
    return basic_string(value) if isinstance(value, str) else str(value)
