"""Tables as lazy frames of Polars, which push columns, conditions and limits down into scans.

Polars marks its interface for sources of data as unstable, so nothing else of this package uses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from rockmill._rockmill import Table

_COMPARISONS = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_CONNECTIVES = {"And": "and", "LogicalAnd": "and", "Or": "or", "LogicalOr": "or"}


def scan(table: Table) -> pl.LazyFrame:
    """A table as a lazy frame.

    Scans read the columns that the query needs, and compute conditions that compare columns with constants. Polars computes
    the others. The query sees the database as it is when it is collected.
    """
    schema = pl.DataFrame(table.scan(limit=0)).schema

    def source(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        condition = None if predicate is None else _sql(predicate, schema)
        # Polars' own condition is applied in any case, so a limit may only follow one that the scan computes whole.
        limit = n_rows if predicate is None else None
        columns = with_columns
        if columns is not None and predicate is not None:
            columns = list(dict.fromkeys([*columns, *predicate.meta.root_names()]))
        left = n_rows
        for batch in table.scan(columns, condition, limit=limit).batches():
            frame = pl.DataFrame(batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            if with_columns is not None:
                frame = frame.select(with_columns)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame
            if left == 0:
                return

    return register_io_source(source, schema=schema, validate_schema=True)


def _sql(predicate: pl.Expr, schema: pl.Schema) -> str | None:
    """A condition that all rows of the predicate satisfy, in SQL; ``None`` if there is none."""
    try:
        node = json.loads(predicate.meta.serialize(format="json"))
    except (ValueError, TypeError, pl.exceptions.PolarsError):
        return None
    return _condition(node, predicate, schema)


def _condition(node: Any, predicate: pl.Expr, schema: pl.Schema) -> str | None:
    """Nodes whose form is not known are left to Polars."""
    match node:
        case {"BinaryExpr": {"left": left, "op": str(op), "right": right}} if op in _CONNECTIVES:
            parts = [_condition(left, predicate, schema), _condition(right, predicate, schema)]
            known = [part for part in parts if part is not None]
            if len(known) == 2:
                return f"({known[0]} {_CONNECTIVES[op]} {known[1]})"
            # Fewer conditions leave more rows, which Polars filters.
            return known[0] if known and _CONNECTIVES[op] == "and" else None
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": str(op), "right": right}} if op in _COMPARISONS:
            constant = _constant(right, schema.get(name))
            return None if constant is None else f"{_quoted(name)} {_COMPARISONS[op]} {constant}"
    return None


def _constant(node: Any, dtype: Any) -> str | None:
    """A constant of integers, texts or booleans in SQL."""
    match node:
        case {"Literal": inner}:
            node = inner
        case _:
            return None
    while isinstance(node, dict) and len(node) == 1:
        (node,) = node.values()
    if isinstance(node, bool):
        return str(node).lower() if dtype == pl.Boolean else None
    if isinstance(node, int):
        return str(node) if dtype is not None and dtype.is_integer() else None
    if isinstance(node, str):
        return "'" + node.replace("'", "''") + "'" if dtype == pl.String else None
    return None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


__all__ = ["scan"]
