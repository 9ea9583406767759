"""Values that Python takes for equal, and SQL does not, have plans of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from rtolap.query.engine import EmbeddedEngine

from tests.query.test_plan_templates import Asking


def differing(asking: Asking, statements: list[tuple[str, list[object]]]) -> list[str]:
    """Return the statements whose cached plan is another one than that of a planner that knows no other."""
    return [
        f"{sql} {values}"
        for sql, values in statements
        if asking.cached(sql, values) != asking.plain(sql, values)
    ]


ALIKE: tuple[tuple[object, object], ...] = (
    *((Decimal("1.0"), Decimal("1.00")), (Decimal(0), Decimal("-0.0")), (Decimal("1E+2"), Decimal(100))),
    *((1, True), (1, 1.0), (0.0, -0.0), (Decimal(1), 1)),
    (datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))),
    (datetime(2013, 10, 27, 2, 30), datetime(2013, 10, 27, 2, 30, fold=1)),
)
OF_VALUES = (
    *("SELECT COUNT(*) FROM flights WHERE carrier = CAST(? AS CHAR)", "SELECT ?, COUNT(*) FROM flights"),
    *("SELECT COUNT(*) FROM flights WHERE fare_class > ?", "SELECT COUNT(*) FROM flights WHERE ts > ?"),
    "SELECT COUNT(*) FROM flights WHERE carrier = CONCAT(?, '')",
)


@pytest.mark.parametrize("sql", OF_VALUES)
@pytest.mark.parametrize("pair", ALIKE, ids=repr)
def test_values_that_are_equal_and_read_otherwise_have_plans_of_their_own(
    engine: EmbeddedEngine, sql: str, pair: tuple[object, object]
) -> None:
    for values in (pair, pair[::-1]):
        assert not differing(Asking(engine), [(sql, [value]) for value in values])


@pytest.mark.parametrize("pair", ALIKE, ids=repr)
def test_values_that_are_equal_have_plans_of_their_own_beside_a_text_of_a_shape(
    engine: EmbeddedEngine, pair: tuple[object, object]
) -> None:
    sql = "SELECT COUNT(*) FROM flights WHERE carrier = CAST(? AS CHAR) AND origin = ?"
    statements = [(sql, [value, f"o{number}"]) for number in range(4) for value in pair]
    assert not differing(Asking(engine), statements)
