"""Conditions on time, however they are put: answers of the raw rows, and what cannot match is not read."""

from __future__ import annotations

import duckdb
import pytest
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld

# condition, and the days of 2013-01 of which alone segments may be read; None: those of all days
CONDITIONS = [
    ("day_start = '2013-01-02'", (2,)),
    ("'2013-01-02' = day_start", (2,)),
    ("day_start > '2013-01-02'", (3,)),
    ("day_start < '2013-01-02'", (1,)),
    ("NOT (day_start <= '2013-01-02')", (3,)),
    ("NOT (day_start < '2013-01-02' OR day_start > '2013-01-02')", (2,)),
    ("NOT NOT day_start >= '2013-01-03'", (3,)),
    ("day_start IN ('2013-01-02', '2013-01-03')", (2, 3)),
    ("day_start BETWEEN '2013-01-01' AND '2013-01-02'", (1, 2)),
    ("NOT day_start BETWEEN '2013-01-01' AND '2013-01-02'", None),
    ("hour_start >= '2013-01-01' AND hour_start < '2013-01-02'", (1,)),
    ("hour_start > '2013-01-02 23:59:59'", (3,)),
    ("DATE(ts) = '2013-01-02'", (2,)),
    ("DATE(hour_start) = '2013-01-02'", (2,)),
    ("'2013-01-02' < DATE(hour_start)", (3,)),
    ("DATE(hour_start) <= '2013-01-02'", (1, 2)),
    ("NOT DATE(hour_start) <> '2013-01-02'", (2,)),
    ("CAST(hour_start AS DATE) IN ('2013-01-01', '2013-01-02')", (1, 2)),
    ("DATE(hour_start) NOT IN ('2013-01-01', '2013-01-02')", None),
    ("DATE(hour_start) BETWEEN '2013-01-02' AND '2013-01-09'", (2, 3)),
    ("DATE(hour_start) < '2013-01-02 05:00:00'", (1, 2)),
    ("DATE(hour_start) >= '2013-01-02 05:00:00'", (3,)),
    ("DATE(hour_start) = '2013-01-02 05:00:00'", None),
    ("ts <= '9999-12-31 23:59:59.999999'", (1, 2, 3)),
    ("ts > '9999-12-31 23:59:59.999999'", None),
    ("YEAR(ts) = 2013", (1, 2, 3)),
    ("YEAR(ts) = 2012", ()),
    ("YEAR(hour_start) < 2013", ()),
    ("2013 < YEAR(hour_start)", ()),
    ("YEAR(hour_start) >= 2013 AND day_start > '2013-01-02'", (3,)),
    ("YEAR(hour_start) <> 2013", None),
    ("NOT YEAR(hour_start) = 2012", (1, 2, 3)),
    ("EXTRACT(YEAR FROM hour_start) IN (2011, 2012)", ()),
    ("YEAR(hour_start) BETWEEN 2013 AND 2014", (1, 2, 3)),
    ("YEAR(hour_start) = 10000", None),
    ("YEAR(hour_start) <= 9999", (1, 2, 3)),
    ("ts >= '2013-01-03'", (3,)),
    ("NOT ts >= '2013-01-02'", (1,)),
    ("date_trunc('day', ts) = '2013-01-02'", (2,)),
    ("(day_start = '2013-01-01' AND carrier = 'AA') OR day_start < '2012-01-01'", (1,)),
    ("day_start <= '9999-12-31'", (1, 2, 3)),
    ("day_start >= '0001-01-01' AND day_start < '2013-01-02'", (1,)),
    ("hour_start = '9999-12-31 23:00:00'", ()),
    ("day_start <> '2013-01-02'", None),
    ("day_start NOT IN ('2013-01-02')", None),
]


@pytest.mark.parametrize(("condition", "days"), CONDITIONS)
def test_what_cannot_match_is_not_read(
    world: QueryWorld,
    service: QueryService,
    oracle: duckdb.DuckDBPyConnection,
    condition: str,
    days: tuple[int, ...] | None,
) -> None:
    outcome = service.execute(f"SELECT COUNT(*) n FROM flights WHERE {condition}")
    (found,), stats = outcome.table().to_pylist(), outcome.stats[0]
    exact = condition.replace("'2013-01-02 05:00:00'", "TIMESTAMP '2013-01-02 05:00:00'")  # not a DATE of it
    expected = oracle.execute(f"SELECT COUNT(*) FROM flights WHERE {exact}").fetchone()
    assert expected is not None
    assert found["n"] == expected[0]
    if days is not None:
        read = {*stats.history_segments, *stats.realtime_segments}
        assert {int(name[6:8]) for name in read} <= set(days)
        known = len(stats.pruned_segments) + len(stats.history_segments)
        if known or days:  # else all of it lies in pages of history that nothing asked for
            assert known == len(world.built["flights"])
