"""What clients ask about the database itself, answered from the policy alone, never from the protected source.

PostgreSQL's own catalog lies beside this module as it is in every PostgreSQL; the tables, views and columns of the
policy are added to it in a DuckDB that reaches nothing else, and statements are rewritten for it as trees. SELECTs
without a table are evaluated there as well.
"""

from __future__ import annotations

from proxy.catalog.answer import Catalog

__all__ = ["Catalog"]
