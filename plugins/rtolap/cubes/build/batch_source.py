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
from rtolap.cubes.build.batch_readers import keep_jvms_in_utc, reader_options
from rtolap.model.batch import BatchSource
from rtolap.model.cube import Schema
from rtolap.model.table import VALUE

RECORD = "record"
_UNIX = {"epoch_s": F.unix_seconds, "epoch_ms": F.unix_millis, "epoch_us": F.unix_micros}
_OF_TEXT = {"int": "bigint", "bigint": "bigint", "double": "double", "boolean": "boolean"}
_INSTANTS = (T.TimestampType, T.TimestampNTZType, T.DateType)
_TEXTS = (T.StringType, T.CharType, T.VarcharType, T.NullType)  # a column of nulls only has no type
_NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType, T.CalendarIntervalType)


def read_source(spark: SparkSession, source: BatchSource, environment: Mapping[str, str]) -> DataFrame:
    """Raises DefinitionError where a secret is not in the environment."""
    missing = sorted(set(source.secrets.values()) - set(environment))
    if missing:
        raise DefinitionError(
            "the batch source has secrets that the driver does not know",
            expected=f"variables {', '.join(missing)} in its environment",
        )
    if source.format == "jdbc":
        keep_jvms_in_utc(spark)
    secrets = {name: environment[variable] for name, variable in source.secrets.items()}
    options = reader_options(source) | secrets
    reader = spark.read.format(source.format).options(**options)
    return reader.load() if source.path is None else reader.load(source.path)


def schema_of_batch(rows: DataFrame, schema: Schema, source: BatchSource) -> Schema:
    """Return the schema as a batch has it: flat JSON, without what only a stream states. Instants that the
    source has as such are written as ISO 8601, whatever the stream has.

    Raises DefinitionError for a column that the source has not, and for one whose type no value of the cube's
    column can have.
    """
    table = msgspec.structs.replace(
        schema.table,
        host_column=None,
        heartbeat_column=None,
        watermark_records=None,
        unknown_columns="ignore",
    )
    kinds = _kinds(rows, Schema(table, schema.cube), source)
    _check_types(kinds, schema, source)
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


def _check_types(kinds: Mapping[str, T.DataType], schema: Schema, source: BatchSource) -> None:
    misfits = {}
    for name, kind in kinds.items():
        declared = schema.table.column(name).type
        if not _fits(kind, schema.table.column(name).column_type.kind, name == schema.table.time.column):
            misfits[f"{name} {declared}"] = f"{source.column_path(name)} {kind.simpleString()}"
    if misfits:
        raise DefinitionError(
            f"columns of the batch source have types that cube {schema.cube.name} cannot take",
            expected=", ".join(misfits),
            found=", ".join(misfits.values()),
            action="name other columns by `columns:`, or convert them in a view of the source; tinyint(1) of "
            "MySQL and MariaDB is a boolean unless the URL says tinyInt1isBit=false",
        )


def _fits(kind: T.DataType, declared: str, is_time: bool) -> bool:
    """Return True where values of the type may be ones of the declared kind; the decoder looks at each."""
    if isinstance(kind, _TEXTS):
        return True
    if isinstance(kind, _NESTED):
        return False
    if declared == "string" or (is_time and isinstance(kind, _INSTANTS)):
        return True
    if declared == "boolean":
        return isinstance(kind, T.BooleanType)
    if declared in ("date", "timestamp"):
        return isinstance(kind, (*_INSTANTS, T.NumericType))
    return isinstance(kind, T.NumericType)


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
    if isinstance(kind, T.BinaryType):
        return _text_of_bytes(column)
    if declared == "string" and not isinstance(kind, T.StringType):
        return _json(column.cast("string"))
    if isinstance(kind, T.StringType) and declared in _OF_TEXT:
        return F.coalesce(F.trim(column).try_cast(_OF_TEXT[declared]).cast("string"), _json(column))
    return _json(column)


def _text_of_bytes(column: Column) -> Column:
    """Return the JSON text of bytes that are UTF-8, and of others an object, which no decoder takes."""
    text = column.cast("string")
    others = F.concat(F.lit('{"not UTF-8":"'), F.hex(column), F.lit('"}'))
    return F.when(F.is_valid_utf8(text) | column.isNull(), _json(text)).otherwise(others)


def _json(column: Column) -> Column:
    """Return the value's JSON, cut out of the struct that Spark writes."""
    whole = F.to_json(F.struct(column.alias("v")), {"ignoreNullFields": "false"})
    return F.substr(whole, F.lit(6), F.length(whole) - F.lit(6))
