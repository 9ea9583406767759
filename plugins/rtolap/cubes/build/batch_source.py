"""The source of a batch, as records of the cube's topic would be: one JSON text a row.

A column of text may hold a number, a truth value or a time, as CSV has them: it is written as what the table
declares where it is one, and as text where it is not, so that the decoder names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rtolap.base.errors import DefinitionError
from rtolap.model.batch import BatchSource
from rtolap.model.cube import Schema
from rtolap.model.table import VALUE

RECORD = "record"
_UNIX = {"epoch_s": F.unix_seconds, "epoch_ms": F.unix_millis, "epoch_us": F.unix_micros}
_OF_TEXT = {"int": "bigint", "bigint": "bigint", "double": "double", "boolean": "boolean"}
_INSTANTS = (T.TimestampType, T.TimestampNTZType, T.DateType)


def read_source(spark: SparkSession, source: BatchSource, environment: Mapping[str, str]) -> DataFrame:
    """Raises DefinitionError where a secret is not in the environment."""
    missing = sorted(set(source.secrets.values()) - set(environment))
    if missing:
        raise DefinitionError(
            "the batch source has secrets that the driver does not know",
            expected=f"variables {', '.join(missing)} in its environment",
        )
    options = source.options | {name: environment[variable] for name, variable in source.secrets.items()}
    reader = spark.read.format(source.format).options(**options)
    return reader.load() if source.path is None else reader.load(source.path)


def schema_of_batch(rows: DataFrame, schema: Schema, source: BatchSource) -> Schema:
    """Return the schema as a batch has it: flat JSON, without what only a stream states. Instants that the
    source has as such are written as ISO 8601, whatever the stream has.

    Raises DefinitionError for a column that the source has not.
    """
    table = msgspec.structs.replace(
        schema.table,
        host_column=None,
        heartbeat_column=None,
        watermark_records=None,
        unknown_columns="ignore",
    )
    kinds = _kinds(rows, Schema(table, schema.cube), source)
    columns = []
    for column in table.columns:
        is_instant = isinstance(kinds.get(column.name), _INSTANTS)
        time_format = "iso8601" if is_instant else column.format
        columns.append(msgspec.structs.replace(column, path=None, source=VALUE, format=time_format))
    time = table.time
    if isinstance(kinds[time.column], _INSTANTS) and time.format not in _UNIX:
        time = msgspec.structs.replace(time, format="iso8601")
    flat = msgspec.structs.replace(table, columns=tuple(columns), time=time, format="json")
    return Schema(flat, schema.cube)


def _kinds(rows: DataFrame, schema: Schema, source: BatchSource) -> dict[str, T.DataType]:
    """Return the type of the source's column for each that the cube reads."""
    lacking = sorted(
        path
        for path in (source.column_path(name) for name in schema.read_columns)
        if path.partition(".")[0] not in rows.columns
    )
    if lacking:
        raise DefinitionError(
            f"the batch source lacks columns that cube {schema.cube.name} reads",
            expected=", ".join(lacking),
            found=", ".join(rows.columns),
            action="name the source's columns by `columns:`",
        )
    found = rows.select(*(_column(source, name).alias(name) for name in schema.read_columns)).schema
    return {field.name: field.dataType for field in found}


def _column(source: BatchSource, name: str) -> Column:
    path = "`.`".join(source.column_path(name).split("."))
    return F.col(f"`{path}`")


def as_records(rows: DataFrame, schema: Schema, source: BatchSource) -> DataFrame:
    """Return a column of JSON texts. `schema`: of `schema_of_batch`."""
    members = []
    for name, kind in _kinds(rows, schema, source).items():
        key = F.lit(f"{msgspec.json.encode(name).decode()}:")
        members.append(F.concat(key, _value(schema, name, _column(source, name), kind)))
    return rows.select(F.concat(F.lit("{"), _with_commas(members), F.lit("}")).alias(RECORD))


def _with_commas(members: list[Column]) -> Column:
    return reduce(lambda text, member: F.concat(text, F.lit(","), member), members)


def _value(schema: Schema, name: str, column: Column, kind: T.DataType) -> Column:
    """Return the JSON text of a value."""
    time = schema.table.time
    if name == time.column and time.format in _UNIX and isinstance(kind, _INSTANTS):
        return F.coalesce(_UNIX[time.format](column.cast("timestamp")).cast("string"), F.lit("null"))
    declared = schema.table.column(name).column_type.kind
    if declared == "string" and not isinstance(kind, T.StringType):
        return _json(column.cast("string"))
    if isinstance(kind, T.StringType) and declared in _OF_TEXT:
        return F.coalesce(F.trim(column).try_cast(_OF_TEXT[declared]).cast("string"), _json(column))
    return _json(column)


def _json(column: Column) -> Column:
    """Return the value's JSON, cut out of the struct that Spark writes."""
    whole = F.to_json(F.struct(column.alias("v")), {"ignoreNullFields": "false"})
    return F.substr(whole, F.lit(6), F.length(whole) - F.lit(6))
