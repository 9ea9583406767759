"""Files of history in memory, as far as there is room: decoded once, since no published file changes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from rtolap.column_types import Kind
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.schema import arrow_type, physical_schema, select_partials
from rtolap.model.cube import Schema
from rtolap.query.cubes.byte_bounded import ByteBounded
from rtolap.query.cubes.history_files import HistoryFile, ParquetFooters
from rtolap.query.plan import CubeRead
from rtolap.scan.columns import (
    CodedFile,
    DimensionCodes,
    coded_column,
    measure_column,
)

BYTES_MAX = 256 << 20  # of files' columns
_DICTIONARY_BYTES_MAX = 64 << 20  # of dimensions' values
_FILE_BYTES = 400  # of a file with a column, beside its values
_PARALLEL_ROWS = 65_536  # columns of larger files are decoded beside each other

_DIMENSIONS: frozenset[Kind] = frozenset(
    ("string", "boolean", "int", "bigint", "decimal", "date", "timestamp")
)


def can_be_coded(read: CubeRead, needed: Iterable[str]) -> bool:
    """Return True if the types of the read's columns have a form in memory: sketches have none, nor do
    dimensions and extremes of doubles, which are not equal to themselves everywhere."""
    kinds = {read.schema.dimension_type(name).kind for name in needed}
    partials = select_partials(read.schema, read.partials)
    return kinds <= _DIMENSIONS and all(
        partial.type.kind in partial.accumulator.folded_kinds for partial in partials
    )


class FileMemory:
    """Memory of files, bounded in bytes: the file that was not used for longest goes first. It is
    thread-safe."""

    def __init__(self, footers: ParquetFooters, bytes_max: int = BYTES_MAX) -> None:
        self._footers = footers
        self._lock = threading.Lock()  # one dictionary for all, whoever asks for it first
        self.bytes_max = bytes_max
        self._files: ByteBounded[CodedFile] = ByteBounded(bytes_max)
        self._dictionaries: ByteBounded[DimensionCodes] = ByteBounded(_DICTIONARY_BYTES_MAX)

    def dictionaries(self, schema: Schema, names: Iterable[str]) -> dict[str, DimensionCodes]:
        return {name: self._dictionary(schema, name) for name in names}

    def keep(self, schema: Schema, dictionaries: Mapping[str, DimensionCodes]) -> None:
        """Cache the dictionaries with their new sizes.

        The next statement starts again those that have no room.
        """
        for name, dictionary in dictionaries.items():
            self._dictionaries.keep(_key(schema, name), dictionary, dictionary.values.nbytes)

    def find(
        self, key: str, dictionaries: Mapping[str, DimensionCodes], partials: Iterable[str]
    ) -> CodedFile | None:
        """Return the file, if all these columns of it are known, or known to be `uncoded`."""
        file = self._files.find(key)
        if file is None:
            return None
        for name, dictionary in dictionaries.items():
            column = file.dimensions.get(name)
            if column is None:
                if name not in file.uncoded:
                    return None
            elif column.dictionary is not dictionary:
                return None
        for name in partials:
            if name not in file.measures and name not in file.uncoded:
                return None
        return file

    def load(
        self,
        key: str,
        file: HistoryFile,
        schema: Schema,
        dictionaries: Mapping[str, DimensionCodes],
        partials: Iterable[str],
    ) -> CodedFile:
        """Return the file with all these columns, which it must have.

        Raises OSError and pyarrow.ArrowException.
        """
        known = self._files.find(key) or _NOTHING
        dimensions, measures, uncoded = dict(known.dimensions), dict(known.measures), set(known.uncoded)
        coded = [
            name
            for name, dictionary in dictionaries.items()
            if name not in uncoded
            and (name not in dimensions or dimensions[name].dictionary is not dictionary)
        ]
        measured = [name for name in partials if name not in measures and name not in uncoded]
        footer = self._footers.footer(file)
        wanted = physical_schema(schema, coded, measured, plain=False)
        table = self._footers.read(file, wanted, use_threads=footer.rows > _PARALLEL_ROWS)
        for name in coded:
            dimension = coded_column(dictionaries[name], single_chunk(table.column(name)))
            dimensions.pop(name, None)
            if dimension is None:
                uncoded.add(name)
            else:
                dimensions[name] = dimension
        for name in measured:
            measure = measure_column(table.column(name))
            if measure is None:
                uncoded.add(name)
            else:
                measures[name] = measure
        loaded = CodedFile(footer.rows, dimensions, measures, frozenset(uncoded))
        overhead = _FILE_BYTES * (1 + len(dimensions) + len(measures))
        self._files.keep(key, loaded, loaded.nbytes + overhead)
        return loaded

    def _dictionary(self, schema: Schema, name: str) -> DimensionCodes:
        key = _key(schema, name)
        with self._lock:
            known = self._dictionaries.find(key)
            if known is None:
                known = DimensionCodes(arrow_type(schema.dimension_type(name)))
                self._dictionaries.keep(key, known, known.values.nbytes)
        return known


_NOTHING = CodedFile(0, {}, {}, frozenset())


def _key(schema: Schema, name: str) -> str:
    return f"{schema.cube.name}\0{name}\0{schema.dimension_type(name)}"
