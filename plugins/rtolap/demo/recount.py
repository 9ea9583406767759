"""The queries of the demonstration, and the same answers counted again out of the source rows by DuckDB.

An engine of its own, data of its own: `sql` goes to rtolap, `recount` to DuckDB over `prefix`: accepted
flights below the positions, with the columns of the source and `sched_dep` as a timestamp in local time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple

import datasketches

from rtolap.base.errors import Refused
from rtolap.demo.flights import Replay, data_folder

Cell = str | int | float | None
Rows = tuple[tuple[Cell, ...], ...]

LG_K = 12  # of approx_distinct(tailnum) in include/cubes/flights.yaml


class DemoQuery(NamedTuple):
    """`distinct` names a result column that is an approximate count: the recount gives a list of values
    there, of which the sketch is made independently."""

    name: str
    sql: str
    recount: str
    distinct: str | None = None


QUERIES = (
    DemoQuery(
        "totals",
        """SELECT COUNT(*) AS flights, COUNT(dep_delay) AS departed, SUM(distance) AS miles,
                  SUM(distance_km) AS km, MIN(dep_delay) AS earliest, MAX(dep_delay) AS latest,
                  AVG(arr_delay) AS mean_delay
           FROM flights_cube""",
        """SELECT count(*) AS flights, count(dep_delay) AS departed, sum(distance) AS miles,
                  sum(distance_km) AS km, min(dep_delay) AS earliest, max(dep_delay) AS latest,
                  sum(arr_delay)::DOUBLE / count(arr_delay) AS mean_delay
           FROM prefix""",
    ),
    DemoQuery(
        "days",
        """SELECT day_start, COUNT(*) AS flights, SUM(distance_km) AS km
           FROM flights_cube GROUP BY day_start ORDER BY day_start""",
        """SELECT date_trunc('day', sched_dep)::TIMESTAMP AS day_start, count(*) AS flights,
                  sum(distance_km) AS km
           FROM prefix GROUP BY 1 ORDER BY 1""",
    ),
    DemoQuery(
        "airlines",
        """SELECT a.name AS airline, COUNT(*) AS flights, AVG(f.arr_delay) AS mean_delay
           FROM flights_cube f JOIN airlines a ON f.carrier = a.carrier
           GROUP BY a.name ORDER BY flights DESC, airline LIMIT 5""",
        """SELECT a.name AS airline, count(*) AS flights,
                  sum(arr_delay)::DOUBLE / count(arr_delay) AS mean_delay
           FROM prefix f JOIN airlines a ON f.carrier = a.carrier
           GROUP BY a.name ORDER BY flights DESC, airline LIMIT 5""",
    ),
    DemoQuery(
        "hours to LAX",
        """SELECT hour_start, origin, COUNT(*) AS flights, MAX(dep_delay) AS worst
           FROM flights_cube WHERE dest = 'LAX' GROUP BY hour_start, origin
           HAVING COUNT(*) > 1 ORDER BY hour_start, origin""",
        """SELECT date_trunc('hour', sched_dep)::TIMESTAMP AS hour_start, origin, count(*) AS flights,
                  max(dep_delay) AS worst
           FROM prefix WHERE dest = 'LAX' GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 1, 2""",
    ),
    DemoQuery(
        "planes by airport",
        """SELECT origin, APPROX_COUNT_DISTINCT(tailnum) AS planes
           FROM flights_cube GROUP BY origin ORDER BY origin""",
        """SELECT origin, list(DISTINCT tailnum) FILTER (tailnum IS NOT NULL) AS planes
           FROM prefix GROUP BY origin ORDER BY origin""",
        distinct="planes",
    ),
)


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
        """Return the rows for exactly the events below `positions` (partition → next offset)."""
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
    """Return cells that compare across engines and across JSON, without losing a digit.

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
