"""Calls of a region server → events: what was sent is what comes out, and torn or wrong bytes are refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from rtolap.base.errors import Corrupted, RtolapError
from rtolap.sep.events.cells import decode_cells
from rtolap.sep.events.decode import EditDecoder

from tests.support.seeds import so_many
from tests.support.sep.wal_calls import Cell, Entry, encode_call, events_of, expected_events, random_entries

# The vector of a put of "v" to r1, cf:q.
_VECTOR = bytes.fromhex("0000001a 00000011 00000001 0002 7231 02 6366 71 0000018bcfe56800 04 76")


def decoded(entries: list[Entry], **options: Any) -> list[dict[str, Any]]:
    return events_of(EditDecoder(**options).decode(*encode_call(entries)).batch)


def test_a_cell_is_read_as_hbase_writes_it() -> None:
    cells = decode_cells(_VECTOR)
    assert cells.rows().to_pylist() == [b"r1"]
    assert cells.families().to_pylist() == [b"cf"]
    assert cells.qualifiers().to_pylist() == [b"q"]
    assert cells.timestamp_ms.tolist() == [1_700_000_000_000]
    assert cells.type.tolist() == [4]
    assert cells.values().to_pylist() == [b"v"]
    assert Cell(b"r1").encoded() == _VECTOR


@pytest.mark.seeded
@pytest.mark.parametrize("tags", [True, False])
def test_what_a_region_server_sends_is_what_comes_out(tags: bool) -> None:
    for seed in range(so_many(60)):
        rng = random.Random(seed)
        entries = random_entries(rng, rng.choice((0, 1, 5, 80)), tags=tags)
        assert decoded(entries) == expected_events(entries), f"seed {seed}"


def test_long_rows_of_equal_cells_between_others_are_read_whole() -> None:
    lengths = [1] * 40 + [2] * 5000 + [3] * 17 + [2] * 16 + [1]
    entries = [
        Entry((Cell(b"r%d" % number, value=b"x" * length),), sequence_id=number)
        for number, length in enumerate(lengths)
    ]
    assert [len(event["cells"][0][4]) for event in decoded(entries)] == lengths


def test_a_row_that_comes_again_in_its_entry_is_one_event_and_its_cells_keep_their_order() -> None:
    cells = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (b"b", b"5")]
    entry = Entry(tuple(Cell(row, qualifier) for row, qualifier in cells))
    events = decoded([entry, Entry((Cell(b"a"),), sequence_id=2)])
    assert [(event["row"], [cell[1] for cell in event["cells"]]) for event in events] == [
        (b"a", [b"1", b"3"]),
        (b"b", [b"2", b"5"]),
        (b"c", [b"4"]),
        (b"a", [b"q"]),
    ]


def test_entries_older_than_the_start_are_left_out_each_by_its_own_time() -> None:
    entries = [Entry((Cell(b"r"),), number, write_time_ms=time) for number, time in enumerate((5, 9, 4, 10))]
    call = EditDecoder(start_ms=9).decode(*encode_call(entries))
    assert [event["sequence_id"] for event in events_of(call.batch)] == [1, 3]
    assert (call.entries, call.entries_before_start) == (4, 2)


def test_cells_that_tell_of_regions_are_skipped_or_made_events_by_declaration() -> None:
    marker = Cell(b"orders", b"HBASE::BULK_LOAD", family=b"METAFAMILY")
    entries = [Entry((Cell(b"r"),)), Entry((marker,), 2), Entry((marker, Cell(b"s")), 3)]
    call = EditDecoder().decode(*encode_call(entries))
    assert [event["row"] for event in events_of(call.batch)] == [b"r", b"s"]
    assert call.meta_cells_skipped == 2
    surfaced = decoded(entries, meta_cells="event")
    assert surfaced == expected_events(entries)


def test_a_cell_of_a_megabyte_and_a_call_of_100_000_cells_are_read() -> None:
    large = Cell(b"r", value=bytes(range(256)) * 4096)
    assert decoded([Entry((large,))]) == expected_events([Entry((large,))])
    cells = tuple(Cell(b"row-%d" % (number // 2), b"q%d" % (number % 2)) for number in range(100_000))
    batch = EditDecoder().decode(*encode_call([Entry(cells)])).batch
    assert (batch.num_events, batch.num_cells) == (50_000, 100_000)
    assert np.array_equal(batch.events["first_cell"].to_numpy(), np.arange(0, 100_000, 2))


@pytest.mark.parametrize("size", range(1, len(_VECTOR)))
def test_a_torn_cell_block_is_refused(size: int) -> None:
    with pytest.raises(Corrupted, match="cell"):
        decode_cells(_VECTOR[:size])
    with pytest.raises(Corrupted, match="cell"):
        decode_cells(_VECTOR + _VECTOR[:size])


@pytest.mark.parametrize(
    ("place", "written", "said"),
    [
        (0, "ffffffff", "a length of at least 20"),
        (0, "7fffffff", "an end at byte"),
        (4, "00000012", "lengths of key and value"),
        (4, "0000000b", "lengths of key and value"),
        (4, "80000000", "lengths of key and value"),
        (8, "ffffffff", "lengths of key and value"),
        (8, "7fffffff", "lengths of key and value"),
        (12, "0009", "a row that ends within its key"),
        (16, "04", "a family that ends within its key"),
        (28, "05", "a type of 4, 8, 10, 12, 14"),
    ],
)
def test_a_cell_that_contradicts_itself_is_refused_by_name(place: int, written: str, said: str) -> None:
    bytes_ = bytes.fromhex(written)
    with pytest.raises(Corrupted, match=said):
        decode_cells(_VECTOR[:place] + bytes_ + _VECTOR[place + len(bytes_) :])


def test_tags_that_do_not_end_with_their_cell_are_refused() -> None:
    tagged = bytearray(Cell(b"r", tags=((8, b"12345678"),)).encoded())
    place = tagged.index(b"v", 20) + 1
    tagged[place : place + 2] = b"\x00\x05"
    with pytest.raises(Corrupted, match="tags that end with their cell"):
        decode_cells(tagged)


def test_a_call_whose_entries_and_cells_contradict_each_other_is_refused() -> None:
    parameter, block = encode_call([Entry((Cell(b"r"), Cell(b"s")))])
    with pytest.raises(Corrupted, match="expected 2 cells, as the entries say; found 1"):
        EditDecoder().decode(parameter, block[: len(block) // 2])
    with pytest.raises(Corrupted, match="cannot be read"):
        EditDecoder().decode(b"\xff" + parameter, block)
    with pytest.raises(Corrupted, match="does not name its table"):
        EditDecoder().decode(*encode_call([Entry((Cell(b"r"),), table="")]))


@pytest.mark.seeded
def test_damaged_calls_are_refused_or_read_and_never_crash() -> None:
    for seed in range(so_many(1000, 2000)):
        rng = random.Random(seed)
        sent = [bytearray(part) for part in encode_call(random_entries(rng, 3))]
        for _ in range(rng.randrange(1, 4)):
            damaged = rng.choice(sent)
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            batch = EditDecoder().decode(*sent).batch
        except RtolapError:
            continue
        batch.events.validate(full=True)
        batch.cells.validate(full=True)
