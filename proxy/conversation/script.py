"""From the text of a client to the statements in it: which the gate or the catalog answers, which act on the session.

Only what a PostgreSQL client needs around its questions is read here: settings, transactions, cursors, COPY. Whatever
is none of these is an `Ask`, and is read, answered or refused behind the gate.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot.tokenizer_core import Token, TokenType

from planner.basics.errors import BadValue, Forbidden, SyntaxRefusal, Unsupported
from planner.basics.numerals import whole
from planner.sql.statement import split, tokens_of
from proxy.conversation.statements import (
    Ask,
    Begin,
    CloseCursor,
    Copy,
    Deallocate,
    Declare,
    Discard,
    End,
    Fetch,
    Reset,
    Savepoint,
    SetTo,
    Show,
    Statement,
    Unlisten,
)


def read_script(sql: str) -> list[Statement]:
    """Return the statements of a text in order; refuse all of it if one can't be read."""
    return [_Reader(sql, piece).statement() for piece in split(tokens_of(sql))]


# --- reading -----------------------------------------------------------------------------------------------

NAMES = {"time zone": "timezone", "names": "client_encoding", "transaction isolation level": "transaction_isolation"}
"""What SET and SHOW call by two or three words."""

MODES = {
    **{
        f"isolation level {level}": ("transaction_isolation", level)
        for level in ("serializable", "repeatable read", "read committed", "read uncommitted")
    },
    "read only": ("transaction_read_only", "on"),
    "read write": ("transaction_read_only", "off"),
    "deferrable": ("transaction_deferrable", "on"),
    "not deferrable": ("transaction_deferrable", "off"),
}
"""Modes of a transaction, and the settings that show them."""


