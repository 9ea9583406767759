"""A cuboid's columns as an Iceberg schema, and the properties of its table."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
)

from rtolap.column_types import ColumnType
from rtolap.columnar.schema import field_ids
from rtolap.model.cube import Cuboid, Schema
from rtolap.model.publication import Publication

NAME_MAPPING = "schema.name-mapping.default"
CUBE, CUBE_ID, CUBOID, PUBLICATION = "rtolap.cube", "rtolap.cube-id", "rtolap.cuboid", "rtolap.publication"
_METADATA_FILES_MAX = 10
_TYPES: Mapping[str, PrimitiveType] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
}


def iceberg_type(column_type: ColumnType) -> PrimitiveType:
    if column_type.kind == "decimal":
        return DecimalType(column_type.precision, column_type.scale)
    return _TYPES[column_type.kind]


def cube_schema(schema: Schema) -> IcebergSchema:
    """Return all physical columns of the cube. A catalog that numbers fields by itself counts from 1 in their
    order, and so gives them the ids that are in the Parquet files."""
    types = {name: schema.dimension_type(name) for name in schema.cube.all_dimensions}
    types |= {partial.name: partial.type for partial in schema.partials}
    return IcebergSchema(
        *(
            NestedField(number, name, iceberg_type(types[name]), required=False, doc=_doc(schema, name))
            for name, number in field_ids(schema).items()
        )
    )


def cuboid_columns(schema: Schema, cuboid: Cuboid) -> tuple[str, ...]:
    """Return the columns of the cuboid's table."""
    return (*cuboid.dimensions, *(partial.name for partial in schema.partials))


def cuboid_schema(schema: Schema, cuboid: Cuboid) -> IcebergSchema:
    return cube_schema(schema).select(*cuboid_columns(schema, cuboid))


def same_columns(table: IcebergSchema, wanted: IcebergSchema) -> bool:
    """Compare ids, names and types, which readers find the columns in files by."""
    return _columns(table) == _columns(wanted)


def _columns(schema: IcebergSchema) -> set[tuple[int, str, str]]:
    return {(field.field_id, field.name, str(field.field_type)) for field in schema.fields}


def table_properties(
    publication: Publication, schema: Schema, cuboid: Cuboid, cube_id: str
) -> dict[str, str]:
    """Return the properties that the publisher relies upon, and sets again where somebody changed them.

    - Nobody else may delete data files with the table: they are the object store's (`gc.enabled`).
    - A commit whose snapshot is no longer the newest fails: it is never made anew on top of another's.
    - Old metadata files are deleted, manifests are joined.
    - Files of older builds have no ids: their columns are found by name.
    """
    sketches = [partial.name for partial in schema.partials if partial.type.kind == "binary"]
    return {
        CUBE: publication.cube,
        CUBE_ID: cube_id,
        CUBOID: cuboid.name,
        PUBLICATION: publication.name,
        "gc.enabled": "false",
        "commit.retry.num-retries": "0",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": str(_METADATA_FILES_MAX),
        "commit.manifest-merge.enabled": "true",
        "commit.manifest.min-count-to-merge": "10",
        "commit.manifest.target-size-bytes": str(1 << 20),
        NAME_MAPPING: cuboid_schema(schema, cuboid).name_mapping.model_dump_json(),
        **{f"write.metadata.metrics.column.{name}": "counts" for name in sketches},
    }


def _doc(schema: Schema, name: str) -> str:
    for partial in schema.partials:
        if partial.name == name:
            return f"partial, merged over rows by Spark's {partial.accumulator.spark_merge(f'`{name}`')}"
    return "dimension"
