"""Lookups that are small files: read whole, and cached until they change.

The path in a definition is untrusted here, even if it was checked where it was declared. A file is read only
if it lies below the include folder when all symbolic links are followed, and no error repeats its content.
"""

from __future__ import annotations

import re
import stat
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from rtolap.base.errors import Corrupted, QueryError
from rtolap.columnar.schema import arrow_type
from rtolap.model.table import Lookup
from rtolap.model.validation.lookup import relative_file_expectation

_COLUMN = re.compile(r"^In CSV column #(\d+): ")
_WIDTH = re.compile(r"Expected (\d+) columns, got (\d+)")
BYTES_MAX = 256 << 20  # "small": it is in memory, and every query that names it reads it


class Lookups:
    """Lookups that are files. It is thread-safe. Relative file names stand below `folder`. Empty strings in
    CSV are strings, not NULL."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._loaded: dict[str, tuple[tuple[str, int, int], Lookup, pa.Table]] = {}

    def read(self, lookup: Lookup) -> pa.Table:
        """Read a lookup. Raises QueryError if the file is missing, Corrupted if it does not fit its
        definition."""
        assert lookup.file is not None, "a lookup over a stored table is read as that"
        try:
            path = self._resolved(lookup.name, lookup.file)
            status = path.stat()
        except OSError as error:
            raise QueryError(
                f"the file of lookup {lookup.name} cannot be read",
                expected=str(lookup.file),
                found=error.strerror,
                action="put it into the include folder of the query service (RTOLAP_INCLUDE_DIR)",
            ) from error
        if not stat.S_ISREG(status.st_mode):
            raise QueryError(f"lookup {lookup.name} is no regular file", expected="CSV or Parquet")
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

    def _resolved(self, name: str, file: str) -> Path:
        """Return where the file is. Raises QueryError for one that lies elsewhere, OSError for none."""
        folder = self._folder.resolve()
        expected = relative_file_expectation(file)
        if expected is None and not file.endswith((".csv", ".parquet")):
            expected = "*.csv or *.parquet"
        path = folder if expected is not None else (folder / file).resolve(strict=True)
        if expected is None and not path.is_relative_to(folder):
            expected = "a file below the include folder, also where a symbolic link leads elsewhere"
        if expected is not None:
            raise QueryError(
                f"the file of lookup {name} is not read",
                expected=expected,
                found=repr(file),
                action="put it into the include folder of the query service (RTOLAP_INCLUDE_DIR)",
            )
        return path

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
    except (pa.ArrowException, KeyError, OSError, ValueError) as error:
        raise Corrupted(
            f"lookup {lookup.name} does not fit its definition",
            expected=", ".join(f"{column.name} {column.type}" for column in lookup.columns),
            found=_described(error, schema),
        ) from None  # Arrow repeats values and whole lines in its words: logs and clients get none


def _described(error: Exception, schema: pa.Schema) -> str:
    """Return what is wrong with a file in words of the definition, never in those of the file."""
    text = str(error)
    missing = [name for name in schema.names if f"'{name}'" in text and "does not exist" in text]
    if missing:
        return f"no column {', '.join(missing)}"
    if (place := _COLUMN.search(text)) is not None:
        return f"a value of another type in column #{place.group(1)} of the file"
    if (counts := _WIDTH.search(text)) is not None:
        return f"a line of {counts.group(2)} values where the first has {counts.group(1)}"
    return f"something else ({type(error).__name__})"
