"""Ranges of Parquet files: row groups and footer, which together are the file."""

from __future__ import annotations

import hashlib
import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.cubes.format.file_ranges import digests, range_bounds, range_ends, ranges_of
from rtolap.cubes.format.manifest import CuboidEntry, FileEntry, HistoryManifest, decode, encode

from tests.support.seeds import so_many


def written(rng: random.Random, rows: int, group_rows: int, **options: Any) -> bytes:
    table = pa.table(
        {
            "a": [rng.randrange(10**6) for _ in range(rows)],
            "b": [rng.choice("xyz") * rng.randrange(9) for _ in range(rows)],
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=group_rows, **options)
    return file.getvalue()


@pytest.mark.seeded
def test_drawn_files_are_their_ranges_and_each_row_group_lies_in_its_own() -> None:
    for seed in range(so_many(60)):
        rng = random.Random(seed)
        groups, group_rows = rng.randint(2, 6), rng.randint(1, 300)
        data = written(
            *(rng, groups * group_rows, group_rows),
            use_dictionary=rng.random() < 0.5,
            write_page_index=rng.random() < 0.5,
            compression=rng.choice(("zstd", "snappy", "none")),
        )
        ranges = ranges_of(data)
        assert len(ranges) == groups + 1
        assert sum(each.bytes for each in ranges) == len(data)
        for start, each in range_bounds(ranges):
            assert hashlib.sha256(data[start : start + each.bytes]).hexdigest() == each.sha256
        metadata = pq.read_metadata(io.BytesIO(data))
        for number, (start, each) in zip(range(groups), range_bounds(ranges), strict=False):
            group = metadata.row_group(number)
            for at in range(group.num_columns):
                chunk = group.column(at)
                begin = chunk.dictionary_page_offset or chunk.data_page_offset
                assert start <= begin
                assert begin + chunk.total_compressed_size <= start + each.bytes
        size = rng.randint(1, len(data))
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        ends = range_ends(metadata, len(data))
        assert digests(chunks, ends) == (hashlib.sha256(data).hexdigest(), len(data), ranges)


def test_a_file_of_one_row_group_has_no_ranges_and_its_manifest_line_is_as_before() -> None:
    data = written(random.Random(1), 10, 10)
    assert ranges_of(data) == ()
    before = b'{"name":"a","rows":10,"bytes":5,"sha256":"00"}'
    entry = FileEntry("a", 10, 5, "00", ranges_of(data))
    manifest = HistoryManifest(
        cube="c", segment="s", version=1, build_id="b", covered={}, events=1,
        cuboids=(CuboidEntry("base", ("d",), 10, (entry,)),),
    )  # fmt: skip
    encoded = encode(manifest)
    assert before in encoded
    assert decode(encoded, HistoryManifest, "m") == manifest
