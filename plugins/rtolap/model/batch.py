"""Batches: a range of a cube's event time out of another source than its topic.

A batch says what segments hold, all of each and in place of what the stream had said. It is planned by the
coordinator, which names segments and vectors, staged by `spark_jobs/stage_batch.py`, which reads the source
and rolls it up, and applied by the coordinator, which has the staged parts built into versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from rtolap.base.errors import DefinitionError
from rtolap.model.cube import Cube
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentRange
from rtolap.model.table import Table

BATCH_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
ROWS_FOLDER = re.compile(r"rows(?:-[0-9a-f]{12})?")
"""The folder of a try at staging, below the batch's folder. Earlier versions had no mark of the try."""
SourceFormat = Literal["parquet", "orc", "csv", "json", "jdbc", "iceberg"]
_COLUMN = re.compile(r"[^`.\x00]{1,128}(\.[^`.\x00]{1,128})*")
SEGMENTS_MAX = 20_000  # of a batch
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,127}")
_PATH = re.compile(r"[A-Za-z0-9_./:+=,@~*{}-]{1,1024}")
# Options of Spark's readers that say how rows are written, never what else is opened, loaded or run.
_FILES = ("recursiveFileLookup", "pathGlobFilter")
_CSV = ("header", "sep", "quote", "escape", "encoding", "comment", "nullValue", "emptyValue", "multiLine")
_SPACE = ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")
_PARTS = ("fetchsize", "partitionColumn", "lowerBound", "upperBound", "numPartitions")
OPTIONS: Mapping[SourceFormat, frozenset[str]] = {
    "parquet": frozenset(("mergeSchema", *_FILES)),
    "orc": frozenset(("mergeSchema", *_FILES)),
    "csv": frozenset((*_CSV, *_SPACE, *_FILES)),
    "json": frozenset(("multiLine", "encoding", "primitivesAsString", *_FILES)),
    "jdbc": frozenset(("url", "dbtable", "user", *_PARTS)),
    "iceberg": frozenset(("snapshot-id", "as-of-timestamp", "branch", "tag")),
}
SECRETS: Mapping[SourceFormat, frozenset[str]] = {"jdbc": frozenset(("user", "password"))}
_SNAPSHOTS = OPTIONS["iceberg"]
_BOUNDS = frozenset(("partitionColumn", "lowerBound", "upperBound"))
_COUNTS = frozenset(("numPartitions", "fetchsize", "as-of-timestamp", "snapshot-id"))
_COUNT = re.compile(r"[0-9]{1,19}")
# As URLs of databases carry them: `?password=`, `;pwd=`, `//user:password@`, `thin:user/password@`
_CREDENTIALS = re.compile(
    r"(?i)[?&;](password\d?|passwd|pwd|passphrase)=|//[^/@]*:[^/@]*@|thin:[^@/]+/[^@]+@"
)
_TABLE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){0,2}")


class BatchSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Rows that Spark can read, each an event.

    Attributes:
        path: of files and folders as Spark names them, or the name of an Iceberg table; none for jdbc.
        options: of Spark's reader, as `header` of csv or `dbtable` of jdbc. Secrets are no options.
        secrets: options whose values the driver reads from its environment: option → variable.
        columns: columns of the source by column of the stream table, with dots into structs; a column that is
            not named has the same name there.
        outside: what becomes of rows whose event time lies outside the range: the batch is refused, or they
            are left out.
    """

    format: SourceFormat
    path: str | None = None
    options: dict[str, str] = {}
    secrets: dict[str, str] = {}
    columns: dict[str, str] = {}
    outside: Literal["refuse", "leave_out"] = "refuse"

    def column_path(self, column: str) -> str:
        """Return the source's column for one of the stream table."""
        return self.columns.get(column, column)


class BatchSegment(msgspec.Struct, frozen=True):
    """A segment of a batch.

    Attributes:
        version: the version that the batch becomes.
        ranges: from where the cube begins to the vector below which the batch speaks for the segment.
        is_recorded: False for a segment that has no record; it gets one if the batch has rows of it.
    """

    segment: str
    version: int
    ranges: tuple[PartRange, ...]
    is_recorded: bool = True


class BatchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The work of `stage_batch.py`. Folders are relative to `object_store`.

    Attributes:
        folder: `batches/<cube>/<cube id>/<batch>`: no other batch writes there.
        segments: without gap, by start.
    """

    batch: str
    cube: str
    table_definition: Table
    cube_definition: Cube
    object_store: str
    folder: str
    start_ms: int
    end_ms: int
    segments: tuple[BatchSegment, ...]
    source: BatchSource


def check_batch_id(batch: str) -> str:
    if not BATCH_ID.fullmatch(batch):
        raise DefinitionError(
            "not the id of a batch", expected="up to 64 letters, digits, - and _", found=repr(batch)
        )
    return batch


def check_source(source: BatchSource, table: Table, columns: tuple[str, ...]) -> None:
    """Raises DefinitionError. `columns`: those of the table that the cube reads."""
    if (source.path is None) is not (source.format == "jdbc"):
        raise DefinitionError(
            f"a batch source of format {source.format}",
            expected="options and no path" if source.format == "jdbc" else "a path",
            found=repr(source.path),
        )
    _check_options(source)
    if source.path is not None and not _PATH.fullmatch(source.path):
        raise DefinitionError(
            "path of a batch source", expected="letters, digits and _./:+=,@~*{}-", found=repr(source.path)
        )
    for column, found in source.columns.items():
        if not _COLUMN.fullmatch(found):
            raise DefinitionError(
                f"source of column {column} of a batch",
                expected="a column's name, with dots into structs; no expression",
                found=repr(found),
                action="let the table compute it: see `expression` of its columns",
            )
    unknown = sorted(set(source.columns) - {column.name for column in table.columns})
    if unknown:
        raise DefinitionError(
            f"columns of a batch source that table {table.name} has not",
            expected=f"some of {', '.join(columns)}",
            found=", ".join(unknown),
        )
    computed = sorted(name for name in source.columns if table.column(name).expression is not None)
    if computed:
        raise DefinitionError(
            f"columns of a batch source that table {table.name} computes itself",
            expected="the columns that they are made of",
            found=", ".join(computed),
        )


def _check_options(source: BatchSource) -> None:
    known = OPTIONS[source.format]
    unknown = sorted(set(source.options) - known)
    if unknown:
        raise DefinitionError(
            f"options of a batch source of format {source.format}",
            expected=f"some of {', '.join(sorted(known))}",
            found=", ".join(unknown),
            action="secrets are named by `secrets: {option: VARIABLE}`",
        )
    secrets = SECRETS.get(source.format, frozenset())
    for option, variable in source.secrets.items():
        if option not in secrets or not _VARIABLE.fullmatch(variable):
            raise DefinitionError(
                f"secrets of a batch source of format {source.format}",
                expected=f"a variable's name for {', '.join(sorted(secrets)) or 'none: it takes no secret'}",
                found=f"{option}: {variable!r}",
            )
    _check_credentials(source)
    _check_reading(source)
    table, url = source.options.get("dbtable", ""), source.options.get("url", "")
    if source.format == "jdbc" and not (_TABLE.fullmatch(table) and url.startswith("jdbc:")):
        raise DefinitionError(
            "batch source of format jdbc",
            expected="url: jdbc:…, and dbtable: the name of a table or view",
            found=f"url {url!r}, dbtable {table!r}",
        )


def _check_credentials(source: BatchSource) -> None:
    if _CREDENTIALS.search(
        source.options.get("url", "")
    ):  # which is not repeated: plans and messages are read
        raise DefinitionError(
            "the URL of a batch source holds a password",
            expected="a URL without one, since plans and messages show it",
            action="name a variable of the driver's environment: `secrets: {password: VARIABLE}`",
        )


def _check_reading(source: BatchSource) -> None:
    """Check what the options of a database and of an Iceberg table say together."""
    options = source.options
    bounds = _BOUNDS & options.keys()
    if bounds and not (bounds == _BOUNDS and "numPartitions" in options):
        raise DefinitionError(
            "a batch source that is read in parts",
            expected=f"all of {', '.join(sorted(_BOUNDS | {'numPartitions'}))}",
            found=", ".join(sorted(bounds)),
        )
    if source.format == "iceberg" and len(options) > 1:
        raise DefinitionError(
            "snapshot of an Iceberg table",
            expected=f"at most one of {', '.join(sorted(_SNAPSHOTS))}",
            found=", ".join(sorted(options)),
        )
    for name in sorted(_COUNTS & options.keys()):
        if not _COUNT.fullmatch(options[name]):
            raise DefinitionError(
                f"option {name} of a batch source",
                expected="milliseconds since 1970" if name == "as-of-timestamp" else "a number of digits",
                found=repr(options[name]),
            )


def windows_of(start_ms: int, end_ms: int, window_ms: int) -> list[SegmentRange]:
    """Return the segments of a range. Raises DefinitionError where it cuts one, is empty, or too long."""
    if start_ms >= end_ms or start_ms % window_ms or end_ms % window_ms:
        raise DefinitionError(
            "range of a batch",
            expected=f"begin and end at segments, which are {window_ms} ms long",
            found=f"{SegmentRange(start_ms, end_ms).name}",
        )
    number = (end_ms - start_ms) // window_ms
    if number > SEGMENTS_MAX:  # before they are made: a plan names each
        raise DefinitionError("range of a batch", expected=f"at most {SEGMENTS_MAX} segments", found=number)
    return [SegmentRange(at, at + window_ms) for at in range(start_ms, end_ms, window_ms)]
