"""Rows of kilobytes are merged in pieces of bounded bytes, by compaction and by readers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.engine import compaction, scan
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.tablet import Tablet

WIDTH, ROWS, FILES = 4_000, 128, 4
SETTINGS = TabletSettings(memtable_bytes_max=1 << 19, block_rows=8, compaction_files_min=FILES)
PIECE_BYTES = SETTINGS.memtable_bytes_max + FILES * SETTINGS.block_rows * (WIDTH + 100)


def made(folder: Path) -> Tablet:
    """Each transaction brings other ids and texts that compress well."""
    columns = (StoredColumn("id", "bigint"), StoredColumn("text", "string", aggregate="REPLACE"))
    definition = StoredTable(database="d", name="t", model="aggregate", keys=("id",), columns=columns)
    tablet = Tablet.create(folder / "t", initial_schema(definition), SETTINGS)
    for version in range(1, FILES + 1):
        transaction = tablet.begin(version)
        ids = pa.array(range(version, FILES * ROWS + version, FILES), pa.int64())
        transaction.add_rows(pa.record_batch({"id": ids, "text": pa.array(["x" * WIDTH] * ROWS)}))
        transaction.prepare()
        tablet.publish(version, version)
    return tablet


@pytest.mark.parametrize("module", [scan, compaction], ids=["reading", "compaction"])
def test_pieces_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    tablet = made(tmp_path)
    merge = module.merge  # type: ignore[attr-defined]
    pieces: list[int] = []

    def noted(table: pa.Table, schema: StoredSchema) -> pa.Table:
        pieces.append(table.nbytes)
        return merge(table, schema)

    monkeypatch.setattr(module, "merge", noted)
    if module is compaction:
        assert tablet.compact()
    with tablet.pin() as snapshot:
        found = sum(batch.num_rows for batch in snapshot.read())
    assert found == FILES * ROWS
    assert len(pieces) > 1
    assert max(pieces) <= PIECE_BYTES
    tablet.close()
