"""Names and constants as DuckDB writes them."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp


@lru_cache(maxsize=4096, typed=True)
def literal(value: object) -> str:
    return exp.convert(value).sql("duckdb")


@lru_cache(maxsize=4096)
def quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("duckdb")
