"""Who sees an object without its schema, and who may do what with it."""

from __future__ import annotations

from collections.abc import Callable

from planner.basics.numerals import whole
from proxy.catalog.names import (
    LAST_OID,
    OWNER,
    VISIBLE,
    Directory,
    to_regclass,
    to_regnamespace,
    to_regproc,
    to_regtype,
)

LETTERS = {
    "r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE", "D": "TRUNCATE", "x": "REFERENCES", "t": "TRIGGER",
    "U": "USAGE", "C": "CREATE", "c": "CONNECT", "T": "TEMPORARY", "X": "EXECUTE", "s": "SET", "A": "ALTER SYSTEM",
}  # fmt: skip
BY_DEFAULT = {"pg_proc": "X", "pg_type": "U", "pg_language": "U", "pg_database": "cT"}
"""What everybody may do with an object whose list of privileges is NULL."""


def visible_in(catalog: str) -> Callable[[Directory, int], bool | None]:
    def is_visible(directory: Directory, oid: int) -> bool | None:
        space = directory.places.get(catalog, {}).get(oid)
        return None if space is None else space in VISIBLE

    return is_visible


def has_privilege(catalog: str) -> Callable[[Directory, str, str, str], bool | None]:
    """Return the function that says whether a role may do something with an object of a catalog."""

    def allowed(directory: Directory, role: str, what: str, privilege: str) -> bool | None:
        oid = _object(directory, catalog, what)
        if (catalog, oid) not in directory.acls:
            return None
        who = _role(directory, role)
        wanted = [part.strip().upper().removesuffix(" WITH GRANT OPTION") for part in privilege.split(",")]
        granted = _granted(directory.acls[catalog, oid], who, BY_DEFAULT.get(catalog, ""))
        return any(("TEMPORARY" if word == "TEMP" else word) in granted for word in wanted)

    return allowed


def _role(directory: Directory, text: str) -> str:
    """Return the name of a role that is called by its name or its number."""
    number = whole(text, most=LAST_OID)
    return text if number is None else directory.roles.get(number, text)


def _object(directory: Directory, catalog: str, what: str) -> int:
    if (number := whole(what, most=LAST_OID)) is not None:
        return number
    finders = {"pg_class": to_regclass, "pg_type": to_regtype, "pg_proc": to_regproc, "pg_namespace": to_regnamespace}
    finder = finders.get(catalog)
    if finder is not None:
        return finder(directory, what) or 0
    return next((oid for (name, oid) in directory.acls if name == catalog), 0)  # there is one database


def _granted(acl: tuple[str, ...] | None, role: str, default: str) -> set[str]:
    if role == OWNER:
        return set(LETTERS.values())
    if acl is None:
        return {LETTERS[letter] for letter in default}
    found: set[str] = set()
    for item in acl:
        grantee, _, rest = item.partition("=")
        if grantee in ("", role, f'"{role}"'):
            found |= {LETTERS[letter] for letter in rest.partition("/")[0] if letter in LETTERS}
    return found


def pg_has_role(directory: Directory, role: str, other: str, _: str) -> bool:
    names = [_role(directory, text) for text in (role, other)]
    return names[0] == names[1] or names[0] == OWNER
