"""The queries of the demonstration, and the same queries to the source rows.

`sql` goes to rtolap. `recount` goes to DuckDB over `prefix`: accepted flights below the positions, with the
columns of the source and `sched_dep` as a timestamp in local time. `distinct` names a result column that is
an approximate count: the recount gives a list of values there, of which the sketch is made independently.
"""

from __future__ import annotations

from typing import NamedTuple


class DemoQuery(NamedTuple):
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