class _Reader:
    """Reads one statement from its tokens, left to right."""

    def __init__(self, sql: str, tokens: list[Token]) -> None:
        self._sql, self._tokens, self._place = sql, tokens, 0

    # the next token

    def _peek(self) -> Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _word(self) -> str:
        """Return the next token in upper case if it is a bare word, else nothing."""
        token = self._peek()
        bare = token is not None and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
        return token.text.upper() if token is not None and bare else ""

    def _take(self) -> Token:
        token = self._peek()
        if token is None:
            raise SyntaxRefusal("the statement ends too early", hint="write it as PostgreSQL would read it")
        self._place += 1
        return token

    def _accept(self, *words: str) -> bool:
        """Take the next tokens if they are these words."""
        texts = [token.text.upper() for token in self._tokens[self._place : self._place + len(words)]]
        if texts != list(words):
            return False
        self._place += len(words)
        return True

    def _expect(self, *words: str) -> None:
        if not self._accept(*words):
            raise self._unexpected()

    def _unexpected(self) -> SyntaxRefusal:
        token = self._peek()
        hint = "write it as PostgreSQL would read it"
        if token is None:
            return SyntaxRefusal("syntax error at end of input", hint=hint)
        word = self._sql[token.start : token.end + 1]
        return SyntaxRefusal(f"syntax error at or near {word!r}", hint=hint, span=(token.start, token.end))

    def _end(self) -> None:
        if self._peek() is not None:
            raise self._unexpected()

    def _name(self) -> str:
        """Return an identifier: as it is in quotes, otherwise in lower case."""
        token = self._take()
        if token.token_type in (TokenType.STRING, TokenType.NUMBER) or not token.text:
            self._place -= 1
            raise self._unexpected()
        return token.text if token.token_type == TokenType.IDENTIFIER else token.text.lower()

    def _dotted(self) -> str:
        name = self._name()
        while self._accept("."):
            name += f".{self._name()}"
        return name.lower()

    def _rest(self, last: int | None = None) -> Ask:
        """Return the rest, up to the token `last`, as a question whose places are those in the whole text."""
        end = len(self._tokens) if last is None else last
        if self._place >= end:
            raise self._unexpected()
        first, final = self._tokens[self._place], self._tokens[end - 1]
        self._place = end
        return Ask(" " * first.start + self._sql[first.start : final.end + 1])

    # statements

    def statement(self) -> Statement:
        readers: dict[str, Callable[[], Statement]] = {
            "SET": self._set,
            "SHOW": self._show,
            "RESET": self._reset,
            "BEGIN": self._begin,
            "START": self._begin,
            "COMMIT": self._finish,
            "END": self._finish,
            "ROLLBACK": self._finish,
            "ABORT": self._finish,
            "SAVEPOINT": self._savepoint,
            "RELEASE": self._savepoint,
            "DECLARE": self._declare,
            "FETCH": self._fetch,
            "MOVE": self._fetch,
            "CLOSE": self._close,
            "COPY": self._copy,
            "DEALLOCATE": self._deallocate,
            "DISCARD": self._discard,
            "UNLISTEN": self._unlisten,
        }
        reader = readers.get(self._word())
        if reader is None:
            return self._rest()
        found = reader()
        self._end()
        return found

    def _set(self) -> SetTo:
        self._take()
        if self._accept("SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"):
            return self._characteristics("default_")
        if self._accept("TRANSACTION"):
            return self._characteristics("")
        local = self._accept("LOCAL")
        if not local:
            self._accept("SESSION")
        for words, name in NAMES.items():
            if self._accept(*words.upper().split()):
                self._accept("TO") or self._accept("=")
                return SetTo(name, self._value(), local)
        name = self._dotted()
        if not (self._accept("TO") or self._accept("=") or name in ("role", "authorization")):
            raise self._unexpected()
        return SetTo({"authorization": "session_authorization"}.get(name, name), self._value(), local)

    def _value(self) -> str | None:
        """Return the rest as the value of a setting, a list with commas; None for DEFAULT."""
        parts, signs = [], ""
        while self._peek() is not None:
            token = self._take()
            if token.token_type == TokenType.COMMA:
                parts.append("")
            elif token.text in ("-", "+") and token.token_type != TokenType.STRING:
                signs = token.text
            else:
                parts = parts or [""]
                parts[-1] += (" " if parts[-1] and not signs and token.text != "%" else "") + signs + token.text
                signs = ""
        if not parts:
            raise self._unexpected()
        if len(parts) == 1 and parts[0].upper() == "DEFAULT":
            return None
        return ", ".join(parts)

    def _characteristics(self, prefix: str) -> SetTo:
        """Read the modes of a transaction, and keep the first: none of them changes anything."""
        modes = self._modes(prefix)
        if not modes:
            raise self._unexpected()
        return modes[0]

    def _modes(self, prefix: str = "") -> tuple[SetTo, ...]:
        """Read the modes of a transaction, as the settings that show them."""
        found = []
        while self._peek() is not None:
            found.append(self._mode(prefix))
            if self._peek() is not None:
                self._accept(",")
        return tuple(found)

    def _mode(self, prefix: str) -> SetTo:
        for words, (name, value) in MODES.items():
            if self._accept(*words.upper().split()):
                return SetTo(prefix + name, value)
        raise self._unexpected()

    def _show(self) -> Show:
        self._take()
        for words, name in NAMES.items():
            if self._accept(*words.upper().split()):
                return Show(name)
        if self._accept("SESSION", "AUTHORIZATION"):
            return Show("session_authorization")
        return Show(self._dotted())

    def _reset(self) -> Reset:
        self._take()
        for words, name in NAMES.items():
            if self._accept(*words.upper().split()):
                return Reset(name)
        if self._accept("SESSION", "AUTHORIZATION"):
            return Reset("session_authorization")
        name = self._dotted()
        return Reset(None if name == "all" else name)

    def _begin(self) -> Begin:
        first = self._take().text.upper()
        if first == "START":
            self._expect("TRANSACTION")
        elif not self._accept("TRANSACTION"):
            self._accept("WORK")
        return Begin("START TRANSACTION" if first == "START" else "BEGIN", self._modes())

    def _finish(self) -> End | Savepoint:
        verb = self._take().text.upper()
        if self._word() == "PREPARED" or verb == "PREPARE":
            raise Unsupported("transactions can't be prepared", hint="the gate only reads: use COMMIT")
        self._accept("WORK") or self._accept("TRANSACTION")
        if verb == "ROLLBACK" and self._accept("TO"):
            self._accept("SAVEPOINT")
            return Savepoint("ROLLBACK", self._name())
        chain = not self._accept("AND", "NO", "CHAIN") and self._accept("AND", "CHAIN")
        return End(commit=verb in ("COMMIT", "END"), chain=chain)

    def _savepoint(self) -> Savepoint:
        verb = self._take().text.upper()
        if verb == "RELEASE":
            self._accept("SAVEPOINT")
        return Savepoint(verb, self._name())

    def _declare(self) -> Declare:
        self._take()
        name, binary, forward_only, hold = self._name(), False, False, False
        while not self._accept("CURSOR"):
            binary |= self._word() == "BINARY"
            forward_only |= self._accept("NO", "SCROLL")
            if not forward_only or self._word() != "CURSOR":
                if self._word() not in ("BINARY", "INSENSITIVE", "ASENSITIVE", "SCROLL"):
                    raise self._unexpected()
                self._take()
        if self._accept("WITH", "HOLD"):
            hold = True
        else:
            self._accept("WITHOUT", "HOLD")
        self._expect("FOR")
        return Declare(name, self._rest(), binary, hold, forward_only)

    def _fetch(self) -> Fetch:
        move = self._take().text.upper() == "MOVE"
        way, count = self._direction()
        self._accept("FROM") or self._accept("IN")
        return Fetch(self._name(), way, count, move)

    def _direction(self) -> tuple[str, int | None]:
        simple = {
            "NEXT": ("forward", 1),
            "PRIOR": ("backward", 1),
            "FIRST": ("absolute", 1),
            "LAST": ("absolute", -1),
            "ALL": ("forward", None),
        }
        following = self._tokens[self._place + 1 :]
        word = self._word() if following else ""  # FETCH next: a cursor may have such a name
        if word in simple:
            self._take()
            return simple[word]
        if word in ("ABSOLUTE", "RELATIVE"):
            self._take()
            return word.lower(), self._number()
        if word in ("FORWARD", "BACKWARD"):
            self._take()
            if self._accept("ALL"):
                return word.lower(), None
            return word.lower(), self._number() if self._is_number() else 1
        return ("forward", self._number()) if self._is_number() else ("forward", 1)

    def _is_number(self) -> bool:
        token = self._peek()
        return token is not None and (token.text in ("-", "+") or token.token_type == TokenType.NUMBER)

    def _number(self) -> int:
        sign = -1 if self._accept("-") else 1
        self._accept("+")
        token = self._peek()
        number = None if token is None else whole(token.text, most=10**18)
        if number is None:
            raise self._unexpected()
        self._take()
        return sign * number

    def _close(self) -> CloseCursor:
        self._take()
        return CloseCursor(None if self._accept("ALL") else self._name())

    def _deallocate(self) -> Deallocate:
        self._take()
        self._accept("PREPARE")
        return Deallocate(None if self._accept("ALL") else self._name())

    def _discard(self) -> Discard:
        self._take()
        what = self._take().text.upper()
        if what not in ("ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY"):
            self._place -= 1
            raise self._unexpected()
        return Discard(what)

    def _unlisten(self) -> Unlisten:
        self._take()
        self._take()
        return Unlisten()

    # COPY

    def _copy(self) -> Copy:
        first = self._take()
        if self._word() != "(":
            raise Forbidden(
                "COPY of a table is not allowed: single rows are never shown",
                hint="use COPY (SELECT …) TO STDOUT with an aggregate",
                span=(first.start, first.end),
            )
        closing = self._closing()
        self._take()
        query = self._rest(closing)
        self._expect(")")
        if self._word() == "FROM":
            raise Forbidden("COPY FROM is not allowed: the gate only reads", hint="ask with SELECT")
        self._expect("TO")
        if not self._accept("STDOUT"):
            raise Forbidden("COPY only writes to STDOUT", hint="use COPY (SELECT …) TO STDOUT")
        return _copy_with(query, self._options())

    def _closing(self) -> int:
        """Return the index of the parenthesis that closes the next one."""
        depth = 0
        for index in range(self._place, len(self._tokens)):
            kind = self._tokens[index].token_type
            depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
            if depth == 0:
                return index
        raise SyntaxRefusal("a parenthesis is not closed", hint="write it as PostgreSQL would read it")

    def _options(self) -> dict[str, str | None]:
        """Return the options of COPY by name, in the form with parentheses or in the older one without."""
        self._accept("WITH")
        if not self._accept("("):
            return self._old_options()
        found: dict[str, str | None] = {}
        while not self._accept(")"):
            name = self._name()
            words = []
            while self._word() not in (",", ")"):
                words.append(self._take().text)
                if words[-1] == "(":
                    while words[-1] != ")":
                        words.append(self._take().text)
            found[name] = "".join(words) if words else None
            self._accept(",")
        return found

    def _old_options(self) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        while self._peek() is not None:
            name = self._name()
            if name in ("csv", "binary"):
                found["format"] = name
            elif name == "header":
                found["header"] = None
            elif name in ("delimiter", "delimiters", "null", "quote", "escape"):
                self._accept("AS")
                found[name.removesuffix("s")] = self._take().text
            else:
                self._place -= 1
                raise self._unexpected()
        return found


