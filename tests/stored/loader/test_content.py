"""What a batch holds does not depend on how it arrived."""

from __future__ import annotations

import random

import numpy as np
from rtolap.kafka.interfaces import Batch
from rtolap.stored.loader.records.content import content_of

Record = tuple[int, int, bytes | None]


def batch_of(records: list[Record]) -> Batch:
    return Batch(
        [value for _, _, value in records],
        np.array([partition for partition, _, _ in records], np.int32),
        np.array([offset for _, offset, _ in records], np.int64),
    )


def cut(records: list[Record], chooser: random.Random) -> list[Batch]:
    """As a consumer might poll them: partitions in any order, each in its own."""
    by_partition: dict[int, list[Record]] = {}
    for record in records:
        by_partition.setdefault(record[0], []).append(record)
    batches: list[Batch] = []
    while by_partition:
        partition = chooser.choice(sorted(by_partition))
        taken = chooser.randrange(1, 5)
        batches.append(batch_of(by_partition[partition][:taken]))
        by_partition[partition] = by_partition[partition][taken:]
        if not by_partition[partition]:
            del by_partition[partition]
    return batches


def test_the_same_range_has_the_same_sum_however_it_was_polled() -> None:
    chooser = random.Random(5)
    records: list[Record] = [
        (p, o, None if o == 3 else b"v%d" % o) for p in range(4) for o in range(p, 20, 2)
    ]
    plain = content_of([batch_of(records)])
    for _ in range(20):
        other = content_of(cut(records, chooser))
        assert other.batch.values == plain.batch.values
        assert other.sha256 == plain.sha256
        assert other.bytes == plain.bytes


def test_the_sum_tells_apart_what_differs_in_place_value_or_border() -> None:
    base: list[Record] = [(0, 1, b"ab"), (0, 2, b"c"), (1, 1, None)]
    others: list[list[Record]] = [
        [(0, 1, b"a"), (0, 2, b"bc"), (1, 1, None)],
        [(0, 1, b"ab"), (0, 3, b"c"), (1, 1, None)],
        [(0, 1, b"ab"), (0, 2, b"c"), (1, 1, b"")],
        [(0, 1, b"ab"), (0, 2, b"c")],
        [(0, 1, b"ab"), (1, 2, b"c"), (1, 1, None)],
    ]
    sums = {content_of([batch_of(records)]).sha256 for records in [base, *others]}
    assert len(sums) == len(others) + 1


def test_what_lies_beyond_the_end_is_left_out() -> None:
    records: list[Record] = [(0, 5, b"a"), (1, 7, b"b"), (0, 6, b"c"), (2, 1, b"d")]
    found = content_of([batch_of(records)], {0: 6, 1: 8})
    assert found.batch.values == [b"a", b"b"]
    assert content_of([], {0: 6}).batch.values == []
