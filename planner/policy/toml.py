"""Reading a TOML file so that every mistake is found in one run, and each has its line.

tomllib gives values without positions; `locate` finds where each key stands. A `Section` hands out the values
of one table by their kind, and notes what is wrong instead of stopping there.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

from planner.basics.errors import Mistake
from planner.basics.limits import MAX_KEY_PARTS, MAX_POLICY_BYTES

KeyPath = tuple[str | int, ...]
"""Keys from the root down; an int counts the elements of an array."""

KINDS: dict[str, type | tuple[type, ...]] = {
    "a string": str,
    "an integer": int,
    "a number": (int, Decimal),
    "true or false": bool,
    "a table": dict,
    "an array": list,
}

_BLANK = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*")
_SIMPLE_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\])*"|'[^']*')"""
_KEY = re.compile(rf"{_SIMPLE_KEY}(?:[ \t]*\.[ \t]*{_SIMPLE_KEY})*")
_SCALAR = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'  # a multi-line string may end in two quotes of its own
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'"
    r"|[^,\]}#\n]+",
    re.DOTALL,
)


_LONG_KEY = re.compile(rf"{_SIMPLE_KEY}(?:[ \t]*\.[ \t]*{_SIMPLE_KEY}){{{MAX_KEY_PARTS}}}")


def locate(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, on which each key, table and array element of `text` first stands.

    Args:
        text: TOML that tomllib has accepted; the walk relies on it.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """Return the line of `path`, or of the nearest thing around it that stands in the file, or 1."""
    return next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), 1)


class Lines(Mapping[KeyPath, int]):
    """What `locate` returns, found when it is first asked for: most files have no mistakes."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _found(self) -> dict[KeyPath, int]:
        return locate(self._text)

    def __getitem__(self, path: KeyPath) -> int:
        return self._found[path]

    def __iter__(self) -> Iterator[KeyPath]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class _Scanner:
    """Walks the text once from left to right; owns the position and the lines found so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.lines: dict[KeyPath, int] = {}
        self._breaks = [match.start() for match in re.finditer("\n", text)]

    def document(self) -> None:
        table: KeyPath = ()
        while self.peek():
            if self.peek() == "[":
                table = self.header()
            else:
                self.pair(table)

    def header(self) -> KeyPath:
        """Read `[key]` or `[[key]]`, whose tables all stand under the key's first line."""
        self.position += 2 if self.text.startswith("[[", self.position) else 1
        path = self.key(())
        self.position = self._end(re.compile(r"[ \t]*\]{0,2}"))
        return path

    def pair(self, table: KeyPath) -> None:
        path = self.key(table)
        self.position = self._end(re.compile(r"[ \t]*=?"))
        self.value(path)

    def key(self, table: KeyPath) -> KeyPath:
        """Read a key, dotted or quoted, and note the line of each of its parts."""
        self.peek()
        match = _KEY.match(self.text, self.position)
        if match is None:
            self.position = len(self.text)
            return table
        path = table
        for part in _parts(match.group()):
            path = (*path, part)
            self.note(path)
        self.position = match.end()
        return path

    def value(self, path: KeyPath) -> None:
        opening = self.peek()
        if opening == "{":
            self.inside("}", lambda _: self.pair(path))
        elif opening == "[":
            self.inside("]", lambda index: self.element((*path, index)))
        else:
            self.position = self._end(_SCALAR)

    def element(self, path: KeyPath) -> None:
        self.note(path)
        self.value(path)

    def inside(self, closing: str, read: Callable[[int], None]) -> None:
        """Read what stands between brackets, numbered from 0, up to the closing one."""
        self.position += 1
        index = 0
        while self.peek() not in ("", closing):
            read(index)
            index += 1
        self.position += 1

    def peek(self) -> str:
        """Skip blanks, comments and commas, and return the next character, or "" at the end."""
        self.position = self._end(_BLANK)
        return self.text[self.position : self.position + 1]

    def note(self, path: KeyPath) -> None:
        self.lines.setdefault(path, bisect_right(self._breaks, self.position) + 1)

    def _end(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.position)
        return match.end() if match else len(self.text)


def _parts(key: str) -> list[str]:
    """Return the parts of a key as tomllib reads them."""
    parts = []
    table = tomllib.loads(f"{key} = 0")
    while isinstance(table, dict):
        part, table = next(iter(table.items()))
        parts.append(part)
    return parts


