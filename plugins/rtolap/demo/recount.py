"""The same answers, counted again out of the source rows by DuckDB: an engine of its own, data of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

import datasketches

from rtolap.base.errors import Refused
from rtolap.demo.flights import Replay, data_folder
from rtolap.demo.queries import DemoQuery

Cell = str | int | float | None
Rows = tuple[tuple[Cell, ...], ...]

LG_K = 12  # of approx_distinct(tailnum) in include/cubes/flights.yaml


class Recount:
    """Answers for any prefix of every partition. `first`: partition → offset of its first replayed record."""

    def __init__(self, replay: Replay, first: Mapping[int, int]) -> None:
        self._replay = replay
        self.first = dict(first)
        self._connection = replay.connection.cursor()
        self._connection.execute("SET TimeZone = 'UTC'")
        airlines = str(data_folder() / "airlines.csv")
        self._connection.execute(
            f"CREATE OR REPLACE TABLE airlines AS FROM read_csv('{airlines}', header = true)"
        )

    def answer(self, query: DemoQuery, positions: Mapping[int, int]) -> Rows:
        """The rows for exactly the events below `positions` (partition → next offset)."""
        self._take_prefix(positions)
        result = self._connection.execute(query.recount)
        names = [column[0] for column in result.description or ()]
        rows = result.fetchall()
        if query.distinct is not None:
            place = names.index(query.distinct)
            rows = [(*row[:place], _estimate(row[place]), *row[place + 1 :]) for row in rows]
        return normal(rows)

    def events(self, positions: Mapping[int, int]) -> int:
        self._take_prefix(positions)
        ((events,),) = self._connection.execute("SELECT count(*) FROM prefix").fetchall()
        return int(events)

    def malformed(self) -> list[tuple[int, int]]:
        """Partition and offset of every malformed record of the replay."""
        places = self._connection.execute("SELECT p, o FROM replay WHERE NOT accepted").fetchall()
        return [(int(partition), self.first[partition] + int(offset)) for partition, offset in places]

    def _take_prefix(self, positions: Mapping[int, int]) -> None:
        if unknown := set(positions) - set(self.first):
            raise Refused("positions name partitions that the replay does not have", found=sorted(unknown))
        bounds = [(p, int(offset) - self.first[p]) for p, offset in positions.items()]
        values = ", ".join(f"({partition:d}, {bound:d})" for partition, bound in bounds) or "(-1, 0)"
        self._connection.execute(
            f"""
            CREATE OR REPLACE TEMP VIEW prefix AS
            SELECT replay.* FROM replay JOIN (VALUES {values}) AS bound(p, below)
            ON replay.p = bound.p AND replay.o < bound.below WHERE accepted
            """
        )


def normal(rows: Sequence[Sequence[object]]) -> Rows:
    """Cells that compare across engines and across JSON, without losing a digit.

    Whole numbers are ints, whatever their type; decimals lose trailing zeros; instants are ISO text.
    """
    return tuple(tuple(_normal(cell) for cell in row) for row in rows)


def _normal(cell: object) -> Cell:
    match cell:
        case None | bool():
            return cell
        case int():
            return cell
        case float():
            return int(cell) if cell.is_integer() else cell
        case Decimal():
            return int(cell) if cell == cell.to_integral_value() else format(cell.normalize(), "f")
        case datetime():
            return cell.isoformat(sep=" ")
        case date():
            return cell.isoformat()
    return str(cell)


def _estimate(values: Sequence[str] | None) -> int:
    """Return a sketch's estimate of these values, by Apache DataSketches alone, as SQL states it, whole.

    A merge with itself makes the estimate a function of the sketch's registers, whatever the order in which
    the values came.
    """
    union = datasketches.hll_union(LG_K)
    for _ in range(2):
        sketch = datasketches.hll_sketch(LG_K, datasketches.HLL_8)
        for value in values or ():
            sketch.update(value)
        union.update(sketch)
    return round(float(union.get_result(datasketches.HLL_8).get_estimate()))