def _copy_with(query: Ask, options: dict[str, str | None]) -> Copy:
    form = (options.pop("format", None) or "text").lower()
    if form not in ("text", "csv", "binary"):
        raise BadValue(f"COPY format {form!r} is not known", hint="there are: text, csv, binary")
    csv = form == "csv"
    quote = options.pop("quote", None) or '"'
    found = Copy(
        query=query,
        format=form,
        delimiter=_character("delimiter", options.pop("delimiter", None) or ("," if csv else "\t")),
        null=_null(options, "" if csv else "\\N"),
        header=_flag(options.pop("header", "off")),
        quote=_character("quote", quote),
        escape=_character("escape", options.pop("escape", None) or quote),
        force_quote=_columns(options.pop("force_quote", "()")),
    )
    encoding = (options.pop("encoding", None) or "utf8").lower().replace("-", "").replace("_", "")
    if encoding not in ("utf8", "unicode"):
        raise Unsupported("COPY writes UTF-8 only", hint="leave ENCODING out")
    if options:
        raise SyntaxRefusal(f"option {next(iter(options))!r} not recognized", hint="there are: FORMAT, HEADER, …")
    return found


def _null(options: dict[str, str | None], default: str) -> str:
    found = options.pop("null", default) if "null" in options else default
    return "" if found is None else found


def _character(name: str, value: str) -> str:
    if len(value.encode()) != 1 or value in ("\n", "\r"):
        raise BadValue(f"COPY {name} must be a single one-byte character", hint="for example: ','")
    return value


def _flag(value: str | None) -> bool:
    return value is None or value.lower() in ("true", "on", "1", "match")


def _columns(value: str | None) -> tuple[str, ...] | None:
    if value in ("*", None):
        return None
    return tuple(name for name in str(value).strip("()").split(",") if name)
