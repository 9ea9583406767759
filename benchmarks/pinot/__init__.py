"""Bytes of an Apache Pinot segment of given rows, written by Pinot's own code."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
from pyarrow import types

_OPENED = tuple(  # what Pinot's buffers need of Java 17
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "java.lang")
)


def segment_bytes(rows: pa.Table, dimensions: Collection[str], jars: Path, *, indexed: bool) -> int:
    """Return the bytes of a segment of these rows.

    Text and `dimensions` have dictionaries; other numbers are raw metrics in Pinot's default compression, as
    those of tables that are aggregated on ingest. Decimals are counted in their smallest unit, as longs.
    `indexed`: dimensions have inverted indexes.

    Raises:
        subprocess.CalledProcessError: no JDK, or jars are missing; Java has said why.
    """
    fields = {field.name: pa.types.is_string(field.type) or field.name in dimensions for field in rows.schema}
    with tempfile.TemporaryDirectory(prefix="rtolap-pinot-") as name:
        folder = Path(name)
        documents = {"rows.json": _lines(rows), "schema.json": json.dumps(_schema(fields, rows.schema))}
        documents["table.json"] = json.dumps(_table(fields, indexed=indexed))
        for file, text in documents.items():
            (folder / file).write_text(text)
        paths = (folder / "rows.json", folder / "out", folder / "schema.json", folder / "table.json")
        source = Path(__file__).with_name("PinotSegment.java")
        command = ["java", *_OPENED, "-Xmx2g", "-cp", f"{jars}/*", str(source), *map(str, paths)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return int(printed.split()[-1])


def _lines(rows: pa.Table) -> str:
    columns = []
    for field in rows.schema:
        column = rows[field.name]
        if types.is_decimal(field.type):
            column = column.cast(pa.decimal128(38, field.type.scale)).to_pylist()
            columns.append(
                [None if value is None else int(value.scaleb(field.type.scale)) for value in column]
            )
        elif types.is_temporal(field.type):
            columns.append(column.cast(pa.int64()).to_pylist())
        else:
            columns.append(column.to_pylist())
    names = rows.schema.names
    return "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))


def _schema(fields: dict[str, bool], schema: pa.Schema) -> dict[str, object]:
    def spec(name: str) -> dict[str, str]:
        return {"name": name, "dataType": "STRING" if types.is_string(schema.field(name).type) else "LONG"}

    return {
        "schemaName": "rows",
        "dimensionFieldSpecs": [spec(name) for name, dimension in fields.items() if dimension],
        "metricFieldSpecs": [spec(name) for name, dimension in fields.items() if not dimension],
    }


def _table(fields: dict[str, bool], *, indexed: bool) -> dict[str, object]:
    dimensions = [name for name, dimension in fields.items() if dimension]
    return {
        "tableName": "rows",
        "tableType": "OFFLINE",
        "segmentsConfig": {"replication": "1"},
        "tenants": {},
        "tableIndexConfig": {
            "loadMode": "MMAP",
            "noDictionaryColumns": [name for name, dimension in fields.items() if not dimension],
            "invertedIndexColumns": dimensions if indexed else [],
            "createInvertedIndexDuringSegmentGeneration": indexed,
        },
        "metadata": {},
    }
