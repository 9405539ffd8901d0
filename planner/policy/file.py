"""The policy file: what the curator declares, checked as a whole before anything is served.

`load` returns a Policy or raises PolicyRefusal with every mistake of the file, each with its line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from mechanisms.noise.accounting import epsilon_to_rho
from planner.basics.errors import Mistake, PolicyRefusal
from planner.basics.limits import MAX_COUNT
from planner.policy import passwords
from planner.policy.columns import DOMAIN_KEYS, read_domain
from planner.policy.domain import DUCKDB_TYPES, duration
from planner.policy.ledger import Remote, is_remote
from planner.policy.location import SERVED, located
from planner.policy.server import Server, read_server
from planner.policy.source import read_source
from planner.policy.table import Column, Table
from planner.policy.toml import Section, basic_string, did_you_mean, quoted, read

SECTIONS = ("budget", "defaults", "analysts", "server", "ledger", "tables", "views")
COLUMN_KEYS = (*DOMAIN_KEYS, "hidden", "role")
TABLE_KEYS = {
    "protected": ("privacy_unit", "max_rows_per_unit", "row_key", "timeout", "rows", "population", "columns"),
    "public": ("columns",),
    "synthetic": (),
}
DEFAULT_LEDGER = "noisegate.ledger.sqlite"


@dataclass(frozen=True)
class Budget:
    """The (epsilon, delta) that all analysts together may learn about one privacy unit."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Defaults:
    """What an answer aims at when the analyst sets nothing: half-width of a count, at which confidence."""

    error: float = 50.0
    confidence: float = 0.95


@dataclass(frozen=True)
class Analyst:
    """One account: its part of the budget, and the SCRAM verifier of its password."""

    name: str
    share: Fraction
    password: str | None = None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Everything the curator declared; `path`, sources and the ledger are absolute."""

    path: Path
    budget: Budget
    defaults: Defaults
    analysts: dict[str, Analyst]
    server: Server
    ledger: Path | Remote
    tables: dict[str, Table]
    views: dict[str, str] = field(default_factory=dict)


def budget_cap(policy: Policy) -> Fraction:
    """Return the cap in rho: the most zCDP that the policy's (epsilon, delta) covers, rounded down."""
    return epsilon_to_rho(policy.budget.epsilon, policy.budget.delta)


def load(path: str | Path) -> Policy:
    """Return the policy in the file, or raise PolicyRefusal with all its mistakes, one line each."""
    file = Path(path)
    root = opened(file)
    policy = _read_policy(root, file.absolute())
    if policy is None or root.mistakes:
        raise refusal(file, root.mistakes)
    return policy


