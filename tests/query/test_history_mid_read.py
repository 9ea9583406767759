"""Versions are promoted and purged while a statement reads them: its answer is that of one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.cubes.history_files import HistoryFiles, ParquetFooters
from rtolap.query.cubes.history_rows import CuboidRows, HistoryRows
from rtolap.query.spills.folder import Spills

from tests.support.cubes.flights import flights_world
from tests.support.query.moving_history import MovingHistory
from tests.support.query.oracles.sql_oracle import rows_of

SQL = "select carrier, origin, count(*), sum(distance), sum(price) from flights group by carrier, origin"
POINTS = 400  # more than one read has
WAYS = {
    "codes": MemoryBounds(result_bytes=0),
    "rows": MemoryBounds(file_bytes=0, column_bytes=0, result_bytes=0),
    "spilled": MemoryBounds(file_bytes=0, column_bytes=0, result_bytes=0, statement_bytes=2_000),
}


class Held:
    """Something is done at one of the points of a read: before each manifest, check, footer and piece.

    Attributes:
        points: the points that were passed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.points = 0
        self._at = -1
        self._do: Callable[[], None] = lambda: None
        for owner, name in (
            (HistoryFiles, "manifest"),
            (HistoryFiles, "_verify"),
            (ParquetFooters, "footer"),
        ):
            monkeypatch.setattr(owner, name, self._before(getattr(owner, name)))
        pieces = HistoryRows.pieces

        def held_pieces(rows: HistoryRows, files: Sequence[Any]) -> Iterator[CuboidRows]:
            for piece in pieces(rows, files):
                self._pass()
                yield piece

        monkeypatch.setattr(HistoryRows, "pieces", held_pieces)

    def at(self, point: int, do: Callable[[], None]) -> None:
        self.points, self._at, self._do = 0, point, do

    def _before(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def held(*arguments: Any, **options: Any) -> Any:
            self._pass()
            return method(*arguments, **options)

        return held

    def _pass(self) -> None:
        self.points += 1
        if self.points - 1 == self._at:
            self._do()


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_is_exact_whatever_is_replaced_and_purged_at_any_point_of_its_read(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    spills = Spills(tmp_path / "spill", 0)
    with closing(flights_world(11, 200)) as world:
        world.store.claim()
        cluster = MovingHistory(world)
        changed = 0
        for point in range(0, POINTS, 6):
            with (
                closing(world.service(bounds=WAYS[way], spills=spills)) as reading,
                closing(world.service()) as fresh,
            ):
                before = rows_of(fresh.execute(SQL).table())
                held.at(point, cluster.purge if point % 60 == 6 else cluster.promote)
                found = rows_of(reading.execute(SQL).table())
                was_reached = held.points > point
                held.at(-1, lambda: None)
                # Files that were read before they were purged may be in the answer, all of them or none.
                assert found in (before, rows_of(fresh.execute(SQL).table())), point
                changed += was_reached
            if not was_reached:
                break
        assert not was_reached, "the points end before POINTS"
        assert changed > 10
