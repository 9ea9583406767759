"""Partial rows become whole ones when they are published: steps 17 and 18.

By then it is decided what is before them, so every replica makes the same rows. In memory: `merge_rows_max`
partial rows and the rows that these had before, beside some blocks of the files that are read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.engine.core import Core
from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.loading import open_writer
from rtolap.stored.engine.records import FileMeta
from rtolap.stored.engine.rows.columns import DELETE_SIGN, columns_in
from rtolap.stored.engine.rows.overwrites import Overwriting
from rtolap.stored.engine.rows.partial_rows import Former, completed, whole_columns
from rtolap.stored.engine.scan import with_defaults


def complete(core: Core, partial: SortedFile, target: Path, overwriting: Overwriting) -> FileMeta:
    """One file into `target`, synced. OSError as the disk raises it."""
    schema = core.state.schema
    signed = DELETE_SIGN in partial.columns
    columns = whole_columns(schema, signed=signed)
    settings = core.settings
    writer = open_writer(core.disk, target, columns, schema, settings.load_compression, settings.block_rows)
    try:
        reader = partial.reader(partial.columns)
        for start in range(0, partial.rows, settings.merge_rows_max):
            table = reader.slice(start, start + settings.merge_rows_max)
            whole = completed(table, _former(table, overwriting, schema), schema)
            writer.append(whole.cast(columns))
        footer = writer.finish()
    finally:
        writer.close()
    return FileMeta(target.name, footer.rows, target.stat().st_size)


def _former(table: pa.Table, overwriting: Overwriting, schema: StoredSchema) -> Former:
    at = np.full(table.num_rows, -1, np.int64)
    known = [whole_columns(schema, signed=True).empty_table()]
    rows = 0
    for other, matches in overwriting.alive(table):
        if not len(matches.mine):
            continue
        signed = DELETE_SIGN in other.file.columns
        names = columns_in(other.file.columns, schema.columns) + [DELETE_SIGN] * signed
        found = with_defaults(other.file.take(matches.mine, names), schema.columns)
        if not signed:
            found = found.append_column(DELETE_SIGN, pa.repeat(pa.scalar(False), found.num_rows))
        at[matches.theirs] = rows + np.arange(found.num_rows)
        rows += found.num_rows
        known.append(found)
    return Former(pa.concat_tables(known).combine_chunks(), at)
