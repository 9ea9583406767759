"""The star schema benchmark, flat: its table by a generator of our own, 13 statements, and a cube for them.

Value sets and shares of the published benchmark's columns, six million rows a scale. The cube has a cuboid
for each group of statements beside its base.
"""

from __future__ import annotations

from typing import Any

from rtolap.model.cube import AggregationGroup, Cube, Measure, Schema, SegmentPolicy
from rtolap.model.table import Column, Table, TimeColumn

ROWS_A_SCALE = 6_000_000
WINDOW_MS = 30 * 86_400_000
_DIMENSIONS = {
    **dict.fromkeys(("d_year", "d_yearmonthnum", "d_weeknuminyear", "lo_discount", "lo_quantity"), "int"),
    **dict.fromkeys(("c_region", "c_nation", "c_city", "s_region", "s_nation", "s_city"), "string"),
    **dict.fromkeys(("p_mfgr", "p_category", "p_brand1"), "string"),
}
_FLIGHTS = (
    ("d_year", "d_yearmonthnum", "d_weeknuminyear", "lo_discount", "lo_quantity"),
    ("d_year", "s_region", "p_category", "p_brand1"),
    ("d_year", "c_region", "c_nation", "s_region", "s_nation"),
    ("d_year", "d_yearmonthnum", "c_nation", "c_city", "s_nation", "s_city"),
    ("d_year", "c_region", "c_nation", "s_region", "p_mfgr"),
    ("d_year", "c_region", "s_region", "s_nation", "p_mfgr", "p_category"),
    ("d_year", "c_region", "s_nation", "s_city", "p_category", "p_brand1"),
)
_CITIES = "('UNITED KI1', 'UNITED KI5')"
STATEMENTS = {
    "1.1": "SELECT SUM(discounted) r FROM ssb WHERE d_year = 1993 AND lo_discount BETWEEN 1 AND 3 "
    "AND lo_quantity < 25",
    "1.2": "SELECT SUM(discounted) r FROM ssb WHERE d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 "
    "AND lo_quantity BETWEEN 26 AND 35",
    "1.3": "SELECT SUM(discounted) r FROM ssb WHERE d_weeknuminyear = 6 AND d_year = 1994 "
    "AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35",
    "2.1": "SELECT SUM(lo_revenue) r, d_year, p_brand1 FROM ssb WHERE p_category = 'MFGR#12' "
    "AND s_region = 'AMERICA' GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    "2.2": "SELECT SUM(lo_revenue) r, d_year, p_brand1 FROM ssb WHERE p_brand1 >= 'MFGR#2221' "
    "AND p_brand1 <= 'MFGR#2228' AND s_region = 'ASIA' GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    "2.3": "SELECT SUM(lo_revenue) r, d_year, p_brand1 FROM ssb WHERE p_brand1 = 'MFGR#2239' "
    "AND s_region = 'EUROPE' GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    "3.1": "SELECT c_nation, s_nation, d_year, SUM(lo_revenue) r FROM ssb WHERE c_region = 'ASIA' "
    "AND s_region = 'ASIA' AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_nation, s_nation, d_year "
    "ORDER BY d_year, r DESC",
    "3.2": "SELECT c_city, s_city, d_year, SUM(lo_revenue) r FROM ssb WHERE c_nation = 'UNITED STATES' "
    "AND s_nation = 'UNITED STATES' AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_city, s_city, d_year "
    "ORDER BY d_year, r DESC",
    "3.3": f"SELECT c_city, s_city, d_year, SUM(lo_revenue) r FROM ssb WHERE c_city IN {_CITIES} "
    f"AND s_city IN {_CITIES} AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_city, s_city, d_year "
    "ORDER BY d_year, r DESC",
    "3.4": f"SELECT c_city, s_city, d_year, SUM(lo_revenue) r FROM ssb WHERE c_city IN {_CITIES} "
    f"AND s_city IN {_CITIES} AND d_yearmonthnum = 199712 GROUP BY c_city, s_city, d_year "
    "ORDER BY d_year, r DESC",
    "4.1": "SELECT d_year, c_nation, SUM(profit) r FROM ssb WHERE c_region = 'AMERICA' "
    "AND s_region = 'AMERICA' AND p_mfgr IN ('MFGR#1', 'MFGR#2') GROUP BY d_year, c_nation "
    "ORDER BY d_year, c_nation",
    "4.2": "SELECT d_year, s_nation, p_category, SUM(profit) r FROM ssb WHERE c_region = 'AMERICA' "
    "AND s_region = 'AMERICA' AND d_year IN (1997, 1998) AND p_mfgr IN ('MFGR#1', 'MFGR#2') "
    "GROUP BY d_year, s_nation, p_category ORDER BY d_year, s_nation, p_category",
    "4.3": "SELECT d_year, s_city, p_brand1, SUM(profit) r FROM ssb WHERE c_region = 'AMERICA' "
    "AND s_nation = 'UNITED STATES' AND d_year IN (1997, 1998) AND p_category = 'MFGR#14' "
    "GROUP BY d_year, s_city, p_brand1 ORDER BY d_year, s_city, p_brand1",
}
BASE_STATEMENTS = {
    "base 1": "SELECT lo_quantity, SUM(lo_revenue) r FROM ssb WHERE c_region = 'ASIA' AND p_mfgr = 'MFGR#3' "
    "GROUP BY lo_quantity ORDER BY lo_quantity",
    "base 2": "SELECT lo_discount, s_region, COUNT(*) n FROM ssb GROUP BY lo_discount, s_region "
    "ORDER BY lo_discount, s_region",
}


