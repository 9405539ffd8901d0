"""The settings of PostgreSQL that clients read and write: what each may hold, and which of them mean something here.

`statement_timeout` and `idle_session_timeout` are obeyed, and `noisegate.notices` turns on notices of the cost. The
rest is remembered and shown, so that clients find what they set. The gate's own settings are planner/plans/settings.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from planner.basics.errors import BadValue, Forbidden, Refusal, TooLarge, UnknownSetting, Unsupported
from planner.plans.settings import PREFIX
from proxy.limits import MAX_SETTINGS_TEXT

SERVER_VERSION = "16.14"
"""The PostgreSQL whose catalogs and messages clients find here."""

NOTICES = "noisegate.notices"


class FixedSetting(Refusal):
    """The setting tells how things are, and can't be changed."""

    sqlstate = "55P02"


Check = Callable[[str, str], str]
"""Takes the name and the value of a setting, and returns the value as it is shown; or refuses."""


def _any(_: str, value: str) -> str:
    return value


def _flag(name: str, value: str) -> str:
    word = value.strip().lower()
    if word in ("on", "true", "yes", "1", "t", "y"):
        return "on"
    if word in ("off", "false", "no", "0", "f", "n"):
        return "off"
    raise BadValue(f'parameter "{name}" requires a Boolean value', hint="use on or off")


def _only(*allowed: str) -> Check:
    """Accept these values, in any spelling; the first is how things are here."""

    def check(name: str, value: str) -> str:
        found = [known for known in allowed if known.lower() == value.strip().lower()]
        if not found:
            raise BadValue(f'invalid value for parameter "{name}": {value!r}', hint=f"it can be: {', '.join(allowed)}")
        return found[0]

    return check


def _encoding(name: str, value: str) -> str:
    if re.sub(r"[^a-z0-9]", "", value.lower()) in ("utf8", "unicode", "sqlascii"):
        return "UTF8"
    raise BadValue(f'invalid value for parameter "{name}": {value!r}', hint="the gate speaks UTF8 only")


def _date_style(name: str, value: str) -> str:
    words = {word.strip().lower() for word in value.split(",")}
    if not words <= {"iso", "mdy", "dmy", "ymd", "us", "euro", "european", "noneuro", "noneuropean", "default"}:
        raise BadValue(f'invalid value for parameter "{name}": {value!r}', hint="dates are written in ISO style only")
    order = "DMY" if words & {"dmy", "euro", "european"} else "YMD" if "ymd" in words else "MDY"
    return f"ISO, {order}"


def _integer(least: int, most: int) -> Check:
    def check(name: str, value: str) -> str:
        if not re.fullmatch(r"\s*[+-]?\d{1,12}\s*", value) or not least <= int(value) <= most:
            raise BadValue(f'parameter "{name}" must be an integer from {least} to {most}, got {value!r}')
        return str(int(value))

    return check


