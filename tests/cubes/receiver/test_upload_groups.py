"""A large segment is uploaded in pieces, whose rows together are those of all its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from rtolap.cubes.format.aggregate import merge_tables, to_plain
from rtolap.cubes.receiver import upload
from rtolap.cubes.receiver.upload import Uploader
from rtolap.scan.merge import merge_plain

from tests.cubes.receiver.test_coded_tables import SCHEMA, Core
from tests.support.seeds import so_many

KEYS = [*SCHEMA.cube.all_dimensions]
COUNTS = ["__rows", "amount__count", "amount__sum"]


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3, 3)))
def test_pieces_have_the_rows_of_all_tables(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(tmp_path, seed)
    for _ in range(12):
        core.take(core.dice.choice((5, 60)))
        core.core.checkpoint()
    nothing = cast(Any, None)
    uploader = Uploader(
        SCHEMA, cube_id="c", replica_set="rs", metadata=nothing, store=nothing, reader=nothing
    )
    (segment, *_) = core.core.state.segments.values()
    whole = to_plain(SCHEMA, merge_tables(SCHEMA, [table.table for table in segment.tables]))
    assert [piece.num_rows for piece in uploader._plain(segment.tables)] == [whole.num_rows]
    monkeypatch.setattr(upload, "MERGED_BYTES_MAX", 3 * max(table.nbytes for table in segment.tables))
    groups = list(upload._groups(segment.tables))
    assert [table for group in groups for table in group] == list(segment.tables)
    assert all(sum(table.nbytes for table in group) <= upload.MERGED_BYTES_MAX for group in groups)
    pieces = list(uploader._plain(segment.tables))
    assert len(pieces) == len(groups) > 1
    together = pa.concat_tables(pieces).select([*KEYS, *COUNTS])
    partials = [partial for partial in SCHEMA.partials if partial.name in COUNTS]
    expected = whole.select([*KEYS, *COUNTS])
    assert rows(merge_plain(together, KEYS, partials)) == rows(expected), f"seed {seed}"


def rows(table: pa.Table) -> list[str]:
    """In any order."""
    return sorted(map(repr, table.select([*KEYS, *COUNTS]).to_pylist()))


def test_nothing_is_uploaded_of_no_tables() -> None:
    assert list(upload._groups(())) == []
