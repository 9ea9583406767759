"""Sets of places behave as sets of (partition, offset) do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rtolap.stored.metastore.places import Places

PARTITIONS, OFFSETS = range(3), range(13)
RECORDS = st.sets(st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(OFFSETS)))


@given(RECORDS, RECORDS, st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 14)))
def test_places_are_a_set_of_records(
    some: set[tuple[int, int]], others: set[tuple[int, int]], offsets: dict[int, int]
) -> None:
    mine, yours = Places.of(some), Places.of(others)
    for found, expected in (
        (mine | yours, some | others),
        (mine & yours, some & others),
        (mine - yours, some - others),
        (mine.at_or_beyond(offsets), {each for each in some if each[1] >= offsets.get(each[0], 0)}),
    ):
        assert list(found) == sorted(expected)
        assert found == Places.of(expected), "equal sets are equal values"
        assert (len(found), bool(found)) == (len(expected), bool(expected))
        everywhere = {(partition, offset) for partition in PARTITIONS for offset in OFFSETS}
        assert {record for record in everywhere if record in found} == expected
        assert Places.decoded(found.encoded()) == found