UNITS = {"us": 0.001, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration(name: str, value: str) -> str:
    """Return a time as PostgreSQL shows it, in the largest unit that leaves a whole number."""
    milliseconds = milliseconds_of(value)
    if milliseconds is None or not 0 <= milliseconds <= 2**31 - 1:
        raise BadValue(f'invalid value for parameter "{name}": {value!r}', hint="for example: '30s' or 500 for ms")
    for unit in ("d", "h", "min", "s"):
        if milliseconds and milliseconds % UNITS[unit] == 0:
            return f"{int(milliseconds // UNITS[unit])}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0"


@functools.lru_cache(maxsize=256)
def milliseconds_of(value: str) -> int | None:
    """Return a duration in milliseconds, which is its unit if it has none; None if it is no duration.

    >>> milliseconds_of("30s"), milliseconds_of("250"), milliseconds_of("soon")
    (30000, 250, None)
    """
    found = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*(us|ms|s|min|h|d)?\s*", value)
    return round(float(found[1]) * UNITS[found[2] or "ms"]) if found else None


def _fixed(name: str, value: str) -> str:
    raise FixedSetting(f'parameter "{name}" cannot be changed', hint=f"SHOW {name} shows it; got {value!r}")


def _role(name: str, value: str) -> str:
    if value.lower() in ("none", "default"):
        return "none"
    raise Forbidden(f"{name.replace('_', ' ')} can't be set to another analyst", hint="log in as that analyst")


def _none_of_it(name: str, value: str) -> str:
    if value.strip().lower() in ("off", "false", "no", "0"):
        return "off"
    raise Unsupported(f'parameter "{name}" can only be off here', hint="strings are as the SQL standard has them")


@dataclass(frozen=True)
class Variable:
    """One setting: its name as PostgreSQL writes it, its default, its check, whether changes are reported."""

    name: str
    default: str
    check: Check = _any
    reported: bool = False


_ISOLATION = _only("read committed", "serializable", "repeatable read", "read uncommitted")

VARIABLES: dict[str, Variable] = {
    variable.name.lower(): variable
    for variable in (
        Variable("application_name", "", reported=True),
        Variable("backslash_quote", "safe_encoding"),
        Variable("bytea_output", "hex", _only("hex")),
        Variable("check_function_bodies", "on", _flag),
        Variable("client_encoding", "UTF8", _encoding, reported=True),
        Variable("client_min_messages", "notice"),
        Variable("DateStyle", "ISO, MDY", _date_style, reported=True),
        Variable("default_table_access_method", "heap"),
        Variable("default_tablespace", ""),
        Variable("default_text_search_config", "pg_catalog.simple"),
        Variable("default_toast_compression", "pglz"),
        Variable("default_transaction_deferrable", "off", _flag),
        Variable("default_transaction_isolation", "read committed", _ISOLATION),
        Variable("default_transaction_read_only", "off", _flag, reported=True),
        Variable("enable_bitmapscan", "on", _flag),
        Variable("enable_hashjoin", "on", _flag),
        Variable("enable_indexscan", "on", _flag),
        Variable("enable_mergejoin", "on", _flag),
        Variable("enable_nestloop", "on", _flag),
        Variable("enable_seqscan", "on", _flag),
        Variable("escape_string_warning", "on", _flag),
        Variable("extra_float_digits", "1", _integer(-15, 3)),
        Variable("geqo", "on", _flag),
        Variable("idle_in_transaction_session_timeout", "0", _duration),
        Variable("idle_session_timeout", "0", _duration),
        Variable("in_hot_standby", "off", _fixed, reported=True),
        Variable("integer_datetimes", "on", _fixed, reported=True),
        Variable("IntervalStyle", "postgres", _only("postgres"), reported=True),
        Variable("is_superuser", "off", _fixed, reported=True),
        Variable("jit", "off", _flag),
        Variable("lc_collate", "C.UTF-8", _fixed),
        Variable("lc_ctype", "C.UTF-8", _fixed),
        Variable("lc_messages", "C.UTF-8"),
        Variable("lc_monetary", "C.UTF-8"),
        Variable("lc_numeric", "C.UTF-8"),
        Variable("lc_time", "C.UTF-8"),
        Variable("lock_timeout", "0", _duration),
        Variable("max_connections", "100", _fixed),
        Variable("max_identifier_length", "63", _fixed),
        Variable("max_index_keys", "32", _fixed),
        Variable("quote_all_identifiers", "off", _flag),
        Variable("role", "none", _role),
        Variable("row_security", "on", _flag),
        Variable("search_path", '"$user", public'),
        Variable("server_encoding", "UTF8", _fixed, reported=True),
        Variable("server_version", SERVER_VERSION, _fixed, reported=True),
        Variable("server_version_num", "160014", _fixed),
        Variable("session_authorization", "", _role, reported=True),
        Variable("session_replication_role", "origin", _only("origin")),
        Variable("ssl", "on", _fixed),
        Variable("standard_conforming_strings", "on", _only("on"), reported=True),
        Variable("statement_timeout", "0", _duration),
        Variable("synchronize_seqscans", "on", _flag),
        Variable("synchronous_commit", "on"),
        Variable("TimeZone", "UTC", reported=True),
        Variable("transaction_deferrable", "off", _flag),
        Variable("transaction_isolation", "read committed", _ISOLATION),
        Variable("transaction_read_only", "off", _flag),
        Variable("transform_null_equals", "off", _none_of_it),
        Variable("wal_level", "replica", _fixed),
        Variable("work_mem", "4MB"),
        Variable("xmlbinary", "base64"),
        Variable("xmloption", "content"),
        Variable(NOTICES, "off", _flag),
    )
}


TRANSACTION_MODES = ("transaction_deferrable", "transaction_isolation", "transaction_read_only")
"""Settings that end with a transaction."""


def is_gates(name: str) -> bool:
    """Return whether a setting is the gate's own, or pretends to be: the gate says what is wrong with it."""
    return name.startswith(PREFIX) and name not in VARIABLES


@dataclass(frozen=True)
class Variables:
    """The values of one session: what it started with, and what was set since."""

    defaults: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    def started_with(self, name: str, value: str) -> Variables:
        """Return the variables with a value from the startup message, to which RESET goes back."""
        return replace(self, defaults={**self.defaults, _key(name): _checked(name, value)})

    def forced(self, name: str, value: str) -> Variables:
        """Return the variables with a value of the server's own."""
        return replace(self, defaults={**self.defaults, name: value})

    def with_value(self, name: str, value: str | None) -> Variables:
        """Return the variables after SET; None is DEFAULT."""
        if value is None:
            return self.reset(name)
        values = {**self.values, _key(name): _checked(name, value)}
        if sum(len(key) + len(found) for key, found in values.items()) > MAX_SETTINGS_TEXT:
            raise TooLarge(
                f"the settings of a session hold at most {MAX_SETTINGS_TEXT:,} characters",
                hint="RESET those that are not needed, or set shorter values",
            )
        return replace(self, values=values)

    def reset(self, name: str | None) -> Variables:
        """Return the variables after RESET name, or RESET ALL for None."""
        if name is None:
            return replace(self, values={})
        key = _key(name)
        return replace(self, values={other: value for other, value in self.values.items() if other != key})

    def show(self, name: str) -> str:
        """Return the value of a setting; UnknownSetting if there is none of that name."""
        key = _key(name)
        if key in TRANSACTION_MODES and key not in self.values:
            return self.show(f"default_{key}")
        default = VARIABLES[key].default if key in VARIABLES else None
        found = self.values.get(key, self.defaults.get(key, default))
        if found is None:
            raise _unknown(name)
        return found

    def seconds(self, name: str) -> float:
        """Return a duration in seconds; 0 is no limit."""
        return (milliseconds_of(self.show(name)) or 0) / 1000

    def reported(self) -> dict[str, str]:
        """Return the settings whose values clients are told without asking."""
        return {variable.name: self.show(key) for key, variable in VARIABLES.items() if variable.reported}

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all settings that have a value."""
        yield from sorted({*VARIABLES, *self.defaults, *self.values})


def _key(name: str) -> str:
    key = name.lower()
    if key not in VARIABLES and "." not in key:
        raise _unknown(name)
    return key


def _checked(name: str, value: str) -> str:
    variable = VARIABLES.get(name.lower())
    return value if variable is None else variable.check(variable.name, value)


def _unknown(name: str) -> UnknownSetting:
    return UnknownSetting(f'unrecognized configuration parameter "{name}"', hint="SHOW ALL lists what can be set")


def shown_name(name: str) -> str:
    """Return the name of a setting as PostgreSQL writes it: TimeZone for timezone."""
    variable = VARIABLES.get(name.lower())
    return name if variable is None else variable.name
