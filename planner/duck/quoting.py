"""Names and constants as DuckDB writes them."""

from __future__ import annotations

from functools import cache

from sqlglot import exp


@cache
def literal(value: object) -> str:
    return exp.convert(value).sql("duckdb")


@cache
def quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("duckdb")