def schema() -> Schema:
    measured = ("lo_revenue", "discounted", "profit")
    columns = (
        Column("ts", "bigint"),
        *(Column(name, kind) for name, kind in _DIMENSIONS.items()),
        *(Column(name, "int") for name in measured),
    )
    cube = Cube(
        name="ssb",
        table="lineorder",
        dimensions=tuple(_DIMENSIONS),
        time_dimensions=("year",),
        aggregation_groups=tuple(AggregationGroup(include=names, mandatory=names) for names in _FLIGHTS),
        measures=(Measure("count"), *(Measure("sum", name) for name in measured)),
        segment=SegmentPolicy(window_ms=WINDOW_MS),
    )
    return Schema(
        Table(name="lineorder", topic="lineorder", columns=columns, time=TimeColumn("ts", "epoch_ms")), cube
    )


def generate(connection: Any, rows: int) -> None:
    """Make table `raw`: one row a line of an order, by hashes of its number."""
    nations = ", ".join(
        f"'{name}'"
        for name in (
            *("ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"),
            *("ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"),
            *("CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"),
            *("FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"),
            *("EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"),
        )
    )
    regions = "'AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'"
    drawn = ", ".join(
        f"CAST(hash(i * 31 + {use}) % {count} AS INTEGER) AS {name}"
        for use, (name, count) in enumerate(
            {
                "day": 2406, "cn": 25, "cc": 10, "sn": 25, "sc": 10, "brand": 1000, "lo_quantity": 50,
                "lo_discount": 11, "price": 900,
            }.items()
        )
    )  # fmt: skip
    connection.execute(f"SET VARIABLE nations = [{nations}]")
    connection.execute(f"SET VARIABLE regions = [{regions}]")
    connection.execute(
        f"""
        CREATE TABLE raw AS
        WITH drawn AS (SELECT i, {drawn} FROM range({rows}) t(i)),
        named AS (
            SELECT *, DATE '1992-01-01' + day AS on_day, getvariable('nations')[cn + 1] AS c_nation,
                   getvariable('nations')[sn + 1] AS s_nation,
                   (price + 901) * 100 * (lo_quantity + 1) AS extended
            FROM drawn)
        SELECT CAST(epoch_ms(on_day) AS BIGINT) AS ts, CAST(year(on_day) AS INTEGER) AS d_year,
               CAST(year(on_day) * 100 + month(on_day) AS INTEGER) AS d_yearmonthnum,
               CAST((dayofyear(on_day) - 1) // 7 + 1 AS INTEGER) AS d_weeknuminyear,
               lo_discount, lo_quantity + 1 AS lo_quantity,
               getvariable('regions')[cn // 5 + 1] AS c_region, c_nation,
               rpad(left(c_nation, 9), 9, ' ') || cc AS c_city,
               getvariable('regions')[sn // 5 + 1] AS s_region, s_nation,
               rpad(left(s_nation, 9), 9, ' ') || sc AS s_city,
               'MFGR#' || (brand // 200 + 1) AS p_mfgr,
               'MFGR#' || (brand // 200 + 1) || (brand // 40 % 5 + 1) AS p_category,
               'MFGR#' || (brand // 200 + 1) || (brand // 40 % 5 + 1) || (brand % 40 + 1) AS p_brand1,
               CAST(extended * (100 - lo_discount) // 100 AS INTEGER) AS lo_revenue,
               CAST(extended * lo_discount // 100 AS INTEGER) AS discounted,
               CAST(extended * (100 - lo_discount) // 100 - (price + 901) * 60 AS INTEGER) AS profit
        FROM named
        """
    )
