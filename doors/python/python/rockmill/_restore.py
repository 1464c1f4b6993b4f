"""Makes objects again that were pickled."""

from __future__ import annotations

from typing import Any

from rockmill._rockmill import Database, Table


def table(database: Database, family: str, key: str | None, value: str | None, schema: Any) -> Table:
    """The table of a database with a layout."""
    return database.table(family, key=key, value=value, schema=schema)
