"""Files that are written in the order of keys, against Python's own sort: rows, and the ends of blocks."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.engine.disk import RealDisk
from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.loading import FileLoader
from rtolap.stored.engine.rows import texts
from rtolap.stored.engine.settings import TabletSettings

from tests.support.seeds import so_many

SEEDS = so_many(20)
_COLUMNS = ("number", "key", "often", "seldom", "share", "money")


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_file_has_the_rows_in_order_whatever_texts_repeat(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(texts, "_ROWS_MIN", 1)
    monkeypatch.setattr(texts, "_SAMPLE_ROWS", rng.choice((5, 1000)))
    count, few = (
        rng.choice((1, 30, 500)),
        rng.choice((["a"], ["", "b", "ä", "a", "longer " * 50], [None, "x"])),
    )
    rows = [
        (
            rng.randrange(rng.choice((3, 1 << 40))),
            rng.choice(("k", "l", None)),
            rng.choice(few),
            "".join(rng.choices("abcdefgh", k=9)),
            rng.choice((0.5, -1e300, 2.0, None)) if seed % 2 else rng.random(),
            Decimal(rng.randrange(-999, 999)) if rng.random() < 0.9 or seed % 3 else None,
        )
        for _ in range(count)
    ]
    kinds = (pa.int64(), pa.string(), pa.string(), pa.string(), pa.float64(), pa.decimal128(9, 2))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, kind) for kind, values in zip(kinds, zip(*rows, strict=True), strict=True)],
        list(_COLUMNS),
    )
    stored = ("bigint", "string", "string", "string", "double", "decimal(9,2)")
    schema = initial_schema(
        StoredTable(
            database="shop",
            name="orders",
            columns=tuple(StoredColumn(*column) for column in zip(_COLUMNS, stored, strict=True)),
            keys=rng.choice((("number", "key"), ("key", "number"), ("often",))),
        )
    )
    loader = FileLoader(RealDisk(), tmp_path, schema, TabletSettings(block_rows=64))
    for start in range(0, count, 100):
        loader.add_rows(batch.slice(start, 100))
    (meta,) = loader.finish()

    file = SortedFile(tmp_path / meta.name)
    found = file.slice(0, count, file.columns)
    by_id = [f"c{schema.named(name).id}" for name in _COLUMNS]
    keys = [_COLUMNS.index(column.name) for column in schema.key_columns]
    in_order = sorted(
        batch.to_pylist(),
        key=lambda row: [
            (value is not None, value.encode() if isinstance(value, str) else value)
            for value in (row[_COLUMNS[key]] for key in keys)
        ],
    )
    assert (
        found.rename_columns([_COLUMNS[by_id.index(name)] for name in found.column_names])
        .select(_COLUMNS)
        .to_pylist()
        == in_order
    )
    assert [found.schema.field(name).type for name in by_id] == list(kinds)
    zones = file._stream("zones")
    for name, column in zip(_COLUMNS, by_id, strict=True):
        for block in range(file.blocks):
            values = [row[name] for row in in_order[block * 64 : block * 64 + 64]]
            known = [value for value in values if value is not None]
            ends = [zones.column(f"{column}.{part}")[block].as_py() for part in ("min", "max", "nulls")]
            assert ends[2] == len(values) - len(known)
            if known and max(len(str(value).encode()) for value in known) <= 256:
                least = min(known, key=lambda value: value.encode() if isinstance(value, str) else value)
                largest = max(known, key=lambda value: value.encode() if isinstance(value, str) else value)
                assert ends[:2] == [least, largest]
            else:
                assert ends[:2] == [None, None] or not known or len(str(ends[1]).encode()) <= 256
