"""Which of DuckDB's types are numbers, times, bytes or text."""

from __future__ import annotations

import re

_NUMBERS = (
    "TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT BIGNUM "
    "FLOAT DOUBLE DECIMAL BOOLEAN"
)
_TIMES = "DATE TIME TIMETZ TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS INTERVAL"
_FAMILIES = {
    **dict.fromkeys(_NUMBERS.split(), "NUMBER"),
    **dict.fromkeys(_TIMES.split(), "DATETIME"),
    **dict.fromkeys(("BLOB", "BIT"), "BINARY"),
}


def family(type_name: str) -> str:
    """Return NUMBER, DATETIME, BINARY or STRING; what is nothing else is text.

    >>> family("DECIMAL(18,3)"), family("TIMESTAMP WITH TIME ZONE"), family("INTEGER[]")
    ('NUMBER', 'DATETIME', 'STRING')
    """
    if type_name.endswith("]"):
        return "STRING"
    base = re.split(r"[( ]", type_name, maxsplit=1)[0]  # DECIMAL(18,3), TIMESTAMP WITH TIME ZONE
    return _FAMILIES.get(base.upper(), "STRING")
