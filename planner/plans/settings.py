"""What an analyst can SET: accuracy, spending, confidence, and which groups count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from statistics import NormalDist

from planner.basics.errors import BadValue, UnknownSetting
from planner.basics.limits import MAX_SETTING, MIN_SETTING
from planner.basics.numerals import whole
from planner.policy.file import Policy
from planner.sql.query import AUTO, GROUPS

PREFIX = "noisegate."


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The accuracy and spending controls of one session.

    `error` is the half-width of a count at `confidence`; with `relative` it is a fraction of the table's size.
    `rho`, if set, is spent instead. `as_of` answers from the history up to that release only. `groups` are one of
    GROUPS.
    """

    error: float
    confidence: float
    relative: bool = False
    sum_error: float | None = None
    rho: Fraction | None = None
    max_rho: Fraction | None = None
    as_of: int | None = None
    groups: str = AUTO

    @classmethod
    def of(cls, policy: Policy) -> Settings:
        return cls(error=policy.defaults.error, confidence=policy.defaults.confidence)

    @property
    def z(self) -> float:
        """Return how many standard deviations the half-width of an interval is."""
        return NormalDist().inv_cdf((1 + self.confidence) / 2)

    def with_value(self, name: str, value: str, defaults: Settings) -> Settings:
        """Return the settings after SET name = value; DEFAULT goes back to the policy's."""
        field = _field(name)
        if value.upper() == "DEFAULT":
            return self.reset(name, defaults)
        if field == "error":
            amount = value.removesuffix("%")
            scale = 0.01 if amount != value else 1.0
            return replace(self, error=_positive(name, amount) * scale, relative=amount != value)
        return replace(self, **{field: READERS[field](name, value)})  # type: ignore[arg-type]  # by name

    def reset(self, name: str | None, defaults: Settings) -> Settings:
        """Return the settings after RESET name, or RESET ALL for None."""
        if name is None:
            return defaults
        field = _field(name)
        relative = defaults.relative if field == "error" else self.relative
        return replace(self, **{field: getattr(defaults, field), "relative": relative})

    def show(self, name: str) -> str:
        field = _field(name)
        value = getattr(self, field)
        if field == "error" and self.relative:
            return f"{value * 100:g}%"
        return "" if value is None else f"{float(value):g}" if not isinstance(value, int | str) else str(value)


def names() -> list[str]:
    return [PREFIX + field.name for field in fields(Settings) if field.name != "relative"]


def _field(name: str) -> str:
    if name not in names():
        raise UnknownSetting(f"there is no setting {name}", hint=f"there are: {', '.join(names())}")
    return name.removeprefix(PREFIX)


def _positive(name: str, value: str, *, example: str = "25") -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not MIN_SETTING <= number <= MAX_SETTING:
        raise BadValue(
            f"{name} must be a number from {MIN_SETTING:g} to {MAX_SETTING:g}, got {value!r}",
            hint=f"for example: SET {name} = {example}",
        )
    return number


def _fraction(name: str, value: str) -> Fraction:
    return Fraction(_positive(name, value, example="0.001")).limit_denominator(10**15)


def _confidence(name: str, value: str) -> float:
    number = _positive(name, value, example="0.95")
    if number < 0.5 or (1 + number) / 2 >= 1:  # there is no quantile of what rounds to 1
        raise BadValue(
            f"{name} must be at least 0.5 and below 1, got {value!r}", hint=f"for example: SET {name} = 0.95"
        )
    return number


def _release(name: str, value: str) -> int:
    number = whole(value)
    if not number:
        raise BadValue(f"{name} must be the number of a release, got {value!r}", hint="see noisegate.releases")
    return number


def _groups(name: str, value: str) -> str:
    if value.lower() not in GROUPS:
        raise BadValue(
            f"{name} must be one of {', '.join(GROUPS)}, got {value!r}", hint=f"for example: SET {name} = 'present'"
        )
    return value.lower()


READERS: dict[str, Callable[[str, str], object]] = {
    "sum_error": _positive,
    "rho": _fraction,
    "max_rho": _fraction,
    "confidence": _confidence,
    "as_of": _release,
    "groups": _groups,
}
