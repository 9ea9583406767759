"""A `model.predicate` becomes a condition of Spark, three-valued as SQL and exact as `columnar.filter`."""

from __future__ import annotations

from operator import and_, or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql.connect import functions as F  # noqa: N812 - as in its own pages

from rtolap.aggregates.spark_sql import quoted, spark_type
from rtolap.column_types import ColumnType
from rtolap.columnar.literals import comparison, place
from rtolap.columnar.schema import arrow_type
from rtolap.model.cube import Schema
from rtolap.model.predicate import And, Compare, In, IsNull, Like, Not, Or, Predicate, terms_of
from rtolap.query.cubes.flat_tree import flat_tree


def spark_filter(predicate: Predicate, schema: Schema) -> Column:
    """Return the condition. Raises QueryError for a value that does not compare with its column."""
    match predicate:
        case And():
            return flat_tree(
                and_, [spark_filter(term, schema) for term in terms_of(predicate)], empty=F.lit(True)
            )
        case Or():
            return flat_tree(
                or_, [spark_filter(term, schema) for term in terms_of(predicate)], empty=F.lit(False)
            )
        case Not(term=term):
            return ~spark_filter(term, schema)
        case IsNull(column=name, negated=negated):
            column = F.col(quoted(name))
            return column.isNotNull() if negated else column.isNull()
        case Like(column=name, pattern=pattern, negated=negated):
            # A pattern has no escape character here; Spark's is the backslash.
            matches = F.like(F.col(quoted(name)), F.lit(pattern.replace("\\", "\\\\")))
            return ~matches if negated else matches
        case In(column=name, values=values, negated=negated):
            matches = _is_in(name, values, schema.dimension_type(name))
            return ~matches if negated else matches
        case Compare():
            return _compare(predicate, schema.dimension_type(predicate.column))


def _compare(predicate: Compare, kind: ColumnType) -> Column:
    column = _column(predicate.column, kind)
    if predicate.value is None:
        return _nothing()
    at = place(predicate.value, arrow_type(kind))
    op = comparison(predicate.op, at)
    if isinstance(op, bool):
        return _where_valid(column, op)
    value = _literal(at.value, kind)
    match op:
        case "eq":
            return column == value
        case "ne":
            return column != value
        case "lt":
            return column < value
        case "le":
            return column <= value
    # To Spark, NaN is larger than every number; in SQL here, no comparison with it holds.
    larger = column > value if op == "gt" else column >= value
    return larger & ~F.isnan(column) if kind.kind == "double" else larger


def _is_in(name: str, values: tuple[object, ...], kind: ColumnType) -> Column:
    if not values:
        return F.lit(False)
    column = _column(name, kind)
    places = [place(value, arrow_type(kind)) for value in values if value is not None]  # type: ignore[arg-type]
    literals = [_literal(at.value, kind) for at in places if at.exact]
    matches = column.isin(*literals) if literals else _where_valid(column, False)
    return matches | _nothing() if any(value is None for value in values) else matches


def _column(name: str, kind: ColumnType) -> Column:
    """Return the column as conditions compare it.

    -0.0 equals 0.0, but not in Parquet's dictionaries: given a condition on a double as it is, Spark passes
    over files that have -0.0 alone. Behind an addition it compares the values themselves.
    """
    column = F.col(quoted(name))
    return column + F.lit(0.0) if kind.kind == "double" else column


def _literal(value: Any, kind: ColumnType) -> Column:
    if kind.kind in ("string", "boolean", "double"):
        return F.lit(value)
    # As text, which Spark reads exactly and computes once: a datetime would be taken in the client's zone.
    return F.lit(str(value)).cast(spark_type(kind))


def _where_valid(column: Column, value: bool) -> Column:
    return F.when(column.isNotNull(), F.lit(value))


def _nothing() -> Column:
    return F.lit(None).cast("boolean")
