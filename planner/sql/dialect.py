"""PostgreSQL's SQL as the gate reads it: sqlglot's dialect, but for what that would lose or take for something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser

DIALECT = "postgres"
"""What sqlglot calls the SQL that clients write."""

AS_WRITTEN = ("DATE_PART", "TO_CHAR", "TO_DATE", "TO_TIMESTAMP", "TO_NUMBER", "ENCODE", "DECODE", "TO_HEX", "DATE_BIN")
"""Functions whose arguments sqlglot would translate, and lose what it does not know."""

_ONE_PART = re.compile(r"\s*[-+]?\d+(\.\d+)?\s*[a-zA-Z]+\s*")


def _as_written(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    return lambda arguments: exp.Anonymous(this=name.lower(), expressions=arguments)


class Sql(Postgres):
    """PostgreSQL's dialect, with arguments of some functions and parts of intervals left as they are written."""

    class Parser(PostgresParser):
        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {
            **PostgresParser.FUNCTIONS,
            **{name: _as_written(name) for name in AS_WRITTEN},
        }

        FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {
            name: parse for name, parse in PostgresParser.FUNCTION_PARSERS.items() if name not in AS_WRITTEN
        }

        def _parse_interval(self, *arguments: Any, **options: Any) -> Any:  # a cast, which sqlglot does not expect
            """Read an interval of several parts as a cast: sqlglot 30.30 keeps the first part and drops the rest."""
            place = self._index
            found: exp.Expr | None = super()._parse_interval(*arguments, **options)
            if not isinstance(found, exp.Interval) or self._tokens[place + 1].token_type.name != "STRING":
                return found
            text = self._tokens[place + 1].text
            if _ONE_PART.fullmatch(text) or self._index > place + 2:
                return found
            return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build("interval"))