def read(text: str) -> Section:
    """Return the document as a section, numbers as int or Decimal; raise ValueError if it is not TOML."""
    if len(text) > MAX_POLICY_BYTES:
        raise ValueError(
            f"it has more than {MAX_POLICY_BYTES // 2**20} MB: give values in a public table, not in the policy"
        )
    if long := _LONG_KEY.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise ValueError(f"a key has more than {MAX_KEY_PARTS} parts (at line {line}, column 1)")
    try:
        return Section((), tomllib.loads(text, parse_float=_decimal), Lines(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python's own limit
        raise ValueError("a number has too many digits") from None


def _decimal(text: str) -> Decimal:
    """Return the number exactly as written, or inf or 0 where it is beyond what a double can hold."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return Decimal(float(text))
    near = not number.is_finite() or number.is_zero() or -400 < number.adjusted() < 400
    return number if near else Decimal(float(text))


def shown(path: KeyPath) -> str:
    """Return a path as TOML writes it: `tables.people.columns."last name"`."""
    return ".".join(quoted(str(part)) for part in path)


def quoted(key: str) -> str:
    """Return a key bare where TOML allows it, and as a basic string otherwise."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else basic_string(key)


def basic_string(text: str) -> str:
    """Return `text` as a TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match.group()):04x}", escaped) + '"'


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return "; did you mean X?" when a candidate is close to `word`, and "" otherwise."""
    close = difflib.get_close_matches(word, list(candidates), n=1)
    return f"; did you mean {close[0]}?" if close else ""


@dataclass(frozen=True)
class Section:
    """One table of a file: its path, its entries, and the one list in which the file's mistakes are noted."""

    path: KeyPath
    entries: Mapping[str, Any]  # Any: TOML values have no common type; the methods check each
    lines: Mapping[KeyPath, int]
    mistakes: list[Mistake] = field(default_factory=list)

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def wrong(self, text: str, *at: str | int) -> None:
        """Note a mistake about this section; `at` leads from here to the line that is meant."""
        line = line_of(self.lines, (*self.path, *at))
        self.mistakes.append(Mistake(line=line, where=shown(self.path), text=text))

    def only(self, keys: Iterable[str]) -> None:
        """Note every key that is none of `keys`."""
        known = list(keys)
        for key in self.entries:
            if key not in known:
                self.wrong(f"unknown key {quoted(key)}{did_you_mean(key, known)}", key)

    def get(self, key: str, kind: str) -> Any:
        """Return the value if it is of the kind (a key of KINDS), or None; note it if it is of another.

        Any: the kind is checked here, once, and the typed methods below say what it means.
        """
        value = self.entries.get(key)
        if value is None:
            return None
        if isinstance(value, KINDS[kind]) and isinstance(value, bool) == (kind == "true or false"):
            return value
        self.wrong(f"{key} must be {kind}, got {kind_of(value)}", key)
        return None

    def child(self, key: str) -> Section:
        """Return the table at `key`, which is empty if it is absent or had to be noted as a mistake."""
        entries = self.get(key, "a table") or {}
        return Section((*self.path, key), entries, self.lines, self.mistakes)

    def children(self) -> dict[str, Section]:
        """Return the tables in this section by name; anything else in it is noted."""
        return {key: self.child(key) for key in self.entries}

    def text(self, key: str) -> str | None:
        """Return a string with something in it, or None."""
        value: str | None = self.get(key, "a string")
        if value is not None and not value.strip():
            self.wrong(f"{key} is empty", key)
            return None
        return value

    def choice(self, key: str, options: Iterable[str]) -> str | None:
        """Return one of the options, or None."""
        value: str | None = self.get(key, "a string")
        known = list(options)
        if value is None or value in known:
            return value
        expected = f"{key} must be one of {', '.join(known)}, got {basic_string(value)}"
        self.wrong(expected + did_you_mean(value, known), key)
        return None

    def flag(self, key: str) -> bool:
        return bool(self.get(key, "true or false"))

    def number(self, key: str) -> Decimal | None:
        """Return a finite number, exactly as written, or None."""
        value: int | Decimal | None = self.get(key, "a number")
        if value is None:
            return None
        number = Decimal(value)
        if not number.is_finite():
            self.wrong(f"{key} must be a finite number, got {value}", key)
            return None
        return number

    def integer(self, key: str, *, least: int, most: int) -> int | None:
        """Return an integer from least to most, or None."""
        value: int | None = self.get(key, "an integer")
        if value is None or least <= value <= most:
            return value
        self.wrong(f"{key} must be between {least} and {most}, got {value}", key)
        return None


def kind_of(value: object) -> str:
    """Return what people call a TOML value of this type."""
    for kind in ("true or false", "a string", "an integer", "a number", "a table", "an array"):
        if isinstance(value, KINDS[kind]):
            return kind
    return "a date or time"
