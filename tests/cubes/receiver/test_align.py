"""The exactness rule as arithmetic, held against one event at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rtolap.cubes.receiver.local.align import NO_VECTORS, Vectors, pieces, split_batch, versions_of

from tests.support.seeds import so_many

WINDOW_MS = 100
PARTITIONS = 3
OFFSETS = st.integers(0, 12)
EXAMPLES = so_many(250, 400)


def slow_version(vectors: Vectors, partition: int, offset: int) -> int:
    """The rule in words: architecture.md, point 1."""
    if vectors.purged:
        return 0
    if offset < vectors.covered.get(partition, 0):
        return 0
    version = vectors.version + 1
    if partition in vectors.target and offset >= vectors.target[partition]:
        version = vectors.version + 2
    if vectors.drop_late and version > 1:
        return 0
    return version


@st.composite
def vectors_strategy(draw: st.DrawFn) -> Vectors:
    version = draw(st.integers(0, 2))
    covered = draw(st.dictionaries(st.integers(0, PARTITIONS - 1), OFFSETS)) if version else {}
    steps = draw(st.dictionaries(st.integers(0, PARTITIONS - 1), OFFSETS))
    target = {partition: covered.get(partition, 0) + step for partition, step in steps.items()}
    return Vectors(version, covered, target, draw(st.booleans()) and draw(st.booleans()), draw(st.booleans()))


@pytest.mark.seeded
@given(
    vectors_strategy(),
    st.dictionaries(st.integers(0, PARTITIONS - 1), st.tuples(OFFSETS, st.integers(1, 10))),
    st.sets(st.integers(0, PARTITIONS - 1)),
)
@settings(max_examples=EXAMPLES)
def test_pieces_cut_ranges_exactly_where_single_events_change_version(
    vectors: Vectors, spans: dict[int, tuple[int, int]], owned: set[int]
) -> None:
    ranges = {partition: (start, start + length) for partition, (start, length) in spans.items()}
    found = {
        (piece.partition, offset): piece.version
        for piece in pieces(vectors, ranges, owned)
        for offset in range(piece.start, piece.end)
    }
    expected = {
        (partition, offset): slow_version(vectors, partition, offset) if partition in owned else 0
        for partition, (start, end) in ranges.items()
        for offset in range(start, end)
    }
    assert found == expected
    assert versions_of(vectors, ranges, owned) == tuple(sorted(set(expected.values())))


@pytest.mark.seeded
@given(
    st.dictionaries(st.sampled_from([0, 100, 200, 20_000]), vectors_strategy()),
    st.lists(
        st.tuples(st.sampled_from([0, 100, 200, 300, 20_000]), st.integers(0, PARTITIONS - 1), OFFSETS),
        max_size=40,
    ),
    st.sampled_from([None, 100, 200, 300]),
)
@settings(max_examples=EXAMPLES)
def test_a_split_batch_ranks_every_row_as_the_rule_does(
    vectors: dict[int, Vectors], rows: list[tuple[int, int, int]], horizon_ms: int | None
) -> None:
    segment, partition, offset = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    split = split_batch(segment, partition, offset, vectors, window_ms=WINDOW_MS, horizon_ms=horizon_ms)
    ranks = [1] * len(rows) if split.ranks is None else split.ranks.tolist()
    dropped, late = [0] * PARTITIONS, [0] * PARTITIONS
    for (start, part, at), rank in zip(rows, ranks, strict=True):
        known = vectors.get(start, NO_VECTORS)
        version = slow_version(known, part, at)
        if horizon_ms is not None and start + WINDOW_MS <= horizon_ms:
            version = 0
            dropped[part] += 1
        elif known.purged:
            dropped[part] += 1
        elif at >= known.covered.get(part, 0):
            unbounded_version = slow_version(Vectors(known.version, known.covered, known.target), part, at)
            late[part] += unbounded_version > 1
            dropped[part] += unbounded_version > 1 and known.drop_late
        assert (known.version + rank if rank else 0) == version
    of_late_rows = [partition[row] for row in split.late_rows.tolist()]
    assert [of_late_rows.count(part) for part in range(PARTITIONS)] == late
    width = len(split.dropped)
    assert split.dropped.tolist() == dropped[:width]
    assert split.late.tolist() == late[:width]


def test_a_batch_without_records_takes_the_fast_path() -> None:
    rows = np.array([0, 100, 100], np.int64)
    split = split_batch(rows, rows * 0, rows, {500: Vectors(1)}, window_ms=WINDOW_MS, horizon_ms=None)
    assert split.ranks is None
    assert split.rows(1) is None
