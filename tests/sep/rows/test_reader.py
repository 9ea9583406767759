"""Rows are read no older than their edits, over regions that move, wide rows and families that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from rtolap.base.errors import NotFound, TooLarge, Unavailable
from rtolap.sep.hbase.regions import Region, RegionClient, RowCells
from rtolap.sep.hbase.rows_pb2 import Column
from rtolap.sep.hbase.znodes import ServerName
from rtolap.sep.rows import reader
from rtolap.sep.rows.reader import READ_POINT_WAIT_S, HBaseRowReader

from tests.support.sep.cell_blocks import cell_block

ROWS = [b"row-%03d" % number for number in range(300)]
SERVERS = [ServerName("one", 1, 1), ServerName("two", 2, 2)]
COLUMNS = ((b"cf", b"a"), (b"df", b"b"))
Values = dict[tuple[bytes, bytes], bytes]


class Regions(RegionClient):
    """A cluster in memory. `moves`: so many calls find that a region has moved; `moves_at`: so many, by how
    many calls were served before. `answer_bytes_max`: larger answers are TooLarge."""

    def __init__(self, rows: dict[bytes, Values], borders: Sequence[bytes] = (b"",)) -> None:
        self.rows = rows
        self.families = {b"cf", b"df", b"zz"}
        self.moves = 0
        self.moves_at: dict[int, int] = {}
        self.served = 0
        self.forgotten = 0
        self.answer_bytes_max = 1 << 40
        self.calls: list[int] = []
        self.read_points: dict[str, list[int]] = {}
        ends = [*borders[1:], b""]
        self.known = [
            Region(b"t,%s,1.region%d." % (start, at), start, end, SERVERS[at % 2])
            for at, (start, end) in enumerate(zip(borders, ends, strict=True))
        ]

    def close(self) -> None: ...

    def regions(self, table: str) -> list[Region]:
        return self.known if table == "t" else []

    def check_served(self) -> None:
        """Raise Unavailable where a region has moved."""
        self.moves += self.moves_at.pop(self.served, 0)
        if self.moves:
            self.moves -= 1
            raise Unavailable("the region has moved")
        self.served += 1

    def forget(self, table: str) -> None:
        self.forgotten += 1

    def get(
        self,
        server: ServerName,
        rows: Sequence[tuple[Region, Sequence[bytes]]],
        columns: Sequence[Column],
        *,
        existence_only: bool = False,
    ) -> RowCells:
        self.check_served()
        if not {column.family for column in columns} <= self.families:
            raise NotFound("no such family")
        counts, exists, cells = [], [], []
        for region, of_region in rows:
            assert region.server == server
            for row in of_region:
                assert region.start <= row
                assert not region.end or row < region.end
                found = [
                    (row, family, qualifier, value)
                    for (family, qualifier), value in sorted(self.rows.get(row, {}).items())
                    if not columns or any(_wants(column, family, qualifier) for column in columns)
                ]
                counts.append(0 if existence_only else len(found))
                exists.append(existence_only and bool(found))
                cells += [] if existence_only else found
        block = cell_block(cells)
        if len(block) > self.answer_bytes_max:
            raise TooLarge("an answer")
        self.calls.append(len(counts))
        return RowCells(counts, block, exists)

    def read_point(self, region: Region, row: bytes) -> int:
        points = self.read_points[region.encoded]
        return points.pop(0) if len(points) > 1 else points[0]


def _wants(column: Column, family: bytes, qualifier: bytes) -> bool:
    return column.family == family and (not column.qualifier or qualifier in column.qualifier)


class Clock:
    def __init__(self) -> None:
        self.now_s, self.slept = 0.0, 0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept += 1


def reader_of(regions: Regions, clock: Clock, followed: Sequence[bytes] = ()) -> HBaseRowReader:
    return HBaseRowReader(
        regions,
        lambda table: frozenset(regions.families) if table == "t" else None,
        COLUMNS,
        lambda table: followed,
        monotonic_s=lambda: clock.now_s,
        sleep=clock.sleep,
    )


def drawn(random: Random) -> dict[bytes, Values]:
    columns = [*COLUMNS, (b"zz", b"u")]
    return {
        row: {
            column: b"%s of %s" % (column[1], row) for column in random.sample(columns, random.randint(1, 3))
        }
        for row in ROWS
        if random.random() < 0.8
    }


def read(source: HBaseRowReader, rows: list[bytes]) -> dict[bytes, Values | None]:
    found: dict[bytes, Values | None] = {}
    for part in source.read("t", rows, {}):
        cells = part.cells.to_pylist()
        for at, place in enumerate(part.places.tolist()):
            own = [cell for cell in cells if cell["event"] == at]
            values = {(cell["family"], cell["qualifier"]): cell["value"] for cell in own}
            assert rows[place] not in found
            assert len(own) == part.counts[at]
            found[rows[place]] = values if part.exists[at] else None
    return found


@pytest.mark.parametrize("seed", range(6))
def test_every_row_is_read_once_with_its_cells(seed: int) -> None:
    """Over regions of two servers, some of which have moved, and answers that would be too large."""
    random = Random(seed)
    rows = drawn(random)
    borders = [b"", *sorted(random.sample(ROWS, random.randint(0, 6)))]
    regions, clock = Regions(rows, borders), Clock()
    regions.moves = random.randint(0, 3)
    regions.answer_bytes_max = random.choice((1 << 40, 2000, 300))
    asked = random.sample(ROWS, 250)
    declared = set(COLUMNS)
    expected = {
        row: {column: value for column, value in rows[row].items() if column in declared}
        if row in rows
        else None
        for row in asked
    }
    assert read(reader_of(regions, clock), asked) == expected
    assert clock.slept == regions.forgotten


def test_rows_of_many_bytes_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CALL_BYTES", 1000)
    monkeypatch.setattr(reader, "PART_BYTES", 3000)
    rows: dict[bytes, Values] = {row: {COLUMNS[0]: b"x" * 400} for row in ROWS}
    regions = Regions(rows)
    parts = list(reader_of(regions, Clock()).read("t", ROWS, {}))
    assert sum(len(part.places) for part in parts) == len(ROWS)
    assert len(parts) > 10
    assert max(regions.calls[1:]) <= 3


def test_a_read_waits_until_its_region_sees_the_edit() -> None:
    regions, clock = Regions({ROWS[0]: {COLUMNS[0]: b"1"}}), Clock()
    regions.read_points["region0"] = [5, 6, 7]
    [part] = reader_of(regions, clock).read("t", [ROWS[0]], {"region0": 7, "its parent": 99})
    assert part.exists.tolist() == [True]
    assert clock.slept == 2


def test_a_region_that_was_taken_back_is_waited_for_once() -> None:
    """As by a restored snapshot: it never sees the ids again that it has shipped."""
    regions, clock = Regions({}), Clock()
    regions.read_points["region0"] = [5]
    source = reader_of(regions, clock)
    list(source.read("t", [ROWS[0]], {"region0": 7}))
    assert clock.now_s >= READ_POINT_WAIT_S
    before_s = clock.now_s
    list(source.read("t", [ROWS[0]], {"region0": 7}))
    assert clock.now_s == before_s


def test_a_table_that_is_not_there_has_no_rows() -> None:
    regions = Regions({})
    [part] = reader_of(regions, Clock()).read("gone", ROWS[:3], {})
    assert (part.exists.tolist(), part.cells.num_rows) == ([False] * 3, 0)


def test_a_declared_family_that_the_table_lacks_is_empty_until_it_is_added() -> None:
    regions = Regions({ROWS[0]: {COLUMNS[0]: b"1", COLUMNS[1]: b"2"}})
    regions.families = {b"cf", b"zz"}
    source = reader_of(regions, Clock(), followed=(b"cf", b"df"))
    assert read(source, ROWS[:2]) == {ROWS[0]: {COLUMNS[0]: b"1"}, ROWS[1]: None}
    regions.families = {b"cf", b"df", b"zz"}
    assert read(source, ROWS[:1]) == {ROWS[0]: {COLUMNS[0]: b"1", COLUMNS[1]: b"2"}}


def test_only_followed_families_say_that_a_row_is_there() -> None:
    regions = Regions({ROWS[0]: {(b"zz", b"u"): b"1"}})
    assert read(reader_of(regions, Clock()), ROWS[:1]) == {ROWS[0]: {}}
    assert read(reader_of(regions, Clock(), followed=(b"cf", b"df")), ROWS[:1]) == {ROWS[0]: None}


def test_regions_that_stay_away_are_unavailable() -> None:
    regions = Regions({})
    regions.moves = 1000
    with pytest.raises(Unavailable):
        list(reader_of(regions, Clock()).read("t", ROWS[:1], {}))
