"""Lookups that are small files: read whole, kept until they change."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from rtolap.base.errors import Corrupted, QueryError
from rtolap.columnar.schema import arrow_type
from rtolap.model.table import Lookup

BYTES_MAX = 256 << 20  # "small": it is held in memory and handed to every query that names it


class Lookups:
    """Thread-safe. Relative file names stand below `folder`. Empty strings in CSV are strings, not NULL."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._loaded: dict[str, tuple[tuple[str, int, int], Lookup, pa.Table]] = {}

    def read(self, lookup: Lookup) -> pa.Table:
        """Raises QueryError if the file is missing, Corrupted if it does not fit its definition."""
        assert lookup.file is not None, "a lookup over a stored table is read as that"
        path = self._folder / lookup.file
        try:
            status = path.stat()
        except OSError as error:
            raise QueryError(
                f"the file of lookup {lookup.name} cannot be read",
                expected=str(lookup.file),
                found=error.strerror,
                action="put it into the include folder of the query service (RTOLAP_INCLUDE_DIR)",
            ) from error
        if status.st_size > BYTES_MAX:
            raise QueryError(f"lookup {lookup.name} is too large", expected=f"<= {BYTES_MAX} bytes")
        identity = (str(path), status.st_mtime_ns, status.st_size)
        with self._lock:
            known = self._loaded.get(lookup.name)
        if known is not None and known[0] == identity and known[1] == lookup:
            return known[2]
        table = _load(path, lookup)
        with self._lock:
            self._loaded[lookup.name] = (identity, lookup, table)
        return table

    def empty(self, lookup: Lookup) -> pa.Table:
        return _schema(lookup).empty_table()


def _schema(lookup: Lookup) -> pa.Schema:
    return pa.schema([pa.field(column.name, arrow_type(column.column_type)) for column in lookup.columns])


def _load(path: Path, lookup: Lookup) -> pa.Table:
    schema = _schema(lookup)
    try:
        if path.suffix == ".parquet":
            table = pa.parquet.read_table(path, columns=schema.names)
        else:
            options = pa.csv.ConvertOptions(column_types=schema, include_columns=schema.names)
            table = pa.csv.read_csv(path, convert_options=options)
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, KeyError) as error:
        raise Corrupted(
            f"lookup {lookup.name} does not fit its definition",
            expected=", ".join(f"{column.name} {column.type}" for column in lookup.columns),
            found=str(error),
        ) from error
