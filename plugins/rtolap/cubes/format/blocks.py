"""Blocks of partial aggregates: what tasks of a large build read, send each other, merge and write. No Spark.

A block holds codes for each key column, and the values that they stand for, so that grouping, splitting and
sending handle small whole numbers. Decimals are 64-bit numbers, unscaled, as long as every value of the block
and every sum of them fits, and of 128 bits otherwise: sums are exact either way, and a sum beyond its type is
Refused. Sketches are images, as at rest. On the way between tasks all whole numbers take as few bytes as
their largest needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rtolap.column_types import ColumnType
from rtolap.columnar import reduce
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.grouped import GroupedArray
from rtolap.columnar.key_hash import hash_values
from rtolap.columnar.schema import arrow_type, columns_with_statistics, history_schema, physical_schema
from rtolap.cubes.format.pages import WRITTEN, open_parquet
from rtolap.model.cube import Schema
from rtolap.object_store.store import ObjectStore
from rtolap.scan.groups import Groups, group_in_order
from rtolap.scan.keys import Coded, code, compact

_ROW_GROUP_ROWS = 1 << 18
_READ_BYTES_MAX = 128 << 20  # decoded, as Parquet tells them
_SAMPLE = np.uint64(63)  # one of so many hashes, less one, tells how many rows share their keys
_MERGED_SHARE_MAX = 0.7  # of rows left, up to which merging before the exchange pays
_MIX = np.uint64(0x9E3779B97F4A7C15)
_NARROW = (pa.int8(), pa.int16(), pa.int32())


class Block(NamedTuple):
    """Rows by the column, which hold the keys of some dimensions and all partials of a cube, in its order."""

    rows: int
    keys: tuple[Coded, ...]
    partials: tuple[pa.Array, ...]


class BlockPart(NamedTuple):
    """The rows of a block that belong to one piece, ready to be sent."""

    piece: int
    rows: int
    data: bytes


def read_blocks(store: ObjectStore, schema: Schema, path: str, groups: Sequence[int]) -> Iterator[Block]:
    """Yield rows of the base cuboid out of these row groups of a Parquet file, in a block each or in
    several.
    """
    expected = physical_schema(schema, plain=True)
    names = schema.cube.all_dimensions
    strings = [name for name in names if pa.types.is_string(expected.field(name).type)]
    with store.open(path) as source:
        parquet = open_parquet(source, read_dictionary=strings)
        for group in groups:
            for table in _tables(parquet, group, expected.names):
                keys = [_key(single_chunk(table.column(name)), expected.field(name).type) for name in names]
                partials = [
                    _compact(single_chunk(table.column(partial.name)), arrow_type(partial.type))
                    for partial in schema.partials
                ]
                yield Block(table.num_rows, tuple(keys), tuple(partials))


def split(schema: Schema, block: Block, pieces: int) -> Iterator[BlockPart]:
    """Yield parts by a hash of the keys: rows with equal keys fall into the same piece, wherever they were
    read.

    Rows are merged first where that leaves clearly fewer.
    """
    if not block.rows:
        return
    hashes = _hashes(block)
    sample = hashes[hashes & _SAMPLE == 0]
    if len(np.unique(sample)) <= _MERGED_SHARE_MAX * len(sample):
        groups = group_in_order(block.keys, block.rows)
        hashes = hashes[groups.first]
        block = _merged(schema, block, block.keys, groups)
    numbers = ((hashes >> np.uint64(32)) * np.uint64(pieces) >> np.uint64(32)).astype(np.uint16)
    order = np.argsort(numbers, kind="stable")
    codes = [_narrow_codes(key)[order] for key in block.keys]
    partials = _narrow(block.partials)
    if pieces > 1:
        partials = [column.take(pa.array(order)) for column in partials]
    start = 0
    for piece, rows in enumerate(np.bincount(numbers, minlength=pieces).tolist()):
        if rows:
            of_piece = [
                _with_values(codes_of_key[start : start + rows], key)
                for codes_of_key, key in zip(codes, block.keys, strict=True)
            ]
            of_piece += [column.slice(start, rows) for column in partials]
            yield BlockPart(piece, rows, _sent(of_piece, rows))
        start += rows


def joined(schema: Schema, dimensions: int, parts: Sequence[bytes]) -> Block:
    """Return the rows of all parts. `dimensions`: number of their key columns."""
    batches = [pa.ipc.open_stream(pa.py_buffer(part)).read_next_batch() for part in parts]
    keys = []
    for place in range(dimensions):
        columns = [batch.column(place) for batch in batches]
        keys.append(_ordered([c.dictionary for c in columns], [c.indices.to_numpy() for c in columns]))
    partials = [
        _joined_partial([batch.column(place) for batch in batches], arrow_type(partial.type))
        for place, partial in enumerate(schema.partials, start=dimensions)
    ]
    return Block(sum(batch.num_rows for batch in batches), tuple(keys), tuple(partials))


def in_one(schema: Schema, blocks: Sequence[Block]) -> Block:
    """Return the rows of all blocks, which have keys of the same dimensions."""
    keys = [
        _ordered([_with_null(key) for key in of_key], [key.codes for key in of_key])
        for of_key in zip(*(block.keys for block in blocks), strict=True)
    ]
    partials = [
        _joined_partial([block.partials[place] for block in blocks], arrow_type(partial.type))
        for place, partial in enumerate(schema.partials)
    ]
    return Block(sum(block.rows for block in blocks), tuple(keys), tuple(partials))


def merged(schema: Schema, block: Block, places: Sequence[int]) -> Block:
    """Group by the keys at these places, in the order of their codes."""
    keys = [block.keys[place] for place in places]
    return _merged(schema, block, keys, group_in_order(keys, block.rows))


def write_block(store: ObjectStore, path: str, schema: Schema, names: Sequence[str], block: Block) -> int:
    """Write a Parquet file of history with keys of these names, and return its size in bytes."""
    expected = history_schema(schema, names)
    arrays = [_values_of(key, field.type) for key, field in zip(block.keys, expected, strict=False)]
    arrays += [_as_stored(column, partial.type) for column, partial in
               zip(block.partials, schema.partials, strict=True)]  # fmt: skip
    fields = [
        pa.field(field.name, array.type, metadata=field.metadata)
        for field, array in zip(expected, arrays, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=_ROW_GROUP_ROWS,
        store_schema=False,
        write_statistics=columns_with_statistics(table.schema),
        **WRITTEN,
    )
    data = sink.getvalue()
    store.write(path, data)
    return len(data)


def _tables(parquet: pq.ParquetFile, group: int, names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield a row group at once, unless its rows are large, as with sketches."""
    size = parquet.metadata.row_group(group)
    if size.total_byte_size <= _READ_BYTES_MAX:
        yield parquet.read_row_group(group, columns=names, use_threads=False)
        return
    rows = max(1, size.num_rows * _READ_BYTES_MAX // size.total_byte_size)
    for batch in parquet.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
        yield pa.Table.from_batches([batch])


def _key(column: pa.Array, kind: pa.DataType) -> Coded:
    if pa.types.is_dictionary(column.type):
        return code(column)
    column = column.cast(kind)
    if pa.types.is_floating(kind):
        column = pc.add(column, 0.0)  # there is one zero
    return code(column)


def _compact(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return decimals as unscaled longs where all of them fit."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    column = column.cast(kind)
    if not pa.types.is_decimal(kind):
        return column
    longs = reduce.longs_of_decimals(column)
    return column if longs is None else longs


def _as_stored(column: pa.Array, column_type: ColumnType) -> pa.Array:
    kind = arrow_type(column_type)
    if not pa.types.is_decimal(kind):
        return column.cast(kind)
    return _wide(column, kind)


def _wide(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if pa.types.is_decimal(column.type) else reduce.decimals_of_longs(column, kind)


def _values_of(key: Coded, kind: pa.DataType) -> pa.Array:
    """Return the key column; strings keep their dictionary, which a file takes as it is."""
    assert key.values is not None, "keys of blocks have values"
    absent = key.codes == key.radix - 1
    indices = pa.array(key.codes.astype(np.int32), mask=absent if absent.any() else None)
    if not pa.types.is_string(kind):
        return key.values.take(indices)
    return compact(pa.DictionaryArray.from_arrays(indices, key.values))


def _with_null(key: Coded) -> pa.Array:
    """Return the values that the codes stand for, null included."""
    assert key.values is not None, "keys of blocks have values"
    return pa.concat_arrays([key.values, pa.nulls(1, key.values.type)])


def _with_values(codes: NDArray[np.integer], key: Coded) -> pa.DictionaryArray:
    """Return a dictionary array of these codes, without values that none of many has."""
    values = _with_null(key)
    if key.radix > max(len(codes), 1):
        used = np.unique(codes)
        places = np.empty(key.radix, np.int32)
        places[used] = np.arange(len(used))
        codes, values = places[codes], values.take(pa.array(used))
    return pa.DictionaryArray.from_arrays(pa.array(codes), values)


def _ordered(values: Sequence[pa.Array], codes: Sequence[NDArray[np.integer]]) -> Coded:
    """Unite the codes of several arrays in one column. Codes ascend with the values, and null comes last."""
    together = pa.concat_arrays(values).dictionary_encode()
    distinct = together.dictionary
    rank = np.empty(len(distinct) + 1, np.int64)
    rank[pc.sort_indices(distinct).to_numpy()] = np.arange(len(distinct))
    rank[-1] = len(distinct)
    places = rank[together.indices.fill_null(len(distinct)).to_numpy()]
    ends = np.cumsum([len(each) for each in values])
    united = [places[end - len(each) : end][of] for each, end, of in zip(values, ends, codes, strict=True)]
    return Coded(np.concatenate(united), len(distinct) + 1, distinct.take(pc.sort_indices(distinct)))


def _joined_partial(columns: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        if any(pa.types.is_decimal(column.type) for column in columns):
            return pa.concat_arrays([_wide(column.cast(pa.int64()) if pa.types.is_integer(column.type)
                                           else column, kind) for column in columns])  # fmt: skip
        kind = pa.int64()
    return pa.concat_arrays([column.cast(kind) for column in columns])


def _merged(schema: Schema, block: Block, keys: Sequence[Coded], groups: Groups) -> Block:
    group_keys = tuple(key._replace(codes=key.codes[groups.first]) for key in keys)
    if groups.size == block.rows:  # nothing to merge: in another order
        rows = pa.array(groups.first)
        return Block(block.rows, group_keys, tuple(column.take(rows) for column in block.partials))
    partials = [
        partial.accumulator.merge(_BlockColumn(column, groups.ids, groups.size), partial.type)
        for partial, column in zip(schema.partials, block.partials, strict=True)
    ]
    return Block(groups.size, group_keys, tuple(partials))


class _BlockColumn(GroupedArray):
    """A partial of a block: decimals may be unscaled longs, and stay so as long as their sums fit."""

    def sum(self, result: ColumnType) -> pa.Array:
        kind, column = arrow_type(result), self.column
        if pa.types.is_decimal(kind) and pa.types.is_integer(column.type):
            if reduce.sums_fit_longs(column):
                return reduce.sum_values(column, self.ids, self.groups, pa.int64())
            column = _wide(column, kind)
        return reduce.sum_values(column, self.ids, self.groups, kind)


def _hashes(block: Block) -> NDArray[np.uint64]:
    """Return hashes of the rows' keys, the same in every process."""
    hashes = np.zeros(block.rows, np.uint64)
    for key in block.keys:
        assert key.values is not None, "keys of blocks have values"
        hashes = hashes * _MIX ^ np.append(hash_values(key.values), np.uint64(1))[key.codes]
    hashes = (hashes ^ hashes >> np.uint64(32)) * _MIX
    return hashes ^ hashes >> np.uint64(29)


def _narrow_codes(key: Coded) -> NDArray[np.integer]:
    return key.codes.astype(np.min_scalar_type(key.radix - 1))


def _narrow(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Store integers in as few bytes as the largest of their column needs."""
    return [_narrowed(column) if pa.types.is_integer(column.type) else column for column in columns]


def _narrowed(column: pa.Array) -> pa.Array:
    bounds = pc.min_max(column)
    least, most = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
    for kind in _NARROW:
        limit = 1 << (kind.bit_width - 1)
        if -limit <= least and most < limit:
            return column.cast(kind)
    return column


def _sent(columns: Sequence[pa.Array], rows: int) -> bytes:
    batch = pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(len(columns))])
    assert batch.num_rows == rows, (batch.num_rows, rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