def opened(file: Path) -> Section:
    """Return a TOML file as a section, or raise PolicyRefusal if it can't be read as one."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
        return read(text)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise refusal(file, [Mistake(None, "", f"can't be read: {reason}")]) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise refusal(file, [Mistake(line, "", "is not UTF-8 text")]) from None
    except tomllib.TOMLDecodeError as error:
        raise refusal(file, [_syntax_mistake("is not TOML", str(error), text)]) from None
    except ValueError as error:
        raise refusal(file, [_syntax_mistake("can't be read", str(error), text)]) from None


def refusal(file: Path, mistakes: Iterable[Mistake]) -> PolicyRefusal:
    """Return the refusal, with the mistakes in the order of the file."""
    ordered = tuple(sorted(mistakes, key=lambda mistake: mistake.line or 0))
    return PolicyRefusal("\n".join(mistake.render(str(file)) for mistake in ordered), mistakes=ordered)


def _syntax_mistake(what: str, error: str, text: str) -> Mistake:
    """Return a complaint about the text with the line that it names at its end."""
    reason, _, place = error.partition(" (at ")
    line = re.match(r"line ([0-9]+)", place)
    at_end = place.startswith("end of document")
    number = int(line[1]) if line else len(text.splitlines()) or 1 if at_end else None
    return Mistake(number, "", f"{what}: {reason[:1].lower()}{reason[1:]}")


def _read_policy(root: Section, path: Path) -> Policy | None:
    root.only(SECTIONS)
    budget = _read_budget(root.child("budget"))
    tables = _read_tables(root.child("tables"), path.parent)
    policy = Policy(
        path=path,
        budget=budget or Budget(0.0, 0.0),
        defaults=_read_defaults(root.child("defaults")),
        analysts=_read_analysts(root.child("analysts")),
        server=read_server(root.child("server"), path.parent),
        ledger=_read_ledger(root.child("ledger"), path),
        tables=tables,
        views=_read_views(root.child("views"), tables),
    )
    return policy if budget else None


def _read_budget(section: Section) -> Budget | None:
    section.only(("epsilon", "delta"))
    missing = [key for key in ("epsilon", "delta") if key not in section]
    if missing:
        what = f"{' and '.join(missing)} {'are' if missing[1:] else 'is'} missing"
        section.wrong(f"{what}; together they cap what all analysts can learn about one person")
    epsilon, delta = section.number("epsilon"), section.number("delta")
    if epsilon is not None and not 0 < float(epsilon) < float("inf"):
        section.wrong(f"epsilon must be above 0, got {epsilon}", "epsilon")
    if delta is not None and not 0 < float(delta) < 1:
        section.wrong(f"delta must lie between 0 and 1, both excluded, got {delta}", "delta")
    if epsilon is None or delta is None:
        return None
    return Budget(float(epsilon), float(delta))


def _read_defaults(section: Section) -> Defaults:
    section.only(("error", "confidence"))
    error, confidence = section.number("error"), section.number("confidence")
    if error is not None and not 0 < float(error) < float("inf"):
        section.wrong(f"error must be above 0, got {error}", "error")
    if confidence is not None and not 0 < float(confidence) < 1:
        section.wrong(f"confidence must lie between 0 and 1, both excluded, got {confidence}", "confidence")
    return Defaults(
        error=Defaults.error if error is None else float(error),
        confidence=Defaults.confidence if confidence is None else float(confidence),
    )


def _read_analysts(section: Section) -> dict[str, Analyst]:
    """Return the analysts; those without a share divide equally what the others leave."""
    sections = section.children()
    if not sections:
        return {"analyst": Analyst("analyst", share=Fraction(1))}
    shares = {name: _read_share(entry) for name, entry in sections.items()}
    rest = 1 - sum((share for share in shares.values() if share is not None), start=Fraction(0))
    without = [name for name, entry in sections.items() if "share" not in entry]
    if rest < 0:
        section.wrong(f"shares add up to {float(1 - rest):g}, which is more than 1")
    elif rest == 0 and without:
        section.wrong(f"the other shares leave nothing for {', '.join(without)}", without[0])
    equal = rest / max(len(without), 1)
    return {
        name: Analyst(name, share=shares[name] or equal, password=_read_password(entry))
        for name, entry in sections.items()
    }


def _read_share(section: Section) -> Fraction | None:
    section.only(("share", "password"))
    if section.path[-1] == "":
        section.wrong("the name of an analyst must not be empty")
    if str(section.path[-1]).startswith("{"):  # in the ledger, that is several who pay together
        section.wrong("the name of an analyst must not begin with a brace")
    share = section.number("share")
    if share is None:
        return None
    if not 0 < share <= 1:
        section.wrong(f"share must be above 0 and at most 1, got {share}", "share")
        return None
    return Fraction(share)


def _read_password(section: Section) -> str | None:
    """Return the verifier; what is not one is never repeated in a message, since it may be a password."""
    password = section.text("password")
    if password is not None and not passwords.is_verifier(password):
        section.wrong("password is not a SCRAM-SHA-256 verifier; make one with `noisegate passwd`", "password")
    return password


def _read_ledger(section: Section, path: Path) -> Path | Remote:
    """Return where the ledger is; what is wrong with a URL is told without repeating it, since it may hold a password.

    A ledger on a server has its marker here, beside the policy or where `marker` says.
    """
    section.only(("url", "marker"))
    url, marker = section.text("url") or DEFAULT_LEDGER, section.text("marker")
    if marker is not None and "://" not in url:
        section.wrong("marker is for ledgers in PostgreSQL: that of an SQLite file lies beside it", "marker")
    try:
        return ledger_place(url, path, marker=marker)
    except ValueError as error:
        section.wrong(str(error), "url")
    return path.parent / url


def ledger_place(url: str, path: Path, *, marker: str | None = None) -> Path | Remote:
    """Return the place of a ledger that a policy file names; ValueError if it is none."""
    if is_remote(url):
        return Remote.parse(url, marker=path.parent / (marker or f"{path.stem}.ledger.born"))
    if "://" in url:
        raise ValueError("url must be the path of an SQLite file, or postgresql://user@host/database")
    return path.parent / url


def _read_views(section: Section, tables: dict[str, Table]) -> dict[str, str]:
    views = {}
    for name, entry in section.children().items():
        entry.only(("sql",))
        _check_name(entry, "view", name)
        if name in tables:
            entry.wrong("a table has the same name")
        if "sql" not in entry:
            entry.wrong('sql is missing, for instance sql = "SELECT … FROM people WHERE …"')
        views[name] = entry.text("sql") or ""
    return views


def _check_name(section: Section, what: str, name: str) -> None:
    if name == "noisegate":
        section.wrong(f"the name noisegate is reserved, choose another for this {what}")
    elif name.startswith("pg_"):
        section.wrong(f"names that begin with pg_ are PostgreSQL's own, choose another for this {what}")
    elif not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
        section.wrong(f"the name of a {what} must be lower-case letters, digits and underscores")


def _read_tables(section: Section, base: Path) -> dict[str, Table]:
    if not section.entries:
        section.wrong("no table is declared; add a section [tables.NAME] with a source")
    sections = section.children()
    tables = {name: _read_table(entry, name, base) for name, entry in sections.items()}
    protected = [name for name, table in tables.items() if table.kind == "protected"]
    for name, table in tables.items():
        original = table.synthetic_of
        if original is not None and original not in protected:
            hint = did_you_mean(original, protected)
            sections[name].wrong(f"synthetic_of must name a protected table, got {original}{hint}", "synthetic_of")
    return tables


def _read_table(section: Section, name: str, base: Path) -> Table:
    _check_name(section, "table", name)
    kind = _read_kind(section)
    _check_table_keys(section, kind)
    unit = _read_unit(section) if kind == "protected" else None
    source = read_source(section, base, protected=kind == "protected")
    if unit is not None and "row_key" not in section and located(source).engine in SERVED:
        why = "a server's rows have no order of their own, so it decides which rows of a unit count"
        section.wrong(f"row_key is missing; {why}", "privacy_unit")
    return Table(
        name=name,
        source=source,
        kind=kind,
        synthetic_of=section.text("synthetic_of"),
        population=section.text("population") or "default",
        unit=unit,
        max_rows_per_unit=section.integer("max_rows_per_unit", least=1, most=MAX_COUNT) or 1,
        row_key=section.text("row_key"),
        size=section.integer("rows", least=1, most=MAX_COUNT),
        columns={} if kind == "synthetic" else _read_columns(section, kind, unit),
        timeout=_read_timeout(section, source),
    )


def _read_timeout(section: Section, source: str) -> float:
    """Return how many seconds a server may read."""
    text = section.text("timeout")
    if text is None:
        return Table.timeout
    found = duration(text)
    if found is None:
        section.wrong(f'timeout must be a duration like "10 minutes", got {basic_string(text)}', "timeout")
    elif located(source).engine not in SERVED:
        section.wrong("timeout is for tables in PostgreSQL and Spark", "timeout")
    return found.total_seconds() if found else Table.timeout


def _read_kind(section: Section) -> str:
    public = section.flag("public")
    if public and "synthetic_of" in section:
        section.wrong("a table is public or synthetic, not both", "public")
    return "public" if public else "synthetic" if "synthetic_of" in section else "protected"


def _check_table_keys(section: Section, kind: str) -> None:
    everywhere = ("source", "public", "synthetic_of")
    section.only((*everywhere, *TABLE_KEYS["protected"]))
    for key in section.entries:
        if key in TABLE_KEYS["protected"] and key not in TABLE_KEYS[kind]:
            section.wrong(f"{key} does not belong to a {kind} table, which is read exactly and free of charge", key)


def _read_unit(section: Section) -> str | None:
    """Return the privacy-unit column, or None for rows."""
    unit = section.text("privacy_unit")
    bounded = "max_rows_per_unit" in section
    if unit is None or unit == "row":
        if bounded:
            section.wrong("max_rows_per_unit needs privacy_unit to be a column", "max_rows_per_unit")
        return None
    if not bounded:
        why = f"it bounds, and enforces, how many rows one {quoted(unit)} has"
        section.wrong(f"max_rows_per_unit is missing; {why}", "privacy_unit")
    return unit


def _read_columns(table: Section, kind: str, unit: str | None) -> dict[str, Column]:
    """Return the declared columns, and the privacy unit even if it is not declared."""
    section = table.child("columns")
    noted = len(section.mistakes)
    columns = {
        name: _read_column(entry, name, optional=kind == "public" or name == unit)
        for name, entry in section.children().items()
    }
    if unit is not None:
        columns.setdefault(unit, Column(unit))
    _check_column_names(section, columns)
    mistaken = len(section.mistakes) > noted
    if kind == "protected" and not mistaken and all(column.domain is None for column in columns.values()):
        section.wrong("no column has a domain; declare at least one that may be asked about")
    return columns


def _read_column(section: Section, name: str, *, optional: bool) -> Column:
    section.only(COLUMN_KEYS)
    if section.flag("hidden"):
        return Column(name, hidden=True, type=section.choice("type", DUCKDB_TYPES))
    domain = read_domain(section, optional=optional)
    measure = section.choice("role", ("measure",)) is not None
    bounded = domain is not None and domain.numeric and domain.ordered
    if measure and not bounded and (domain is not None or optional):
        section.wrong('role = "measure" is for integer and float columns with min and max', "role")
    declared = section.entries.get("type")
    kind = domain.type if domain else declared if isinstance(declared, str) else None
    return Column(name, domain=domain, measure=measure, type=kind)


def _check_column_names(section: Section, columns: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in columns:
        first = seen.setdefault(name.casefold(), name)
        if first != name:
            section.wrong(f"{quoted(name)} and {quoted(first)} differ only in case, which SQL does not see", name)
        if name.startswith("__") or not name:
            section.wrong(f"the name of a column must not be empty or start with __, got {quoted(name)}", name)
